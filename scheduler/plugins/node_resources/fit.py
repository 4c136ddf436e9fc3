"""NodeResourcesFit: filters nodes without room for the pod's requests; scores them by resource utilization.

Axes: N nodes, K rows. Amounts are int64 (float32 would round memory above 16 MiB). Source: plugins/noderesources/fit.go
of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.objects.device_types import DeviceClass
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.events import ADD, NODE, POD, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import (
    PodGroupAssignments,
    PodGroupInfo,
    PreFilterReturn,
    RowFilterResult,
    RowStatuses,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import is_bound_or_nominated, on_event, select_rows
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import (
    DEVICE_CLASS_PREFIX,
    NodeInfo,
    PodInfo,
    is_extended_resource,
    is_scalar_resource,
    may_be_devices,
    node_allocatable,
)
from kubeloop.scheduler.cache.pod_requests import RequestRules, is_pending_request, pod_requests, request_rules
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NodeResourcesFitArgs
from kubeloop.scheduler.plugins.node_resources.scoring import (
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ResourceAllocations,
    Scorer,
    scored_devices,
)

_REQUEST = "PreFilterNodeResourcesFit"
_SCORED = "PreScoreNodeResourcesFit"
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_TOO_MANY_PODS = "Too many pods"
_CONTAINERS_ONLY = RequestRules(pod_level=False)


class NodeResourcesFit:
    name = "NodeResourcesFit"
    reads_only_pod_sums = True

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        self._rules = msgspec.structs.replace(request_rules(handle.feature_gates), node_allocatable=False)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._handle = handle
        self._extended_resources = handle.feature_gates.enabled("DRAExtendedResource")
        count_devices = scored_devices(args.scoring_strategy.resources, handle)
        # Changes of DeviceClasses give pods new classes, but those of devices do not.
        self.row_local = count_devices is None
        self._allocations = ResourceAllocations(
            args.scoring_strategy.resources, use_requested=False, count_devices=count_devices
        )
        self._scorer = _scorer(args)
        self._placement_scorer = MostAllocated(args.scoring_strategy.resources)
        # As in kube-scheduler, devices do not count in the scores of placements.
        self._placement_allocations = ResourceAllocations(args.scoring_strategy.resources, use_requested=False)
        self._statuses: dict[tuple[str, ...], dict[bool, Status]] = {}

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        state.write(_REQUEST, self._requests_to_fit(pod))
        return None, None

    def _drop_ignored(self, requests: dict[str, int]) -> dict[str, int]:
        """Return the requests that Filter checks: those above 0, without ignored and non-schedulable resources."""
        return {
            name: amount
            for name, amount in requests.items()
            if amount and (name in _NATIVE or (is_scalar_resource(name) and not self._is_ignored(name)))
        }

    def _is_ignored(self, name: str) -> bool:
        if not is_extended_resource(name):
            return False
        return name in self._ignored or name.split("/", 1)[0] in self._ignored_groups

    def _is_provided_by_devices(self, name: str) -> bool:
        """Return True for an extended resource that DynamicResources allocates where a node has none of it."""
        return (
            self._extended_resources
            and may_be_devices(name)
            and self._handle.cluster_devices().extended_resources.get(name) is not None
        )

    def _request(self, state: CycleState, pod: PodInfo) -> dict[str, int]:
        request: dict[str, int] | None = state.get(_REQUEST)
        return self._requests_to_fit(pod) if request is None else request

    def _requests_to_fit(self, pod: PodInfo) -> dict[str, int]:
        # What the status adds counts for bound pods only; a pending pod requests what its spec requests.
        return self._drop_ignored(
            pod.requests if is_pending_request(pod.pod) else pod_requests(pod.pod, rules=self._rules)
        )

    def resources_needed(self, state: CycleState, pod: PodInfo) -> dict[str, int]:
        return self._request(state, pod)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        reasons = [_TOO_MANY_PODS] if len(node.pods) + 1 > node.allocatable.get("pods", 0) else []
        resolvable = True
        for name, amount in self._request(state, pod).items():
            allocatable = node.allocatable.get(name, 0)
            if amount > allocatable - node.requested.get(name, 0):
                if allocatable <= 0 and self._is_provided_by_devices(name):
                    continue
                reasons.append(f"Insufficient {name}")
                resolvable = resolvable and amount <= allocatable  # preemption cannot free more than the node has
        return self._status(tuple(reasons), resolvable) if reasons else None

    def _status(self, reasons: tuple[str, ...], resolvable: bool) -> Status:
        """Return a shared Status: the nodes of a full cluster have only a few different ones."""
        by_resolvable = self._statuses.setdefault(reasons, {})
        if resolvable not in by_resolvable:
            code = Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            by_resolvable[resolvable] = Status(code, reasons, self.name)
        return by_resolvable[resolvable]

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        columns = snapshot.columns
        request = self._request(state, pod)
        pods_allowed = select_rows(columns.allocatable[columns.resource("pods")], rows, snapshot)  # [K]
        passed = select_rows(columns.pod_count, rows, snapshot) < pods_allowed
        for name, amount in request.items():
            resource = columns.resource(name)
            # negative on an overcommitted node
            free = select_rows(columns.allocatable[resource], rows, snapshot) - select_rows(
                columns.requested[resource], rows, snapshot
            )
            if self._is_provided_by_devices(name):
                passed &= (free >= amount) | (select_rows(columns.allocatable[resource], rows, snapshot) <= 0)
            else:
                passed &= free >= amount

        def explain(index: int) -> Status:
            row = rows[index]
            full = columns.pod_count[row] >= columns.allocatable[columns.resource("pods"), row]
            reasons = [_TOO_MANY_PODS] if full else []
            resolvable = True
            for name, amount in request.items():
                allocatable = columns.allocatable[columns.resource(name), row]
                if amount > allocatable - columns.requested[columns.resource(name), row]:
                    if allocatable <= 0 and self._is_provided_by_devices(name):
                        continue
                    reasons.append(f"Insufficient {name}")
                    resolvable = resolvable and bool(amount <= allocatable)
            return self._status(tuple(reasons), resolvable)

        return RowFilterResult(passed, explain)

    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        return self.explain_with(state, pod, snapshot, rows, 0, {})

    def explain_with(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        more_pods: Scores | int,
        more_requests: Mapping[str, Scores],
    ) -> RowStatuses:
        """Return the statuses of `rows` with so many more pods and requests [K]; without reasons where the pod fits."""
        columns = snapshot.columns
        full = columns.pod_count[rows] + more_pods >= columns.allocatable[columns.resource("pods"), rows]
        insufficient = [(_TOO_MANY_PODS, full)]
        unresolvable = np.zeros(len(rows), np.bool_)
        for name, amount in self._request(state, pod).items():
            resource = columns.resource(name)  # may add a row, which replaces the arrays of `columns`
            allocatable = columns.allocatable[resource, rows]
            free = allocatable - columns.requested[resource, rows] - more_requests.get(name, 0)
            lacks, never_fits = amount > free, amount > allocatable
            if self._is_provided_by_devices(name):
                has_plugin = allocatable > 0
                lacks, never_fits = lacks & has_plugin, never_fits & has_plugin
            insufficient.append((f"Insufficient {name}", lacks))
            unresolvable |= never_fits
        # One bit per reason and one for unresolvable: few of the combinations occur.
        bits = unresolvable.astype(np.int64)
        for number, (_, is_insufficient) in enumerate(insufficient, start=1):
            bits |= is_insufficient.astype(np.int64) << number
        kinds, codes = np.unique(bits, return_inverse=True)
        return RowStatuses(
            codes,
            [
                self._status(
                    tuple(reason for number, (reason, _) in enumerate(insufficient, start=1) if kind >> number & 1),
                    resolvable=not kind & 1,
                )
                for kind in kinds.tolist()
            ],
        )

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        state.write(_SCORED, _scored_requests(pod))
        return None

    def _scored(self, state: CycleState, pod: PodInfo) -> dict[str, int]:
        scored: dict[str, int] | None = state.get(_SCORED)
        return _scored_requests(pod) if scored is None else scored

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return self._scorer.score_node(self._allocations.of_node(self._scored(state, pod), node))

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        pod_request, requested, allocatable = self._allocations.of_rows(self._scored(state, pod), snapshot, rows)
        return self._scorer.score_rows(requested + pod_request, allocatable)

    def score_placement(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot, proposed: PodGroupAssignments
    ) -> int:
        """Score the sums over the placement's nodes: one that the group fills up further scores higher."""
        requests: Counter[str] = Counter()
        for pod, _ in proposed.assignments:
            requests.update(_scored_requests(pod))
        of_group, requested, allocatable = self._placement_allocations.of_rows(
            requests, snapshot, proposed.placement.rows
        )
        requested[allocatable == 0] = 0  # requests of pods on nodes that have lost the resource
        used, capacity = requested.sum(axis=1), allocatable.sum(axis=1)
        amounts = zip(used.tolist(), of_group[:, 0].tolist(), capacity.tolist(), strict=True)
        return self._placement_scorer.score_node([(before, before + more, total) for before, more, total in amounts])

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN, self._after_pod_event),
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE, self._after_node_change),
            *(
                (on_event("resource.k8s.io/DeviceClass", ADD | UPDATE, self._after_device_class_event),)
                if self._extended_resources
                else ()
            ),
        )

    def _after_pod_event(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        if new is None:
            return Hint.QUEUE if old is not None and is_bound_or_nominated(old) else Hint.SKIP
        if old is None:
            return Hint.SKIP
        if new.metadata.uid == pod.metadata.uid:
            return Hint.QUEUE  # its requests were scaled down
        if not new.spec.node_name:
            return Hint.SKIP
        # as in kube-scheduler, pod-level requests count here even if their gate is off
        rules = RequestRules(pod_level_status=self._rules.pod_level_status)
        before, after = (pod_requests(version, use_status=True, rules=rules) for version in (old, new))
        pod_request = self._drop_ignored(pod_requests(pod))
        return Hint.QUEUE if any(before.get(name, 0) > after.get(name, 0) for name in pod_request) else Hint.SKIP

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        pod_request = self._drop_ignored(pod_requests(pod, rules=self._rules))
        after = node_allocatable(new)
        devices = [name for name in pod_request if after.get(name, 0) <= 0 and self._is_provided_by_devices(name)]
        if after.get("pods", 0) < 1 or any(
            amount > after.get(name, 0) and name not in devices for name, amount in pod_request.items()
        ):
            return Hint.SKIP
        if old is None or devices:
            return Hint.QUEUE
        before = node_allocatable(old)
        grown = any(after.get(name, 0) > before.get(name, 0) for name in (*pod_request, "pods"))
        return Hint.QUEUE if grown else Hint.SKIP

    def _after_device_class_event(self, pod: Pod, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
        """Return QUEUE if the class now provides an extended resource that the pod requests."""
        if new is None:
            return Hint.QUEUE
        offered = new.spec.extended_resource_name or ""
        requested = pod_requests(pod)
        if old is None:
            if f"{DEVICE_CLASS_PREFIX}{new.metadata.name}" in requested:
                return Hint.QUEUE
        elif (old.spec.extended_resource_name or "") == offered:
            return Hint.SKIP
        return Hint.QUEUE if new.spec.extended_resource_name is not None and offered in requested else Hint.SKIP


def _scored_requests(pod: PodInfo) -> dict[str, int]:
    """Return the requests that Score uses. As in v1.36, pod-level resources do not count for the incoming pod.

    They do count for pods already on the node.
    """
    if pod.pod.spec.resources is None and is_pending_request(pod.pod):
        return pod.requests | {"cpu": pod.non_zero_milli_cpu, "memory": pod.non_zero_memory}
    return pod_requests(pod.pod, non_zero=True, rules=_CONTAINERS_ONLY)


def _scorer(args: NodeResourcesFitArgs) -> Scorer:
    strategy = args.scoring_strategy
    resources = strategy.resources
    if strategy.type == "LeastAllocated":
        return LeastAllocated(resources)
    if strategy.type == "MostAllocated":
        return MostAllocated(resources)
    if strategy.type == "RequestedToCapacityRatio" and strategy.requested_to_capacity_ratio is not None:
        return RequestedToCapacityRatio(resources, strategy.requested_to_capacity_ratio.shape)
    raise UserError(
        f"scoring strategy {strategy.type} is not supported",
        hint="use LeastAllocated, MostAllocated or RequestedToCapacityRatio (with requestedToCapacityRatio.shape)",
    )
