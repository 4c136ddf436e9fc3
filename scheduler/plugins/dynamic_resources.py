"""DynamicResources: rejects pods that need resource claims.

kubeloop allocates no devices: a pod with claims stays pending, and its event gives the reason. For pods without claims
the plugin passes every node and scores 0, but it stays in the profile because its PostFilter status is part of the
message of a failed attempt, as in kube-scheduler.
Source: plugins/dynamicresources of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, POD, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import NodeToStatusReader, PostFilterResult, PreFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, on_event, skip, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.config.plugin_args import DynamicResourcesArgs

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_STATE = "DynamicResources"
_UNSUPPORTED = "resource claims are not supported: kubeloop allocates no devices"


class DynamicResources:
    name = "DynamicResources"

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return None  # the pod is rejected in PreFilter instead, whose reason shows in its FailedScheduling event

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        state.write(_STATE, None)
        if needs_claims(pod.pod):
            return None, unresolvable(self.name, _UNSUPPORTED)
        return None, skip(self.name)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> tuple[PostFilterResult | None, Status | None]:
        """Reject: there are no claims to deallocate. Fails with "not found" if PreFilter did not run for this pod."""
        try:
            state.read(_STATE)
        except KeyError:
            return None, failed(self.name, "not found")
        return None, unschedulable(self.name, "no new claims to deallocate")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 0

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        return np.zeros(len(rows), np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return skip(self.name)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node_actions = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        return (
            on_event(NODE, node_actions),
            on_event("resource.k8s.io/ResourceClaim", ADD | UPDATE, self._after_claim_change),
            on_event(POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._after_pod_change),
            on_event("resource.k8s.io/DeviceClass", ADD | UPDATE),
            on_event("resource.k8s.io/ResourceSlice", ADD | UPDATE),
        )

    def _after_claim_change(self, pod: Pod, old: Any, new: Any) -> Hint:
        return Hint.SKIP

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Return QUEUE if the update shows that `pod` needs no claim."""
        if new is None or new.metadata.uid != pod.metadata.uid or needs_claims(new):
            return Hint.SKIP
        return Hint.QUEUE


def needs_claims(pod: Pod) -> bool:
    """Return True unless the pod's status marks every claim in its spec as not needed."""
    not_needed = {
        claim.get("name") for claim in pod.status.resource_claim_statuses if claim.get("resourceClaimName") is None
    }
    return any(claim.name not in not_needed for claim in pod.spec.resource_claims)
