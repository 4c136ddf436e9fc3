"""The scheduling framework's vocabulary: status, events, and what a plugin may implement.

A plugin is a class with a `name` and any of the extension points below; the runtime asks `isinstance` against these
protocols. Filter and Score exist in two forms: per node, which a user writes first, and over rows of the columnar
snapshot, which costs a few array operations for all nodes at once. A plugin with the array form is run by it; its
per-node form then serves dry runs (preemption, nominated pods) and the tests that compare both.

Axes: N nodes are rows 0..N-1 of the snapshot; `rows` is an int array [K] of some of them, in ascending order.
Source: k8s.io/kube-scheduler/framework of v1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ClusterEventWithHint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

MAX_NODE_SCORE = 100
MIN_NODE_SCORE = 0


class RowFilterResult(msgspec.Struct, frozen=True):
    """Verdicts of one filter over `rows` [K].

    passed: bool [K]. explain(i) gives the Status of the rejected i-th row; it is called for few rows or when somebody
    asks, so it may be slow.
    """

    passed: Mask
    explain: Callable[[int], Status]


class RowStatuses(msgspec.Struct, frozen=True):
    """Why K rows were rejected: statuses[codes[i]] is the reason of the i-th. codes: int [K]."""

    codes: npt.NDArray[np.intp]
    statuses: Sequence[Status]


class PreFilterResult(msgspec.Struct, frozen=True):
    """node_names None: all nodes; else only these (they need not exist)."""

    node_names: frozenset[str] | None = None


class PostFilterResult(msgspec.Struct, frozen=True):
    """victims: how many pods are evicted to make room on the nominated node."""

    nominated_node_name: str = ""
    victims: int = 0


PostFilterReturn = tuple[PostFilterResult | None, Status | None]


class Plugin(Protocol):
    name: str


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: Pod) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Pods with smaller keys are scheduled first; the key may not change while the pod waits."""
        ...


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """The events that may make a pod schedulable which this plugin rejected."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        """Code.SKIP: this plugin's Filter need not run for this pod."""
        ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Keep the plugin's state right while a dry run moves pods on and off a node."""

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
        """Why filter_rows rejected all of `rows`; asked for instead of explain(i) of its verdicts where all reasons
        are wanted, as there may be thousands."""
        ...


class SumsPodsPlugin(Plugin, Protocol):
    """A filter with `sums_pods = True` that rejects a node exactly if it has not the room the pod needs."""

    def room_needed(self, state: CycleState, pod: PodInfo) -> Mapping[str, int]:
        """Resources and their amounts, besides one more pod; all above 0."""
        ...


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        """What can be done for a pod that fits nowhere. May be `async def`: no other pod is scheduled meanwhile."""
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        """`rows` are the feasible nodes. Code.SKIP: this plugin's Score need not run for this pod."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


@runtime_checkable
class ScoreRowsPlugin(Plugin, Protocol):
    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Raw scores int64 [K], before normalisation."""
        ...


class ScoreTable(msgspec.Struct, frozen=True):
    """Normalised scores of K rows of which few are different: scores int64 [T], places int [K] in it.

    Scores that no row has are within 0..100, too.
    """

    scores: Scores
    places: npt.NDArray[np.integer[Any]]


@runtime_checkable
class ScoreTablePlugin(Plugin, Protocol):
    def score_table(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> ScoreTable | None:
        """What score_rows and normalize_scores would come to together, cheaper. None: ask those."""
        ...


@runtime_checkable
class NormalizeScorePlugin(Plugin, Protocol):
    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        """Scores within 0..100, int64 [K], not yet weighted."""
        ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, float]:
        """Code.WAIT with seconds: the pod waits, at most so long, for `Framework.waiting_pod(uid)` to be allowed."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Code.SKIP: there is nothing to do before binding this pod."""
        ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Code.SKIP: this pod is another bind plugin's."""
        ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class NodeToStatusReader(Protocol):
    """Why each node was rejected in this cycle. Nodes that were not looked at have the status `absent`."""

    def get(self, node_name: str) -> Status | None: ...

    def nodes_with_code(self, code: Code) -> Iterable[str]: ...
