"""SelectorSpread of older schedulers, per node: nodes with few pods of the same services and controller.

Source: v1.20, pkg/scheduler/framework/plugins/selectorspread.
"""

from __future__ import annotations

import numpy as np

from kubeloop.kube.objects.object_fields import zone_key
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.pod_topology_spread.constraints import default_selector

_SELECTOR = "PreScoreSelectorSpread"
_ZONE_WEIGHT = 2.0 / 3.0  # if nodes have zones, spreading over zones counts twice as much as over nodes


class SelectorSpread:
    """Prefers nodes and zones with few pods of the same services and controller.

    Pods with topology spread constraints of their own are left to PodTopologySpread.
    """

    name = "SelectorSpread"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        state.write(_SELECTOR, default_selector(pod.pod, self._handle.listers))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of matching pods on the node; normalize_scores turns fewer pods into a higher score."""
        if pod.pod.spec.topology_spread_constraints:
            return 0
        selector: Selector = state.read(_SELECTOR)
        if selector.empty:
            return 0
        namespace = pod.pod.metadata.namespace
        return sum(
            other.pod.metadata.namespace == namespace
            and other.pod.metadata.deletion_timestamp is None
            and selector.matches(other.pod.metadata.labels)
            for other in node.pods.values()
        )

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        if pod.pod.spec.topology_spread_constraints:
            return scores
        zones = [_zone(snapshot.node_infos[row]) for row in rows.tolist()]
        counts = scores.tolist()
        in_zone: dict[str, int] = {}
        for zone, count in zip(zones, counts, strict=True):
            if zone:
                in_zone[zone] = in_zone.get(zone, 0) + count
        most, most_in_zone = max(counts, default=0), max(in_zone.values(), default=0)
        normalized = []
        for zone, count in zip(zones, counts, strict=True):
            score = float(MAX_NODE_SCORE)
            if most > 0:
                score = MAX_NODE_SCORE * ((most - count) / most)
            if zone:
                zone_score = float(MAX_NODE_SCORE)
                if most_in_zone > 0:
                    zone_score = MAX_NODE_SCORE * ((most_in_zone - in_zone[zone]) / most_in_zone)
                score = score * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * zone_score
            normalized.append(int(score))
        return np.array(normalized, np.int64)


def _zone(info: NodeInfo) -> str:
    return zone_key(info.node.metadata.labels) if info.node is not None else ""
