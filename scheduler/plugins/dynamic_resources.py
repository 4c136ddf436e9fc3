"""DynamicResources: pods with resource claims.

kubeloop schedules no devices: a pod with claims waits, and its event says why. Without claims the plugin takes part
in the profile as in kube-scheduler, where it decides nothing and scores nothing, but is heard in the message of a
failed attempt.
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
        return None  # to hold a pod back without a word would leave its owner wondering

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
        """Would free claims that keep the pod from a node. That there are none is said only if PreFilter got here."""
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
        of_nodes = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        return (
            on_event(NODE, of_nodes),
            on_event("resource.k8s.io/ResourceClaim", ADD | UPDATE, self._after_claim_change),
            on_event(POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._after_pod_change),
            on_event("resource.k8s.io/DeviceClass", ADD | UPDATE),
            on_event("resource.k8s.io/ResourceSlice", ADD | UPDATE),
        )

    def _after_claim_change(self, pod: Pod, old: Any, new: Any) -> Hint:
        return Hint.SKIP

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Helps this pod if it turns out to need no claim."""
        if new is None or new.metadata.uid != pod.metadata.uid or needs_claims(new):
            return Hint.SKIP
        return Hint.QUEUE


def needs_claims(pod: Pod) -> bool:
    """Not if its status says of each claim in its spec that none is needed."""
    without = {each.get("name") for each in pod.status.resource_claim_statuses if each.get("resourceClaimName") is None}
    return any(claim.name not in without for claim in pod.spec.resource_claims)
