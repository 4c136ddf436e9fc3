"""Schedule of stages: the pending stage of every object and its due time.

A change of the object reschedules it, as in KWOK: another stage may match then. A stage that is applied to one object
twice in a row waits at least a second, so that a stage that matches its own result does not loop.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from kubeloop.devcluster.kubelet.stages.files import Apply, Stage
from kubeloop.devcluster.kubelet.stages.lifecycle import delay_seconds, select_stage
from kubeloop.devcluster.kubelet.stages.requests import StageRequests
from kubeloop.devcluster.languages.gotemplate import values
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.jq import Program, Query, Results
from kubeloop.devcluster.simulation.timers import Timer, TimerQueue
from kubeloop.kube import yaml
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.json_object import JSON

Subject = TypeVar("Subject")
"""Additional data about the object."""

_REPEAT_SECONDS = 1.0  # between two applications of one stage to one object


class StageFailed(Exception):
    """The stage cannot be applied to this object."""


class PendingStage(msgspec.Struct, Generic[Subject], eq=False):
    """A stage that waits for its time on one object. obj: the object when the stage was selected."""

    stage: Stage
    obj: JSON
    subject: Subject
    timer: Timer | None = None

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])


class StageSchedule(Generic[Subject]):
    """Pending stages of all objects. `play` is called when one is due; it calls take().

    stages: all stages. wake: called when a stage is scheduled after an evaluation in the background.
    """

    def __init__(
        self,
        stages: Iterable[Stage],
        timers: TimerQueue,
        play: Callable[[PendingStage[Subject]], None],
        wake: Callable[[], None],
        *,
        clock: Clock,
        rng: random.Random,
        unselected: Callable[[JSON, Subject], None] = lambda obj, subject: None,
    ) -> None:
        """unselected: called with an object for which no stage is selected."""
        queries: dict[tuple[str, str], list[Query]] = defaultdict(list)
        for stage in stages:
            queries[stage.api_version, stage.kind] += stage.queries
        self._programs = {kind: Program(kind_queries) for kind, kind_queries in queries.items()}
        self._timers = timers
        self._apply_pending = play
        self._wake = wake
        self._unselected = unselected
        self._clock = clock
        self._rng = rng
        self._evaluations: dict[str, tuple[asyncio.Future[Results], Subject]] = {}  # by uid
        self._pending: dict[str, PendingStage[Subject]] = {}  # by uid
        self._last: dict[str, tuple[str, float]] = {}  # by uid: name of the last stage, and its time

    def reschedule(self, stages: Sequence[Stage], obj: JSON, subject: Subject) -> bool:
        """Select and schedule a stage for a new or changed object; return True if one is scheduled.

        An object that is not newer than that of the pending stage has no effect. If jq expressions are evaluated in the
        background, the stage is selected later.
        """
        metadata = obj["metadata"]
        uid = metadata["uid"]
        pending = self._pending.get(uid)
        if pending is not None and stages and _version(pending.obj) >= _version(obj):
            return False
        self._cancel(uid)
        if not stages:
            return False
        program = self._programs[stages[0].api_version, stages[0].kind]
        if program.is_cheap:
            return self._select(stages, obj, subject, program.results(obj, self._clock.now()))
        evaluation = asyncio.get_running_loop().run_in_executor(None, program.results, obj, self._clock.now())
        self._evaluations[uid] = evaluation, subject
        evaluation.add_done_callback(partial(self._evaluated, stages, obj, subject))
        return False

    def _evaluated(
        self, stages: Sequence[Stage], obj: JSON, subject: Subject, evaluation: asyncio.Future[Results]
    ) -> None:
        uid = obj["metadata"]["uid"]
        if evaluation.cancelled() or self._evaluations.get(uid) != (evaluation, subject):
            return
        del self._evaluations[uid]
        if self._select(stages, obj, subject, evaluation.result()):
            self._wake()

    def _select(self, stages: Sequence[Stage], obj: JSON, subject: Subject, results: Results) -> bool:
        """Schedule the stage for the results of jq expressions; return True if there is one."""
        uid, moment = obj["metadata"]["uid"], self._clock.now()
        stage = select_stage(stages, obj, results, moment, self._rng)
        if stage is None:
            self._unselected(obj, subject)
            return False
        when = _loop_seconds() + delay_seconds(stage, obj, results, moment, self._rng)
        last = self._last.get(uid)
        if last is not None and last[0] == stage.name:
            when = max(when, last[1] + _REPEAT_SECONDS)
        pending = self._pending[uid] = PendingStage(stage, obj, subject)
        pending.timer = self._timers.at(when, self._apply_pending, pending)
        return True

    def take(self, pending: PendingStage[Subject]) -> None:
        """Remove a due stage from the schedule."""
        self._pending.pop(pending.uid, None)

    def begin(self, pending: PendingStage[Subject]) -> None:
        """Record that the stage is applied now."""
        self._last[pending.uid] = pending.stage.name, _loop_seconds()

    def forget(self, uid: str) -> None:
        """Remove the state of a deleted object."""
        self._last.pop(uid, None)
        self._cancel(uid)

    def retain(self, subject: Subject, uids: Collection[str]) -> None:
        """Forget the objects of this subject whose uid is not in `uids`."""
        for uid in [uid for uid, pending in self._pending.items() if pending.subject == subject and uid not in uids]:
            self._cancel(uid)
        for uid in [uid for uid, (_, of) in self._evaluations.items() if of == subject and uid not in uids]:
            self._cancel(uid)
        since = _loop_seconds() - _REPEAT_SECONDS
        self._last = {uid: last for uid, last in self._last.items() if last[1] > since}  # older ones have no effect

    def _cancel(self, uid: str) -> None:
        self._evaluations.pop(uid, None)
        pending = self._pending.pop(uid, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()


def general_functions(clock: Clock, started: str) -> dict[str, Callable[..., Any]]:
    """Return the template functions that objects of all kinds can use. started: when the stages were started."""
    return {"Now": lambda: rfc3339_micro(clock.now()), "StartTime": lambda: started, "Version": lambda: "v0.7.0"}


def render_yaml(template: Template, obj: JSON, context: dict[str, Callable[..., Any]]) -> Any:
    """Render a template for an object and parse the YAML. Raises StageFailed, TemplateError."""
    try:
        document, _ = yaml.read_first(template.render(values.from_json(obj), context))
    except yaml.InvalidYaml as error:
        raise StageFailed(f"the template does not render to YAML: {error.place}") from None
    return document


async def apply_rendered(
    requests: StageRequests, apply: Apply, obj: JSON, context: dict[str, Callable[..., Any]]
) -> None:
    """Apply what the template renders for `obj`, by default in its namespace. Raises StageFailed, Refused."""
    applied = render_yaml(apply.template, obj, context)
    namespace = obj["metadata"].get("namespace", "")
    await requests.apply(applied, namespace, apply.type, apply.subresource, user=apply.user)


def wrap_patch(root: str, patch: Any, *, json_patch: bool) -> Any:
    """Wrap a patch of the field `root` into a patch of the object."""
    if not root:
        return patch
    if not json_patch:
        return {root: patch}
    if not isinstance(patch, list):
        return patch
    return [
        {**operation, "path": f"/{root}{operation.get('path', '')}"}
        for operation in patch
        if isinstance(operation, dict)
    ]


def _version(obj: JSON) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()
