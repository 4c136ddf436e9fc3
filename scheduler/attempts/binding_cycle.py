"""The binding cycle: wait on permit, pre-bind, bind, post-bind. It runs in the background, for any number of pods.

Source: bindingCycle of pkg/scheduler/schedule_one.go, v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.bind_times import BindTimes
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

if TYPE_CHECKING:
    from kubeloop.scheduler.extenders.extender import HTTPExtender

log = logging.getLogger(__name__)

_BIND_ATTEMPTS = 7  # after the last one, about a minute has passed
_FIRST_BIND_RETRY_SECONDS = 0.5
_POD_DELETED = "(gone)"  # in place of a node name; no node has this name


class BindingCycle:
    """Binds assumed pods, at most `max_in_flight` at a time."""

    def __init__(
        self,
        context: SchedulerContext,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        patches: StatusPatches,
        waiting_pods: WaitingPods,
        extenders: Sequence[HTTPExtender],
        max_in_flight: int,
    ) -> None:
        """max_in_flight: limit of bind requests. Requires a running event loop."""
        self._client = context.client
        self._recorder_for = context.recorder_for
        self._traces = context.traces
        self._group_traces = context.group_traces
        self._metrics = context.metrics
        self._time = asyncio.get_running_loop().time
        self._now_ns = context.clock.time_ns
        self._cache = cache
        self._queue = queue
        self._patches = patches
        self._waiting_pods = waiting_pods
        self._extenders = extenders
        self._reports_expected_node = context.feature_gates.enabled("NominatedNodeNameForExpectation")
        self._max_in_flight = max_in_flight
        self._slots = max_in_flight  # remaining bind requests that may be in flight
        self._bind_times = BindTimes()
        self._slot_freed = asyncio.Event()

    @property
    def free_slots(self) -> int:
        """Return the number of bind requests that may be sent in addition to those in flight."""
        return self._slots

    @property
    def is_binding(self) -> bool:
        """True while bind requests are in flight, or were a moment ago."""
        return self._slots < self._max_in_flight or self._bind_times.has_recent(self._now_ns())

    @property
    def waits_for_busy_server(self) -> bool:
        """True while pods are bound whose bind requests wait for other requests in the API server."""
        return self._bind_times.server_is_busy(self._now_ns())

    async def wait_for_slot(self) -> None:
        """Wait until another bind request may be sent."""
        while self._slots <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()

    async def run(self, attempt: Attempt) -> Status | None:
        """Bind an assumed pod. Returns None if it is bound, else why not.

        Cancellation: the bind request may have been sent; the informer then shows the result.
        """
        try:
            status = await self._run_until_bound(attempt)
        except Exception as error:  # a mistake of ours: it costs this attempt
            log.exception("binding failed", extra={"pod": attempt.pod_info.key})
            status = Status(Code.ERROR, (f"{type(error).__name__}: {error}",))
        if status is None:
            self._bound(attempt)
        return status

    async def _run_until_bound(self, attempt: Attempt) -> Status | None:
        binding, pod = attempt.framework.binding, attempt.pod_info.pod
        pre_bind_has_work = True
        waits_on_permit = self._waiting_pods.get(attempt.pod_info.uid) is not None
        if self._reports_expected_node:
            pre_flight = binding.run_pre_bind_pre_flight(attempt.state, attempt.pod_info, attempt.node)
            if pre_flight.code not in (Code.SUCCESS, Code.SKIP):
                self._waiting_pods.remove(attempt.pod_info.uid)
                return pre_flight
            pre_bind_has_work = pre_flight.code is Code.SUCCESS
            if pre_bind_has_work or waits_on_permit:
                # Binding will take a while: a cluster autoscaler reads from the nominated node where the pod will run.
                self._patches.set(pod, nominated_node_name=attempt.node)
        if waits_on_permit:
            status = await self._wait_on_permit(attempt)
            if status is not None:
                return status
            self._queue.done(attempt.pod_info.uid)  # as at the end of a scheduling cycle without a wait
        if pre_bind_has_work:
            self._traces.pre_bind_started(pod)
            plugins = binding.run_pre_bind(attempt.state, attempt.pod_info, attempt.node)
            # Without the gate, kube-scheduler does not know in advance whether PreBind has work, and cancels none.
            if self._reports_expected_node:
                plugins = self._waiting_pods.run_pre_bind(attempt.pod_info.uid, plugins)
            status = await plugins
            self._traces.pre_bind_finished(pod, status.message if status is not None else None)
            if status is not None:
                return status
        if self._slots <= 0:  # the members of a pod group are bound at once
            await self.wait_for_slot()
        self._slots -= 1
        self._traces.bind_started(pod, attempt.node)
        try:
            await self._patches.settle(attempt.pod_info.uid)
            status = await self._bind_and_confirm(attempt)
        finally:
            self._slots += 1
            self._slot_freed.set()
        self._cache.finish_binding(pod)
        self._traces.bind_finished(pod, status.message if status is not None else None)
        return status

    async def _wait_on_permit(self, attempt: Attempt) -> Status | None:
        pod = attempt.pod_info.pod
        self._traces.permit_started(pod)
        group_traces = self._group_traces if pod.spec.scheduling_group is not None else None
        if group_traces is not None:
            group_traces.permit_started(pod)
        since = self._time()
        status = await self._waiting_pods.decision(attempt.pod_info.uid)
        error = status.message if status is not None else None
        self._traces.permit_finished(pod, error)
        if group_traces is not None:
            group_traces.permit_finished(pod, error)
        self._metrics.permit_wait("Success" if status is None else status.code.api_name, self._time() - since)
        return status

    async def _bind_and_confirm(self, attempt: Attempt) -> Status | None:
        """Bind the pod, and determine the result if it is unknown.

        The response of a binding may be lost, and a lost earlier attempt may cause a conflict. A binding whose response
        was lost is sent again, to the same node, as it may still be in flight: with another node, the first one could
        get a pod that the cache does not count there.
        """
        delay_seconds = _FIRST_BIND_RETRY_SECONDS
        may_be_in_flight = False
        for _ in range(_BIND_ATTEMPTS):
            status = await self._bind(attempt)
            error = status.error if status is not None else None
            may_be_in_flight = may_be_in_flight or (isinstance(error, ServerUnreachable) and error.maybe_applied)
            conflict = isinstance(error, ApiError) and error.code == 409
            if status is None or not (may_be_in_flight or conflict or isinstance(error, ExtenderError)):
                return status
            bound_node = await self._bound_node(attempt.pod_info)
            if bound_node == attempt.node:
                return None
            if bound_node is not None or not may_be_in_flight:
                return status
            await asyncio.sleep(delay_seconds)
            delay_seconds *= 2
        return status

    async def _bind(self, attempt: Attempt) -> Status | None:
        """Bind the pod by the first extender that binds it, or else by the Bind plugins."""
        for extender in self._extenders:
            if not extender.binds or not extender.is_interested(attempt.pod_info.pod):
                continue
            try:
                await extender.bind(attempt.pod_info.pod, attempt.node)
            except ExtenderError as error:
                if extender.ignorable:
                    continue
                return Status(Code.ERROR, (str(error),), "", error)
            return None
        started_ns, in_flight = self._now_ns(), self._max_in_flight - self._slots
        status = await attempt.framework.binding.run_bind(attempt.state, attempt.pod_info, attempt.node)
        self._bind_times.add(started_ns, self._now_ns(), in_flight)
        return status

    async def _bound_node(self, pod: PodInfo) -> str | None:
        """Return the pod's node in the API server; _POD_DELETED if it was deleted; None if not bound or unknown."""
        metadata = pod.pod.metadata
        try:
            current = await self._client.get(PODS, metadata.name, metadata.namespace, lane="binding")
        except NotFound:
            return _POD_DELETED
        except (ApiError, ServerUnreachable) as problem:
            log.warning("cannot see whether a pod was bound", extra={"pod": pod.key, "error": str(problem)})
            return None
        return (current.spec.node_name or None) if current.metadata.uid == metadata.uid else _POD_DELETED

    def _bound(self, attempt: Attempt) -> None:
        """Report that the pod is bound, then run the PostBind plugins."""
        message = f"Successfully assigned {attempt.pod_info.key} to {attempt.node}"
        recorder = self._recorder_for(attempt.framework.profile_name)
        recorder.event(attempt.pod_info.pod, "Normal", "Scheduled", message, action="Binding")
        queued = attempt.queued
        seconds = (self._now_ns() - attempt.start_ns) / 1e9
        self._metrics.attempt("scheduled", attempt.framework.profile_name, seconds)
        self._metrics.pod_scheduled(
            queued.attempts,
            self._time() - queued.initial_attempt_ns / 1e9,
            after_flush=queued.was_flushed_from_unschedulable,
        )
        attempt.framework.binding.run_post_bind(attempt.state, attempt.pod_info, attempt.node)
