"""TopologyPlacementGenerator: one placement per domain of the pod group's topology key, such as each rack.

Source: plugins/topologyaware of v1.36. Axes: K rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import Placement, PodGroupInfo
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.columns import ABSENT
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs


class TopologyPlacementGenerator:
    name = "TopologyPlacementGenerator"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._pod_groups = handle.listers.pod_groups

    def generate_placements(
        self, state: PodGroupCycleState, group: PodGroupInfo, snapshot: Snapshot, parent: Placement
    ) -> tuple[Sequence[Placement], Status | None]:
        """Return the nodes of `parent` by domain, in the order of their first nodes; all of them without a topology
        constraint, and only those of the domain that the group is in already if members have a node."""
        pod_group = self._pod_groups.get(group.key)
        if pod_group is None:
            return (), failed(self.name, f'podgroup.scheduling.k8s.io "{group.name}" not found')
        constraints = pod_group.spec.scheduling_constraints
        if constraints is None or not constraints.topology:
            return (parent,), None
        column = snapshot.columns.labels(constraints.topology[0].key)  # the API allows one
        domain = ABSENT
        for pod in state.pods.scheduled_pods():
            row = snapshot.row_of.get(pod.spec.node_name)
            if row is None:
                problem = f'getting node for pod {pod.key}: nodeinfo not found for node name "{pod.spec.node_name}"'
                return (), _unknown_domain(problem)
            code = int(column.codes[row])
            if code == ABSENT:
                return (), _unknown_domain(f"no topology domain found for pod {pod.key}")
            if domain not in (ABSENT, code):
                domains = f"{column.values[domain]}, {column.values[code]}"
                return (), _unknown_domain(f"more than 1 domain found for pod group: {domains}")
            domain = code
        codes = column.codes[parent.rows]  # [K]
        candidates = dict.fromkeys(codes.tolist()) if domain == ABSENT else {domain: None}
        placements = [
            Placement(column.values[code], parent.rows[np.flatnonzero(codes == code)])
            for code in candidates
            if code != ABSENT
        ]
        return [placement for placement in placements if len(placement.rows)], None


def _unknown_domain(problem: str) -> Status:
    name = TopologyPlacementGenerator.name
    return failed(name, f"cannot determine domain for already scheduled pods: {problem}")
