"""Spread scores read from a table are those of the rule, node by node."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.interface import CycleState
from kubeloop.scheduler.plugins import pod_topology_spread


@pytest.mark.parametrize("seed", range(30))
def test_tabulated_scores_are_those_of_each_node(
    seed: int, cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    rng = random.Random(seed)
    zones = ["a", "b", "c"][: rng.randrange(1, 4)]
    nodes = []
    for number in range(12):
        zone = rng.choice([*zones, ""] if seed % 2 else zones)
        nodes.append(node(f"n{number}", labels={"topology.kubernetes.io/zone": zone} if zone else {}))
    constraints = [
        {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
        for skew, key, selector in (
            (rng.randrange(1, 5), "kubernetes.io/hostname", {"matchLabels": {"app": "x"}}),
            (rng.randrange(1, 5), "topology.kubernetes.io/zone", {"matchLabels": {"app": "x"}}),
        )
    ]
    rng.shuffle(constraints)
    there = [pod(f"p{number}", f"n{rng.randrange(12)}", labels={"app": "x"}) for number in range(rng.randrange(40))]
    here = cluster(nodes, there)
    plugin = here.framework.plugins["PodTopologySpread"]
    state = CycleState()
    pending = PodInfo(pod("pending", labels={"app": "x"}, topologySpreadConstraints=constraints))
    snapshot = here.snapshot
    assert plugin.pre_score(state, pending, snapshot, snapshot.all_rows) is None
    soft = state.read(pod_topology_spread._SOFT)
    tabulated = pod_topology_spread._tabulated(*soft.constraints)
    assert tabulated is not None
    soft.ignored = None
    assert tabulated.tolist() == [plugin.score(state, pending, each) for each in snapshot.node_infos]
    assert np.array_equal(tabulated, plugin.score_rows(state, pending, snapshot, snapshot.all_rows.copy()))
