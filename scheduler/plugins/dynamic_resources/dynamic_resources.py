"""DynamicResources: allocates devices for the ResourceClaims of pods, and for their extended resources.

A pod without either costs nothing: everything else is imported, and the informers of claims, classes and slices start,
with the first pod that has claims or requests an extended resource. For other pods the plugin passes every node and
scores 0, but it stays in the profile because its PostFilter status is part of the message of a failed attempt, as in
kube-scheduler.
Source: plugins/dynamicresources of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_types import ResourceClaim
from kubeloop.kube.objects.pod_claims import is_deallocation
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import (
    ADD,
    NODE,
    POD,
    UPDATE,
    ActionType,
    ClusterEventWithHint,
    Hint,
    cluster_event,
)
from kubeloop.scheduler.api.extension_points import (
    NodeToStatusReader,
    PostFilterResult,
    PreFilterReturn,
    RowFilterResult,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import default_normalize, failed, on_event, skip, unschedulable
from kubeloop.scheduler.api.status import PluginFailure, Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo, may_be_devices
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import DynamicResourcesArgs
from kubeloop.scheduler.devices.errors import AllocationError, AllocationTimeout

if TYPE_CHECKING:
    from kubeloop.scheduler.plugins.dynamic_resources.claim_binding import ClaimBinding
    from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import DeviceAllocation, PodDevices

STATE = "DynamicResources"
_NATIVE = frozenset(("cpu", "memory", "ephemeral-storage"))


class DynamicResources:
    name = "DynamicResources"

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._extended_resources = handle.feature_gates.enabled("DRAExtendedResource")

    @cached_property
    def _allocation(self) -> DeviceAllocation:
        from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import DeviceAllocation

        return DeviceAllocation(self.name, self._args, self._handle)

    @cached_property
    def _binding(self) -> ClaimBinding:
        from kubeloop.scheduler.plugins.dynamic_resources.claim_binding import ClaimBinding

        return ClaimBinding(self.name, self._args, self._handle)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if pod.spec.resource_claims or (self._extended_resources and requests_extended_resource(pod)):
            return self._allocation.pre_enqueue(pod)
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        state.write(STATE, None)
        if not pod.pod.spec.resource_claims and not (self._extended_resources and _has_extended_resource(pod.requests)):
            return None, skip(self.name)
        devices, status = self._allocation.pre_filter(pod.pod, _reserved_in_cycle(state))
        state.write(STATE, devices)
        return None, skip(self.name) if devices is None and status is None else status

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        devices: PodDevices | None = state.read(STATE)
        if devices is None:
            return None
        snapshot = self._handle.snapshot
        row = snapshot.row_of[node.name]
        rows = snapshot.all_rows[row : row + 1]
        result = self._filter_rows(devices, snapshot, rows, can_pause=state.can_pause)
        state.node_allocatable_claims = devices.node_allocatable
        return None if result.passed[0] else result.explain(0)

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        """Raises PluginFailure, and FilterPaused if the state says so."""
        devices: PodDevices = state.read(STATE)
        try:
            return self._filter_rows(devices, snapshot, rows, can_pause=state.can_pause)
        finally:
            state.node_allocatable_claims = devices.node_allocatable
            state.trace_attributes.update(
                {
                    "kubeloop.devices.search_seconds": devices.search_seconds,
                    "kubeloop.devices.search_steps": devices.search_steps,
                    "kubeloop.devices.searched_nodes": devices.searched_nodes,
                }
            )

    def _filter_rows(self, devices: PodDevices, snapshot: Snapshot, rows: Rows, *, can_pause: bool) -> RowFilterResult:
        try:
            return self._allocation.filter_rows(devices, snapshot, rows, can_pause=can_pause)
        except (AllocationError, AllocationTimeout) as error:
            raise PluginFailure(str(error)) from error

    def explain_pod(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Sequence[str]:
        devices: PodDevices | None = state.get(STATE)
        lines = self._allocation.explain_shared_claims(pod.pod)
        return lines if devices is None else [*lines, *self._allocation.explain(devices, snapshot)]

    async def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> tuple[PostFilterResult | None, Status | None]:
        """Deallocate an unused claim that is not available on some node, or delete the claim of a former attempt.

        Fails with "not found" without a PreFilter.
        """
        try:
            devices: PodDevices | None = state.read(STATE)
        except KeyError:
            return None, failed(self.name, "not found")
        if devices is None:
            return None, unschedulable(self.name, "no new claims to deallocate")
        return None, await self._binding.deallocate_one(devices, pod.pod)

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Return normalized scores; 0 for all nodes, unless a request of the pod has alternatives."""
        devices: PodDevices | None = state.get(STATE)
        if devices is None or not devices.has_alternatives:
            return np.zeros(len(rows), np.int64)
        infos = snapshot.node_infos
        scores = [self._allocation.score(devices, infos[row].name) for row in rows.tolist()]
        return default_normalize(np.array(scores, np.int64))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        devices: PodDevices | None = state.get(STATE)
        return None if devices is None else self._allocation.reserve(devices, node_name, _reserved_in_cycle(state))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        devices: PodDevices | None = state.get(STATE)
        if devices is None:
            return
        if state.pod_group_cycle is not None:  # the pod's reservations are for the binding that may follow
            self._binding.release(devices, pod.pod)
        else:
            self._binding.unreserve(devices, pod.pod, node_name)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return skip(self.name) if state.get(STATE) is None else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations to the claims; wait for binding conditions of the devices.

        Cancellation: completed writes remain; the pod's next attempt sees them.
        """
        devices: PodDevices | None = state.get(STATE)
        return None if devices is None else await self._binding.bind(devices, pod.pod, node_name)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node_actions = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        return (
            on_event(NODE, node_actions),
            ClusterEventWithHint(
                cluster_event("resource.k8s.io/ResourceClaim", ADD | UPDATE),
                self._after_claim_change,
                claim=_claim_needed,
            ),
            on_event(POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._after_pod_change),
            on_event("resource.k8s.io/DeviceClass", ADD | UPDATE),
            on_event("resource.k8s.io/ResourceSlice", ADD | UPDATE),
        )

    def _after_claim_change(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        return self._allocation.after_claim_change(pod, old, new)

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Return QUEUE if the update shows that all claims of `pod` exist."""
        if new is None or new.metadata.uid != pod.metadata.uid:
            return Hint.SKIP
        return Hint.SKIP if self.pre_enqueue(new) is not None else Hint.QUEUE


def _claim_needed(old: ResourceClaim | None, new: ResourceClaim | None) -> str | None:
    """Return the key of the claim; None if the change frees devices, for which any pod may wait."""
    return None if new is None or is_deallocation(old, new) else new.key


def _reserved_in_cycle(state: CycleState) -> set[str] | None:
    """Return the UIDs of the claims that the cycle of the pod's group has reserved; None outside of such a cycle."""
    cycle = state.pod_group_cycle
    if cycle is None:
        return None
    uids: set[str] | None = cycle.get(STATE)
    if uids is None:
        uids = set()
        cycle.write(STATE, uids)
    return uids


def requests_extended_resource(pod: Pod) -> bool:
    """Return True if a DeviceClass may provide a resource that the pod requests."""
    for container in pod.spec.containers + pod.spec.init_containers:
        if _has_extended_resource(container.resources.requests):
            return True
    return False


def _has_extended_resource(requests: Mapping[str, object]) -> bool:
    # The first test is for speed: most pods request nothing else.
    return not requests.keys() <= _NATIVE and any(map(may_be_devices, requests))
