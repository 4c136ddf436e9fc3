"""Stages of objects other than pods and nodes (those: pod_stages).

Each kind is listed and watched like by any client while it is served: custom resources may appear at any time. The
steps of a matching stage become requests.
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
from kubeloop.devcluster.api.slow_work import HandlerTasks, run
from kubeloop.devcluster.kubelet.stages.files import Finalizers, Stage, StagePatch
from kubeloop.devcluster.kubelet.stages.requests import Refused, ResourcePath, StageRequests
from kubeloop.devcluster.kubelet.stages.schedule import (
    PendingStage,
    StageFailed,
    StageSchedule,
    apply_rendered,
    general_functions,
    render_yaml,
    wrap_patch,
)
from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.languages.gotemplate.values import FunctionError
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.simulation.timers import TimerQueue
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.json_object import JSON

log = logging.getLogger(__name__)

_RELIST_SECONDS = 0.2  # after a watch that has ended


class ObjectStages:
    """Applies stages to all objects of their kinds. Call run() once."""

    def __init__(
        self, stages: Sequence[Stage], requests: StageRequests, store: ObjectStore, *, clock: Clock, rng: random.Random
    ) -> None:
        self._requests = requests
        self._store = store
        self._clock = clock
        self._rng = rng
        self._events = StoreEventRecorder(store, clock=clock, rng=rng)
        self._kinds: dict[tuple[str, str], list[Stage]] = defaultdict(list)
        for stage in stages:
            self._kinds[stage.api_version, stage.kind].append(stage)
        self._handlers = HandlerTasks()
        self._timers = TimerQueue()
        self._due = asyncio.Event()
        self._schedule: StageSchedule[ResourcePath] = StageSchedule(
            stages, self._timers, self._apply_pending, self._due.set, clock=clock, rng=rng
        )
        self._started = rfc3339_micro(clock.now())
        self._definitions_changed = asyncio.Event()

    async def run(self) -> None:
        """Apply stages until cancelled."""
        unsubscribe = self._store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._note_definition)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._handlers.run(), name="stages/requests")
                group.create_task(self._run_due(), name="stages/timers")
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
            location = await run(self._requests.resource_path(api_version, kind))
            if location is None:
                self._definitions_changed.clear()
                await self._definitions_changed.wait()
                await asyncio.sleep(0)  # the definition is served after the request that creates it
                continue
            try:
                await self._watch(location, stages)
            except Refused as refused:
                log.info("restarting the watch of a stage", extra={"kind": kind, "reason": str(refused)})
            await asyncio.sleep(_RELIST_SECONDS)

    async def _watch(self, location: ResourcePath, stages: Sequence[Stage]) -> None:
        """Schedule stages for all objects, then for changed ones until the watch ends."""
        objects, version = await run(self._requests.list(location))
        self._schedule.retain(location, {obj["metadata"]["uid"] for obj in objects})
        for obj in objects:
            self._consider(stages, obj, location)
        async with aclosing(await run(self._requests.watch(location, version))) as frames:
            rest = b""
            async for chunk in frames:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event: JSON = msgspec.json.decode(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._consider(stages, event["object"], location)
                    elif event["type"] == "DELETED":
                        self._schedule.forget(event["object"]["metadata"]["uid"])
                    elif event["type"] == "ERROR":
                        return

    def _consider(self, stages: Sequence[Stage], obj: JSON, location: ResourcePath) -> None:
        if self._schedule.reschedule(stages, obj, location):
            self._due.set()

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _run_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while (timer := self._timers.pop(loop.time())) is not None:
                if timer.act is not None:
                    timer.act(timer.argument)
                await asyncio.sleep(0)
            await self._timers.wait(self._due)

    def _apply_pending(self, pending: PendingStage[ResourcePath]) -> None:
        self._schedule.take(pending)
        self._schedule.begin(pending)
        self._handlers.start(self._apply_stage(pending))

    async def _apply_stage(self, pending: PendingStage[ResourcePath]) -> None:
        metadata, stage = pending.obj["metadata"], pending.stage
        try:
            after = await self._steps(pending)
        except (StageFailed, TemplateError, FunctionError, Refused) as failure:
            text = f"stage {stage.name} failed: {failure}"
            log.warning("%s %s: %s", stage.kind, metadata["name"], text)
            self._events.record(pending.obj, "Warning", "StageFailed", text, component="stages")
            return
        if after is not None and stage.immediate:
            self._consider(self._kinds[stage.api_version, stage.kind], after, pending.subject)

    async def _steps(self, pending: PendingStage[ResourcePath]) -> JSON | None:
        """Apply all steps; return the object after the last patch, None without one. Raises StageFailed, Refused."""
        after: JSON | None = None
        deleted = False
        metadata = pending.obj["metadata"]
        path = pending.subject.path(metadata.get("namespace", ""), metadata["name"])
        for step in pending.stage.steps:
            if step.event is not None:
                self._events.record(pending.obj, *step.event, component="stages")
            if deleted:
                continue
            if step.finalizers is not None and (operations := _finalizer_patch(metadata, step.finalizers)):
                after = await self._requests.patch(path, "json", operations)
            if step.delete:
                await self._requests.delete(path)
                deleted, after = True, None
                continue
            if step.patch is not None:
                after = await self._apply_patch(pending, step.patch)
            if step.apply is not None:
                await apply_rendered(self._requests, step.apply, pending.obj, self._context())
        return after

    async def _apply_patch(self, pending: PendingStage[ResourcePath], patch: StagePatch) -> JSON | None:
        patch_body = render_yaml(patch.template, pending.obj, self._context())
        if patch_body is None:
            return None
        patch_body = wrap_patch(patch.root, patch_body, json_patch=patch.type == "json")
        metadata = pending.obj["metadata"]
        path = pending.subject.path(metadata.get("namespace", ""), metadata["name"], patch.subresource)
        return await self._requests.patch(path, patch.type, patch_body, user=patch.user)

    def _context(self) -> dict[str, Callable[..., Any]]:
        def unavailable(*_arguments: Any) -> Any:
            raise FunctionError("only templates of pods and nodes can use the functions of a node")

        names = ("NodeIP", "NodeName", "NodePort", "PodIP", "NodeIPWith", "NodeIPsWith", "PodIPWith", "PodIPsWith")
        return {
            **dict.fromkeys(names, unavailable),
            **general_functions(self._clock, self._started),
        }


def _finalizer_patch(metadata: JSON, change: Finalizers) -> list[JSON]:
    """Return the JSON patch of a stage's change of finalizers; empty if nothing changes."""
    before = list(metadata.get("finalizers") or ())
    after = change.applied_to(before)
    if after == before:
        return []
    if not after:
        return [{"op": "remove", "path": "/metadata/finalizers"}]
    return [{"op": "replace" if before else "add", "path": "/metadata/finalizers", "value": after}]
