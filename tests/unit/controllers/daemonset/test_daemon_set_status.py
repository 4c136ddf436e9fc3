"""Status of a DaemonSet."""

from __future__ import annotations

from kubeloop.controllers.daemonset.daemon_set_status import daemon_set_status
from kubeloop.controllers.daemonset.node_states import NodeStates, Revision
from kubeloop.kube.objects.api_types import DaemonSetStatus
from support.objects.daemon_sets import NOW, pod, state


def test_counts_of_nodes_and_their_oldest_pods():
    states = (
        state("none"),
        state("ready", pod("a")),
        state("not-ready", pod("b", ready=False)),
        state("old", pod("c", "old")),
        state("not-yet-available", pod("d", ready_seconds=5)),
        state("two", pod("newer", age_seconds=1), pod("older", "old", ready=False)),
        state("misscheduled", pod("e"), runs=False),
        state("ineligible", runs=False),
        state("deleted-node", pod("f"), runs=False, exists=False),
    )
    before = DaemonSetStatus(observed_generation=4, collision_count=1)
    assert daemon_set_status(before, NodeStates(states, complete=10), Revision("new", None, 10), NOW) == (
        DaemonSetStatus(
            observed_generation=4,
            collision_count=1,
            desired_number_scheduled=16,
            current_number_scheduled=15,
            number_misscheduled=1,
            number_ready=13,
            updated_number_scheduled=13,
            number_available=12,
            number_unavailable=4,
        )
    )
