"""Extension points: the Protocols that a scheduler plugin implements, and the types that its methods return.

A plugin is a class with a `name` and any of the extension points below; the framework finds them with `isinstance`.
Filter and Score exist in two forms: per node, and over rows of the columnar snapshot, which takes a few array
operations for all nodes at once. The framework prefers the array form; the per-node form is then used by dry runs
(preemption, nominated pods) and by the tests that compare both.

Axes: N nodes are rows 0..N-1 of the snapshot; `rows` is an int array [K] of some of them, in ascending order.
Source: k8s.io/kube-scheduler/framework of v1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.events import ClusterEventWithHint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

MAX_NODE_SCORE = 100
MIN_NODE_SCORE = 0


class RowFilterResult(msgspec.Struct, frozen=True):
    """Result of one filter for `rows` [K].

    passed: bool [K]. explain(i) returns the Status of the rejected i-th row; it may be slow, as it is called for few
    rows, or when all reasons are requested (events, traces, `kubeloop explain`).
    """

    passed: Mask
    explain: Callable[[int], Status]


class FilterPaused(BaseException):
    """Raised by a filter that needs longer than the event loop may be blocked, if `CycleState.can_pause`.

    The scheduling cycle awaits `work`; then all filters run again. Not an Exception, so that it is not reported as an
    error of the plugin.
    """

    def __init__(self, work: Awaitable[None]) -> None:
        super().__init__()
        self.work = work


class RowStatuses(msgspec.Struct, frozen=True):
    """Statuses of K rejected rows: statuses[codes[i]] is that of the i-th row. codes: int [K]."""

    codes: npt.NDArray[np.integer[Any]]
    statuses: Sequence[Status]


class PreFilterResult(msgspec.Struct, frozen=True):
    """node_names: the only nodes that can be feasible (they need not exist); None: all nodes."""

    node_names: frozenset[str] | None = None


PreFilterReturn = tuple[PreFilterResult | None, Status | None]


class PostFilterResult(msgspec.Struct, frozen=True):
    """victims: the number of pods that are evicted to make room on the nominated node."""

    nominated_node_name: str = ""
    victims: int = 0


PostFilterReturn = tuple[PostFilterResult | None, Status | None]


class PodGroupInfo(msgspec.Struct, frozen=True):
    """A pod group that is being scheduled. pods: its members that are to be scheduled, in order."""

    namespace: str
    name: str
    pods: tuple[PodInfo, ...] = ()

    @property
    def key(self) -> str:
        """Return "namespace/name"."""
        return f"{self.namespace}/{self.name}"


class Placement(msgspec.Struct, frozen=True):
    """A set of nodes for the members of a pod group. name: for logs and traces. rows: of the snapshot, ascending."""

    name: str
    rows: Rows


class PodGroupAssignments(msgspec.Struct, frozen=True):
    """The nodes found for members of a group within a placement: (pod, node name) of each member that has one."""

    placement: Placement
    assignments: tuple[tuple[PodInfo, str], ...]


class Plugin(Protocol):
    name: str


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: Pod) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Return the sort key; pods with smaller keys are scheduled first. It must not change in the queue."""
        ...


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events that may make a pod schedulable that this plugin rejected."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        """Return (result, status). Code.SKIP: this plugin's Filter is not called for this pod."""
        ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Update the plugin's cycle state when a dry run adds pods to a node or removes them."""

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None: ...

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class FilterRowsPlugin(Plugin, Protocol):
    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult: ...


@runtime_checkable
class ExplainRowsPlugin(Plugin, Protocol):
    def explain_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowStatuses:
        """Return the statuses of `rows`, all of which filter_rows rejected.

        Called instead of explain(i) of each row where all reasons are needed, as there may be thousands.
        """
        ...


@runtime_checkable
class ExplainPodPlugin(Plugin, Protocol):
    def explain_pod(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Sequence[str]:
        """Return details of the rejection of the pod for `kubeloop explain`, one per line."""
        ...


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        """Try to make an unschedulable pod schedulable. May be `async def`: no other pod is scheduled meanwhile."""
        ...


GroupScheduling = Callable[[], Awaitable[Status | None]]
"""Tries to schedule a whole pod group on the snapshot, which is unchanged afterwards. None: that is possible."""


@runtime_checkable
class PodGroupPostFilterPlugin(Plugin, Protocol):
    async def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[Pod], schedule: GroupScheduling
    ) -> tuple[int, Status | None]:
        """Preempt for a group that cannot be scheduled. pods: its unscheduled pods.

        Returns (number of victims, status); None: the victims are being evicted. Only DefaultPreemption is called. The
        plugin restores the snapshot, which it may change for calls of `schedule`.
        """
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        """Prepare scoring of the feasible nodes `rows`. Code.SKIP: this plugin's Score is not called for this pod."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


@runtime_checkable
class ScoreRowsPlugin(Plugin, Protocol):
    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Return raw scores int64 [K], before normalization."""
        ...


class ScoreTable(msgspec.Struct, frozen=True):
    """Normalized scores of K rows with few distinct values: scores int64 [T]; indexes int [K] into it.

    Scores that no row has must be within 0..100, too.
    """

    scores: Scores
    indexes: npt.NDArray[np.integer[Any]]


@runtime_checkable
class ScoreTablePlugin(Plugin, Protocol):
    def score_table(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoreTable | None:
        """Return the normalized scores of `rows` directly. None: score_rows and normalize_scores are called."""
        ...


@runtime_checkable
class NormalizeScorePlugin(Plugin, Protocol):
    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        """Return scores within 0..100, int64 [K], not yet weighted."""
        ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, float]:
        """Return (status, timeout in seconds). Code.WAIT: the pod waits until `Handle.waiting_pod(uid)` is allowed."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return Code.SKIP if pre_bind has nothing to do for this pod."""
        ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod. Code.SKIP: another bind plugin handles this pod."""
        ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PlacementGeneratePlugin(Plugin, Protocol):
    def generate_placements(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot, parent: Placement
    ) -> tuple[Sequence[Placement], Status | None]:
        """Return the placements to try for the group, all within `parent`, and a status.

        Requires the feature gate TopologyAwareWorkloadScheduling, as does PlacementScorePlugin. At most one plugin of a
        profile generates placements.
        """
        ...


@runtime_checkable
class PlacementScorePlugin(Plugin, Protocol):
    def score_placement(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot, proposed: PodGroupAssignments
    ) -> int:
        """Return the score of a placement in which the group can be scheduled."""
        ...


@runtime_checkable
class NormalizePlacementScorePlugin(Plugin, Protocol):
    def normalize_placement_scores(self, state: PodGroupCycleState, group: PodGroupInfo, scores: Scores) -> Scores:
        """Return scores within 0..100, one per placement, not yet weighted."""
        ...


class NodeToStatusReader(Protocol):
    """The status of each rejected node of this cycle. Nodes that were not filtered have the status `absent`."""

    def get(self, node_name: str) -> Status | None: ...

    def nodes_with_code(self, code: Code) -> Iterable[str]: ...

    def rows_with_code(self, code: Code) -> Rows:
        """Return the rows of the snapshot with this code."""
        ...
