"""The API for scheduler plugins: everything that the author of a plugin imports.

`extension_points` are the Protocols that a plugin implements, `handle` is the scheduler's side, `results` has helpers
for what plugins return. NodeInfo, PodInfo and Snapshot are the data that plugins read.
"""

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import (
    NODE,
    POD,
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    HintFunction,
    cluster_event,
)
from kubeloop.scheduler.api.extension_points import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    BindPlugin,
    EnqueueExtensions,
    FilterPlugin,
    FilterRowsPlugin,
    NodeToStatusReader,
    NormalizeScorePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterReturn,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    RowFilterResult,
    ScorePlugin,
    ScoreRowsPlugin,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.results import default_normalize, failed, skip, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

__all__ = [
    "MAX_NODE_SCORE",
    "MIN_NODE_SCORE",
    "NODE",
    "POD",
    "ActionType",
    "BindPlugin",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Code",
    "CycleState",
    "EnqueueExtensions",
    "FilterPlugin",
    "FilterRowsPlugin",
    "Handle",
    "Hint",
    "HintFunction",
    "Mask",
    "NodeInfo",
    "NodeToStatusReader",
    "NormalizeScorePlugin",
    "PermitPlugin",
    "Plugin",
    "PodInfo",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PostFilterReturn",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterExtensions",
    "PreFilterPlugin",
    "PreFilterResult",
    "PreScorePlugin",
    "QueueSortPlugin",
    "QueuedPodInfo",
    "ReservePlugin",
    "RowFilterResult",
    "Rows",
    "ScorePlugin",
    "ScoreRowsPlugin",
    "Scores",
    "Snapshot",
    "Status",
    "cluster_event",
    "default_normalize",
    "failed",
    "skip",
    "unresolvable",
    "unschedulable",
]
