"""Patches of pod status, sent in the background: the PodScheduled condition and the nominated node.

Only the newest status of a pod is pending, and one patch per pod is in progress: an unreachable API server costs one
entry per pod, and the newest status is written last. The patches use a request lane of their own, so that bindings do
not wait for them, except the binding of the same pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Condition, Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls

log = logging.getLogger(__name__)

WORKERS = 8
STATUS_LANE = "status"  # client lane of lower precedence than bindings


async def patch_status(client: ApiClient, pod: Pod, status: JSON) -> None:
    """Send a strategic merge patch of the pod's status. Raises Conflict if another pod has its name."""
    metadata = pod.metadata
    await client.patch(
        PODS,
        metadata.name,
        {"metadata": {"uid": metadata.uid}, "status": status},
        PatchType.STRATEGIC,
        metadata.namespace,
        subresource="status",
    )


class _Request(msgspec.Struct):
    """Requested changes of a pod's status.

    pod: as it was seen last; what its status has already is not sent. condition: reason and message of
    PodScheduled=False, None to leave it. nominated_node_name: "" to clear it, None to leave it.
    """

    pod: Pod
    condition: tuple[str, str] | None
    nominated_node_name: str | None

    def merge(self, earlier: _Request) -> None:
        """Add what only the earlier request changes."""
        if self.condition is None:
            self.condition = earlier.condition
        if self.nominated_node_name is None:
            self.nominated_node_name = earlier.nominated_node_name

    @property
    def changes_nomination(self) -> bool:
        name = self.nominated_node_name
        return name is not None and name != self.pod.status.nominated_node_name

    @property
    def changes_condition(self) -> bool:
        current = self.current_condition
        return self.condition is not None and (
            current is None or (current.status, current.reason, current.message) != ("False", *self.condition)
        )

    @property
    def current_condition(self) -> Condition | None:
        conditions = self.pod.status.conditions
        return next((condition for condition in conditions if condition.type == "PodScheduled"), None)

    @property
    def has_effect(self) -> bool:
        return self.changes_nomination or self.changes_condition


class StatusPatches:
    """Pending status patches. set() never waits; run() sends them until cancelled."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        calls: BackgroundCalls,
        *,
        enter_span: Callable[[Pod], object] = lambda pod: None,
    ) -> None:
        """`enter_span`: makes the pod's span the current one, for the patch."""
        self._client = client
        self._calls = calls
        self._enter_span = enter_span
        self._clock = clock
        self._pending: dict[str, _Request] = {}  # by UID, oldest first
        self._in_progress: dict[str, asyncio.Event] = {}  # by UID, of the patches in progress; set when finished
        self._superseded: set[str] = set()  # UIDs of pods whose status is not to be patched
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def set(self, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: str | None = None) -> None:
        """Request the condition PodScheduled=False with `reason` and `message`, and the nominated node.

        reason "": no condition. nominated_node_name "": clear it; None: leave it. What `pod` has already is not sent.
        """
        uid = pod.metadata.uid
        if uid in self._superseded:
            return
        request = _Request(pod, (reason, message) if reason else None, nominated_node_name)
        pending = self._pending.get(uid)
        if pending is not None:
            request.merge(pending)
        if uid in self._in_progress or request.has_effect:  # the patch in progress may change what `pod` has
            self._pending[uid] = request
            self._work.set()
        else:
            self._pending.pop(uid, None)
        self._report_pending()

    def sync(self, pod: Pod) -> None:
        """Note the pod's newest status: a pending patch that has no effect any more is dropped."""
        uid = pod.metadata.uid
        request = self._pending.get(uid)
        if request is None:
            return
        request.pod = pod
        if uid not in self._in_progress and not request.has_effect:
            del self._pending[uid]
            self._report_pending()

    @contextmanager
    def superseded(self, uid: str) -> Iterator[None]:
        """Ignore requests for a pod meanwhile, because a call in progress makes them obsolete."""
        self._superseded.add(uid)
        try:
            yield
        finally:
            self._superseded.discard(uid)

    def _report_pending(self) -> None:
        self._calls.pending("pod_status_patch", len(self._pending))

    def _patch(self, request: _Request) -> JSON:
        """Return the patch of the status; {} if the pod has it all."""
        status: JSON = {}
        if request.condition is not None and request.changes_condition:
            status["conditions"] = [self._condition(request.pod, *request.condition, request.current_condition)]
        if request.changes_nomination:
            status["nominatedNodeName"] = request.nominated_node_name or None
        return status

    def _condition(self, pod: Pod, reason: str, message: str, current: Condition | None) -> JSON:
        since = self._clock.now()
        if current is not None and current.status == "False" and current.last_transition_time is not None:
            since = current.last_transition_time
        condition: JSON = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(since),
            "reason": reason,
            "message": message,
        }
        if pod.metadata.generation:  # 0: a server before v1.33, which has neither field
            condition["observedGeneration"] = pod.metadata.generation
        return condition

    async def run(self) -> None:
        """Send patches until cancelled.

        Cancellation: pending patches are dropped; the next attempt of the pod requests them again.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._send_forever(), name=f"pod-status/{number}")

    async def settle(self, uid: str) -> None:
        """Drop the pending patch of a pod that is about to be bound, and wait for one in progress.

        Written later, it would say that a bound pod cannot be scheduled. Cancellation: safe.
        """
        if self._pending.pop(uid, None) is not None:
            self._report_pending()
        finished = self._in_progress.get(uid)
        if finished is not None:
            await finished.wait()

    async def _send_forever(self) -> None:
        while True:
            uid = next((uid for uid in self._pending if uid not in self._in_progress), None)
            if uid is None:
                self._work.clear()
                await self._work.wait()
                continue
            request = self._pending.pop(uid)
            self._report_pending()
            finished = self._in_progress[uid] = asyncio.Event()
            try:
                await self._send(request)
            finally:
                del self._in_progress[uid]
                finished.set()
                if uid in self._pending:
                    self._work.set()

    async def _send(self, request: _Request) -> None:
        pod = request.pod
        self._enter_span(pod)
        try:
            with self._calls.sending("pod_status_patch"):
                if status := self._patch(request):
                    await patch_status(self._client, pod, status)
        except NotFound:
            log.debug("a pod was deleted before its status was written", extra={"pod": pod.key})
        except (ApiError, ServerUnreachable) as error:
            log.warning("cannot write a pod's status", extra={"pod": pod.key, "error": str(error)})
