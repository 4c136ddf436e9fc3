"""GangScheduling: when pods of a gang are queued, wait on permit, and are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.events import PENDING_POD_ADD, POD_GROUP, Hint, cluster_event, matches
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import GangScheduling, completes_gang
from support.scheduling.plugin_cluster import PluginCluster, make_member, make_node, make_pod, make_pod_group

NO_GROUP_YET = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


class WaitingPod:
    def __init__(self) -> None:
        self.allowed_by: list[str] = []

    def allow(self, plugin: str) -> None:
        self.allowed_by.append(plugin)


class Gang:
    """The plugin in a cluster with `pods` in the group g of policy minCount; 0: basic policy."""

    def __init__(self, pods: str, min_count: int | None) -> None:
        self.cluster = PluginCluster([make_node("n")])
        for name in pods:
            self.cluster.pod_groups.put(make_member(name))
        if min_count is not None:
            self.cluster.put("pod_groups", make_pod_group("g", min_count))
        self.plugin = GangScheduling(NoArgs(), self.cluster)

    def assume(self, *names: str) -> None:
        """Assume pods, which then wait on permit."""
        for name in names:
            self.cluster.cache.assume_pod(PodInfo(make_member(name, "n")))
            self.cluster.waiting_pods[name] = WaitingPod()

    @property
    def allowed(self) -> str:
        return "".join(name for name, pod in self.cluster.waiting_pods.items() if pod.allowed_by == ["GangScheduling"])

    def permit(self, name: str, state: CycleState | None = None) -> tuple[Code | None, float]:
        status, seconds = self.plugin.permit(state or CycleState(), PodInfo(make_member(name, "n")), "n")
        return None if status is None else status.code, seconds


@pytest.mark.parametrize(
    ("pods", "min_count", "message"),
    [
        pytest.param("ab", None, NO_GROUP_YET, id="no PodGroup"),
        pytest.param("ab", 3, TOO_FEW, id="fewer than minCount pods"),
        pytest.param("abc", 3, "", id="minCount pods"),
        pytest.param("a", 0, "", id="basic policy"),
    ],
)
def test_pod_is_gated_until_its_gang_has_enough_pods(pods, min_count, message):
    status = Gang(pods, min_count).plugin.pre_enqueue(make_member("a"))
    assert (status.message if status is not None else "") == message
    assert status is None or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_pods_of_no_group_are_ignored():
    gang = Gang("a", 3)
    assert gang.plugin.pre_enqueue(make_pod("p")) is None
    assert gang.plugin.permit(CycleState(), PodInfo(make_pod("p")), "n") == (None, 0)


def test_pods_wait_until_min_count_have_a_node():
    gang = Gang("abc", 2)
    gang.assume("a")
    assert gang.permit("a") == (Code.WAIT, 300.0)
    assert gang.cluster.activated == ["default/b", "default/c"]
    gang.assume("b")
    assert gang.permit("b") == (None, 0)
    assert gang.allowed == "a"


def test_pod_without_a_node_is_activated_once_until_it_is_requeued():
    gang = Gang("abcd", 4)
    for name in "ab":
        gang.assume(name)
        gang.permit(name)
    assert gang.cluster.activated == ["default/b", "default/c", "default/d"]
    gang.cluster.pod_groups.requeued(make_member("c"))
    gang.assume("d")
    gang.permit("d")
    assert gang.cluster.activated[3:] == ["default/c"]


def test_pod_that_no_longer_waits_is_not_allowed():
    gang = Gang("abc", 2)
    gang.assume("a")
    gang.permit("a")
    gang.cluster.cache.forget_pod(make_member("a", "n"))
    gang.assume("b")
    gang.permit("b")
    gang.assume("c")
    gang.permit("c")
    assert gang.allowed == "b"


def test_bound_pods_count():
    gang = Gang("abc", 3)
    gang.cluster.cache.add_pod(make_member("a", "n"))
    gang.assume("b")
    assert gang.permit("b")[0] is Code.WAIT
    gang.assume("c")
    assert gang.permit("c") == (None, 0)
    assert gang.allowed == "b"


def test_group_without_gang_policy_does_not_wait():
    gang = Gang("ab", 0)
    gang.assume("a")
    assert gang.permit("a") == (None, 0)


def test_permit_fails_if_the_pod_group_was_deleted():
    gang = Gang("a", None)
    status, _ = gang.plugin.permit(CycleState(), PodInfo(make_member("a", "n")), "n")
    assert status is not None
    assert (status.code, status.message) == (
        Code.ERROR,
        'failed to get podGroup default/g: podgroup.scheduling.k8s.io "g" not found',
    )


def test_cycle_counts_its_own_nodes_and_allows_no_waiting_pod():
    gang = Gang("abc", 3)
    gang.assume("a")
    group = gang.cluster.pod_groups.get("default/g")
    assert group is not None
    state = CycleState()
    state.pod_group_cycle = PodGroupCycleState(group.copy())
    for name in "bc":
        state.pod_group_cycle.pods.assume(make_member(name, "n"))
        expected = (Code.WAIT, 300.0) if name == "b" else (None, 0)
        assert gang.permit(name, state) == expected
    assert gang.allowed == ""
    assert gang.cluster.activated == ["default/c"]
    assert group.scheduled_count == 1


@pytest.mark.parametrize(
    ("pod", "added", "hint"),
    [
        pytest.param(make_member("a"), make_member("b"), Hint.QUEUE, id="member"),
        pytest.param(make_member("a"), make_member("b", group="h"), Hint.SKIP, id="other group"),
        pytest.param(make_member("a"), make_member("b", namespace="other"), Hint.SKIP, id="other namespace"),
        pytest.param(make_pod("a"), make_pod("b"), Hint.SKIP, id="no groups"),
    ],
)
def test_added_pod_may_complete_the_gang(pod, added, hint):
    event = Gang("", 1).plugin.events_to_register()[0]
    assert matches(event.event, PENDING_POD_ADD)
    assert event.hint is not None
    assert event.hint(pod, None, added) is hint


@pytest.mark.parametrize(
    ("pods", "min_count", "completes"),
    [
        pytest.param("a", 2, False, id="too few"),
        pytest.param("ab", 2, True, id="minCount"),
        pytest.param("abc", 2, False, id="more, none of which waits"),
        pytest.param("a", 0, False, id="basic policy"),
        pytest.param("a", None, False, id="no PodGroup"),
    ],
)
def test_pod_that_completes_its_gang(pods: str, min_count: int | None, completes: bool) -> None:
    cluster = Gang(pods, min_count).cluster
    groups = cluster.listers.pod_groups, cluster.pod_groups
    assert completes_gang(make_member("a"), *groups) is completes
    assert not completes_gang(make_pod("alone"), *groups)


@pytest.mark.parametrize(("group", "hint"), [("g", Hint.QUEUE), ("h", Hint.SKIP)])
def test_added_pod_group_may_be_the_one_that_the_pod_waits_for(group: str, hint: Hint) -> None:
    event = Gang("", 1).plugin.events_to_register()[1]
    added: Any = make_pod_group(group)
    assert event.event == cluster_event(POD_GROUP, event.event.action)
    assert event.hint is not None
    assert event.hint(make_member("a"), None, added) is hint


def test_permit_fails_without_the_state_of_the_group():
    """The PodGroup is cached, but the scheduler has seen none of its pods."""
    gang = Gang("", 2)
    status, seconds = gang.plugin.permit(CycleState(), PodInfo(make_member("a", "n")), "n")
    assert (status.code, status.message) == (Code.ERROR, "pod group state not found for pod group default/g")
    assert seconds == 0
