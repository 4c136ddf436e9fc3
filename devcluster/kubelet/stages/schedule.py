"""Whose turn it is: the stage that each object waits for, and when it is played.

A change of the object while a stage waits begins anew, as in KWOK: another stage may match now. A stage that is played
on one object twice in a row waits a second at least, so that one whose outcome matches again does not spin.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from kubeloop.devcluster.kubelet.stages.files import Stage
from kubeloop.devcluster.kubelet.stages.lifecycle import chosen, delay_seconds
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.simulation.timers import Timer, TimerQueue
from kubeloop.kube import yaml
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON

Subject = TypeVar("Subject")
"""What else is known of the object."""

_AGAIN_SECONDS = 1.0  # between two plays of one stage on one object


class StageFailed(Exception):
    """The stage cannot be played on this object."""


class Turn(Generic[Subject]):
    """A stage that waits for its time on one object. obj: as it was when the stage was chosen."""

    __slots__ = ("obj", "stage", "subject", "timer")

    def __init__(self, stage: Stage, obj: JSON, subject: Subject) -> None:
        self.stage = stage
        self.obj = obj
        self.subject = subject
        self.timer: Timer | None = None

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])


class Turns(Generic[Subject]):
    """The turns of all objects. `play` is called when one has come; it asks take() for it."""

    def __init__(
        self, timers: TimerQueue, play: Callable[[Turn[Subject]], None], *, clock: Clock, rng: random.Random
    ) -> None:
        self._agenda = timers
        self._play = play
        self._clock = clock
        self._rng = rng
        self._waiting: dict[str, Turn[Subject]] = {}  # by uid
        self._last: dict[str, tuple[str, float]] = {}  # by uid: the stage played last, and when

    def consider(self, stages: Sequence[Stage], obj: JSON, subject: Subject) -> bool:
        """An object is new, or has changed: does one of the stages wait for it anew?"""
        metadata = obj["metadata"]
        uid = metadata["uid"]
        waiting = self._waiting.get(uid)
        if waiting is not None and stages and waiting.obj["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
            return False
        self._cancel(uid)
        moment = self._clock.now()
        stage = chosen(stages, obj, moment, self._rng)
        if stage is None:
            return False
        when = _loop_seconds() + delay_seconds(stage, obj, moment, self._rng)
        last = self._last.get(uid)
        if last is not None and last[0] == stage.name:
            when = max(when, last[1] + _AGAIN_SECONDS)
        turn = self._waiting[uid] = Turn(stage, obj, subject)
        turn.timer = self._agenda.at(when, self._play, turn)
        return True

    def take(self, turn: Turn[Subject]) -> None:
        """The stage waits no more."""
        self._waiting.pop(turn.uid, None)

    def begin(self, turn: Turn[Subject]) -> None:
        """The stage is played now."""
        self._last[turn.uid] = turn.stage.name, _loop_seconds()

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._last.pop(uid, None)
        self._cancel(uid)

    def keep(self, subject: Subject, uids: Collection[str]) -> None:
        """Forget objects of this subject that are none of these."""
        for uid in [uid for uid, turn in self._waiting.items() if turn.subject == subject and uid not in uids]:
            self._cancel(uid)
        since = _loop_seconds() - _AGAIN_SECONDS
        self._last = {uid: last for uid, last in self._last.items() if last[1] > since}  # the others tell nothing

    def _cancel(self, uid: str) -> None:
        turn = self._waiting.pop(uid, None)
        if turn is not None and turn.timer is not None:
            turn.timer.cancel()


def rendered(template: Template, obj: JSON, context: dict[str, Callable[..., Any]]) -> Any:
    """What a template makes of an object. Raises StageFailed, TemplateError."""
    try:
        document, _ = yaml.read_first(template.render(_copied(obj), context))
    except yaml.InvalidYaml as error:
        raise StageFailed(f"the template makes no YAML: {error.place}") from None
    return document


def _copied(value: Any) -> Any:
    """Templates may change the maps they are given."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def under_root(root: str, told: Any, *, json_patch: bool) -> Any:
    """A patch of the field `root` as one of the whole object."""
    if not root:
        return told
    if not json_patch:
        return {root: told}
    if not isinstance(told, list):
        return told
    return [{**each, "path": f"/{root}{each.get('path', '')}"} for each in told if isinstance(each, dict)]


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()
