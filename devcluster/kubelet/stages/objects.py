"""Stages at work on objects of any kind but pods and nodes, which have kubelets: player.py plays theirs.

Each kind is listed and watched as by any client, as soon as it is served: custom resources may come later, and come
again. An object that matches a stage gets an appointment, and the stage's steps become requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS
from kubeloop.devcluster.kubelet.stages.files import Finalizers, Patch, Stage, Step
from kubeloop.devcluster.kubelet.stages.requests import Place, Refused, StageRequests
from kubeloop.devcluster.kubelet.stages.schedule import StageFailed, Turn, Turns, rendered, under_root
from kubeloop.devcluster.languages.gotemplate.functions import FunctionError
from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.simulation.events import StoreEventRecorder
from kubeloop.devcluster.simulation.timers import TimerQueue
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.json_object import JSON

log = logging.getLogger(__name__)

_RELIST_SECONDS = 0.2  # after a watch that has ended


class ObjectStages:
    """Plays stages on all objects of their kinds. `run()` once."""

    def __init__(
        self, stages: Sequence[Stage], requests: StageRequests, store: Store, *, clock: Clock, rng: random.Random
    ) -> None:
        self._requests = requests
        self._store = store
        self._clock = clock
        self._rng = rng
        self._events = StoreEventRecorder(store, clock=clock, rng=rng)
        self._kinds: dict[tuple[str, str], list[Stage]] = defaultdict(list)
        for stage in stages:
            self._kinds[stage.api_version, stage.kind].append(stage)
        self._agenda = TimerQueue()
        self._due = asyncio.Event()
        self._turns: Turns[Place] = Turns(self._agenda, self._play, clock=clock, rng=rng)
        self._started = rfc3339_micro(clock.now())
        self._definitions_changed = asyncio.Event()

    async def run(self) -> None:
        """Play until cancelled."""
        unsubscribe = self._store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._note_definition)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._play_due(), name="stages/agenda")
                for api_version, kind in self._kinds:
                    group.create_task(self._follow(api_version, kind), name=f"stages/{kind}")
        finally:
            unsubscribe()

    def _note_definition(self, _change: Change) -> None:
        self._definitions_changed.set()

    # --- objects ------------------------------------------------------------------------------------------------------

    async def _follow(self, api_version: str, kind: str) -> None:
        stages = self._kinds[api_version, kind]
        while True:
            place = self._requests.place(api_version, kind)
            if place is None:
                self._definitions_changed.clear()
                await self._definitions_changed.wait()
                await asyncio.sleep(0)  # the definition is served once the request that makes it is done
                continue
            try:
                await self._watch(place, stages)
            except Refused as refused:
                log.info("stages watch again", extra={"kind": kind, "why": str(refused)})
            await asyncio.sleep(_RELIST_SECONDS)

    async def _watch(self, place: Place, stages: Sequence[Stage]) -> None:
        """Consider all objects, and then each that changes, to the end of the watch."""
        objects, version = self._requests.all_of(place)
        self._turns.keep(place, {obj["metadata"]["uid"] for obj in objects})
        for obj in objects:
            self._consider(stages, obj, place)
        async with aclosing(self._requests.watch(place, version)) as frames:
            rest = b""
            async for chunk in frames:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event: JSON = msgspec.json.decode(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._consider(stages, event["object"], place)
                    elif event["type"] == "DELETED":
                        self._turns.forget(event["object"]["metadata"]["uid"])
                    elif event["type"] == "ERROR":
                        return

    def _consider(self, stages: Sequence[Stage], obj: JSON, place: Place) -> None:
        if self._turns.consider(stages, obj, place):
            self._due.set()

    # --- playing ------------------------------------------------------------------------------------------------------

    async def _play_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while (timer := self._agenda.pop(loop.time())) is not None:
                if timer.act is not None:
                    timer.act(timer.argument)
                await asyncio.sleep(0)
            self._due.clear()
            alarm, due = None, self._agenda.next_due()
            if due is not None:
                alarm = loop.call_at(due, self._due.set)
            try:
                await self._due.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()

    def _play(self, play: Turn[Place]) -> None:
        metadata, stage = play.obj["metadata"], play.stage
        self._turns.take(play)
        self._turns.begin(play)
        try:
            after = self._steps(play)
        except (StageFailed, TemplateError, FunctionError, Refused) as failure:
            text = f"stage {stage.name} cannot be played: {failure}"
            log.warning("%s %s: %s", stage.kind, metadata["name"], text)
            self._event(play.obj, "Warning", "StageFailed", text)
            return
        if after is not None and stage.immediate:
            self._consider(self._kinds[stage.api_version, stage.kind], after, play.subject)

    def _event(self, obj: JSON, type_: str, reason: str, message: str) -> None:
        self._events.record(obj, type_, reason, message, field_path="", component="stages", host="")

    def _steps(self, play: Turn[Place]) -> JSON | None:
        """Play all steps; the object as the last patch has left it, None if none has. Raises StageFailed, Refused."""
        after: JSON | None = None
        deleted = False
        metadata = play.obj["metadata"]
        path = play.subject.path(metadata.get("namespace", ""), metadata["name"])
        for step in play.stage.steps:
            if step.event is not None:
                self._event(play.obj, *step.event)
            if deleted:
                continue
            if step.finalizers is not None and (operations := _finalizer_patch(metadata, step.finalizers)):
                after = self._requests.patch(path, "json", operations)
            if step.delete:
                self._requests.delete(path)
                deleted, after = True, None
                continue
            if step.patch is not None:
                after = self._patched(play, step.patch)
            if step.apply is not None:
                self._applied(play, step)
        return after

    def _patched(self, play: Turn[Place], patch: Patch) -> JSON | None:
        told = rendered(patch.template, play.obj, self._context())
        if told is None:
            return None
        told = under_root(patch.root, told, json_patch=patch.type == "json")
        metadata = play.obj["metadata"]
        path = play.subject.path(metadata.get("namespace", ""), metadata["name"], patch.subresource)
        return self._requests.patch(path, patch.type, told, user=patch.user)

    def _applied(self, play: Turn[Place], step: Step) -> None:
        assert step.apply is not None
        told = rendered(step.apply.template, play.obj, self._context())
        namespace = play.obj["metadata"].get("namespace", "")
        self._requests.apply(told, namespace, step.apply.type, step.apply.subresource, user=step.apply.user)

    def _context(self) -> dict[str, Callable[..., Any]]:
        def of_kubelets(*_arguments: Any) -> Any:
            raise FunctionError("only templates of pods and nodes know of a node")

        names = ("NodeIP", "NodeName", "NodePort", "PodIP", "NodeIPWith", "NodeIPsWith", "PodIPWith", "PodIPsWith")
        return {
            **dict.fromkeys(names, of_kubelets),
            "Now": lambda: rfc3339_micro(self._clock.now()),
            "StartTime": lambda: self._started,
            "Version": lambda: "v0.7.0",
        }


def _finalizer_patch(metadata: JSON, change: Finalizers) -> list[JSON]:
    """What makes an object's finalizers what a stage wants; nothing if they are."""
    before = list(metadata.get("finalizers") or ())
    after = change.made_of(before)
    if after == before:
        return []
    if not after:
        return [{"op": "remove", "path": "/metadata/finalizers"}]
    return [{"op": "replace" if before else "add", "path": "/metadata/finalizers", "value": after}]
