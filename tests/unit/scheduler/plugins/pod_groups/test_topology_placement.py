"""TopologyPlacementGenerator: the placements of a group with and without a topology constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import Placement, PodGroupInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.pod_groups.topology_placement import TopologyPlacementGenerator
from support.scheduling.plugin_cluster import PluginCluster, make_member, make_node, make_pod_group

RACKS = {"a": "r2", "b": "r1", "c": "r2", "d": "", "e": "r3"}


def placements(*scheduled_on: str, key: str = "rack", parent: str = "abcde") -> tuple[dict[str, str], str]:
    """Return (placement -> its nodes, message) of a group with pods on these nodes."""
    cluster = PluginCluster(make_node(name, labels={"rack": rack} if rack else {}) for name, rack in RACKS.items())
    cluster.put("pod_groups", make_pod_group("g", 2, topology_key=key))
    state = PodGroupState()
    for number, node in enumerate(scheduled_on):
        state.put(make_member(str(number), node))
    snapshot = cluster.snapshot
    rows = np.array(sorted(snapshot.row_of[name] for name in parent), np.intp)
    plugin = TopologyPlacementGenerator(NoArgs(), cluster)
    generated, status = plugin.generate_placements(
        PodGroupCycleState(state), PodGroupInfo("default", "g"), snapshot, Placement("all", rows)
    )
    names = {placement.name: "".join(sorted(snapshot.names[placement.rows])) for placement in generated}
    return names, status.message if status is not None else ""


def test_group_without_a_constraint_gets_its_parent_placement():
    assert placements(key="") == ({"all": "abcde"}, "")


def test_one_placement_per_domain_in_the_order_of_the_nodes():
    domains, message = placements()
    assert (list(domains.items()), message) == ([("r2", "ac"), ("r1", "b"), ("r3", "e")], "")


def test_placements_are_within_the_parent():
    assert placements(parent="bcd") == ({"r1": "b", "r2": "c"}, "")


def test_no_node_has_the_label():
    assert placements(key="zone") == ({}, "")


def test_scheduled_pods_determine_the_domain():
    assert placements("c", "a") == ({"r2": "ac"}, "")
    assert placements("c", parent="be") == ({}, "")


@pytest.mark.parametrize(
    ("scheduled_on", "problem"),
    [
        (("a", "b"), "more than 1 domain found for pod group: r2, r1"),
        (("d",), "no topology domain found for pod default/0"),
        (("gone",), 'getting node for pod default/0: nodeinfo not found for node name "gone"'),
    ],
)
def test_domain_of_scheduled_pods_is_unknown(scheduled_on: Any, problem: str) -> None:
    expected = f"cannot determine domain for already scheduled pods: {problem}"
    assert placements(*scheduled_on) == ({}, expected)


def test_deleted_pod_group_has_no_placements():
    cluster = PluginCluster()
    plugin = TopologyPlacementGenerator(NoArgs(), cluster)
    state = PodGroupCycleState(PodGroupState())
    _, status = plugin.generate_placements(
        state, PodGroupInfo("default", "g"), cluster.snapshot, Placement("", cluster.snapshot.all_rows)
    )
    assert status is not None
    assert status.message == 'podgroup.scheduling.k8s.io "g" not found'
