"""Pod groups in the cache: the states of their pods, and when a group appears and disappears."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState, PodGroupStates, pod_group_key
from support.scheduling.plugin_cluster import make_member, make_node, make_pod


def states(group: PodGroupState | None) -> dict[str, str]:
    """Return pod name -> its state."""
    assert group is not None
    state = {pod.metadata.name: "unscheduled" for pod in group.unscheduled_pods()}
    state |= dict.fromkeys(group.assumed, "assumed") | dict.fromkeys(group.assigned, "assigned")
    assert len(state) == len(group.pods)
    return state


@pytest.mark.parametrize(
    ("pod", "key"),
    [
        pytest.param(make_member("p", group="web"), "default/web", id="member"),
        pytest.param(make_pod("p", schedulingGroup={}), "", id="no name"),
        pytest.param(make_pod("p"), "", id="no group"),
    ],
)
def test_key_of_a_pods_group(pod, key):
    assert pod_group_key(pod) == key


def test_group_exists_while_it_has_pods():
    groups = PodGroupStates()
    groups.put(make_pod("alone"))
    assert not groups.all()
    groups.put(make_member("a"))
    groups.put(make_member("b"))
    groups.remove(make_member("a"))
    assert states(groups.get("default/g")) == {"b": "unscheduled"}
    groups.remove(make_member("b"))
    assert groups.get("default/g") is None
    groups.remove(make_member("b"))  # a repeated event
    groups.check()


def test_states_of_a_pod_that_is_bound():
    groups = PodGroupStates()
    for name in "ab":
        groups.put(make_member(name))
    groups.assume(make_member("a", "n1"))
    assert states(groups.get("default/g")) == {"a": "assumed", "b": "unscheduled"}
    groups.put(make_member("a", labels={"x": "y"}))  # still not bound
    assert states(groups.get("default/g")) == {"a": "assumed", "b": "unscheduled"}
    groups.put(make_member("a", "n1"))
    group = groups.get("default/g")
    assert states(group) == {"a": "assigned", "b": "unscheduled"}
    groups.assume(make_member("a", "n1"))
    assert states(group) == {"a": "assigned", "b": "unscheduled"}
    assert group is not None
    assert group.scheduled_count == 1
    assert [pod.metadata.name for pod in group.scheduled_pods()] == ["a"]
    groups.check()


def test_forgotten_pod_is_unscheduled_again():
    groups = PodGroupStates()
    groups.put(make_member("a"))
    groups.assume(make_member("a", "n1"))
    groups.forget(make_member("a", "n1"))
    assert states(groups.get("default/g")) == {"a": "unscheduled"}


def test_deleted_pod_is_not_assumed():
    groups = PodGroupStates()
    groups.put(make_member("a"))
    groups.put(make_member("b"))
    groups.remove(make_member("a"))
    groups.assume(make_member("a", "n1"))
    assert states(groups.get("default/g")) == {"b": "unscheduled"}


def test_copy_is_independent():
    groups = PodGroupStates()
    groups.put(make_member("a"))
    group = groups.get("default/g")
    assert group is not None
    copy = group.copy()
    copy.assume(make_member("a", "n1"))
    assert (states(group), states(copy)) == ({"a": "unscheduled"}, {"a": "assumed"})


def test_pods_without_a_node_are_inactive_until_they_are_taken():
    group = PodGroupState()
    for name in "abc":
        group.put(make_member(name))
    group.assume(make_member("a", "n1"))
    assert [pod.metadata.name for pod in group.take_inactive()] == ["b", "c"]
    assert group.take_inactive() == []
    group.put(make_member("a", labels={"x": "y"}))
    assert group.take_inactive() == []
    group.forget("a")
    group.requeued("b")
    assert [pod.metadata.name for pod in group.take_inactive()] == ["a", "b"]
    group.requeued("c")
    group.assume(make_member("c", "n1"))
    group.requeued("c")
    group.requeued("b")
    group.put(make_member("b", "n1"))
    group.requeued("b")
    group.requeued("a")
    group.remove("a")
    group.requeued("a")
    assert group.take_inactive() == []


def test_cache_keeps_the_groups_up_to_date():
    groups = PodGroupStates()
    now = [0.0]
    cache = SchedulerCache(lambda: now[0], pod_groups=groups, assumed_pod_ttl_seconds=30)
    cache.add_node(make_node("n1"))
    for name in "abc":
        groups.put(make_member(name))

    def assume(name: str) -> Pod:
        pod = make_member(name, "n1")
        cache.assume_pod(PodInfo(pod))
        return pod

    a, b, c = (assume(name) for name in "abc")
    cache.add_pod(a)
    cache.forget_pod(b)
    cache.finish_binding(c)
    assert states(groups.get("default/g")) == {"a": "assigned", "b": "unscheduled", "c": "assumed"}
    now[0] = 31.0
    cache.expire_assumed_pods()
    assert states(groups.get("default/g")) == {"a": "assigned", "b": "unscheduled", "c": "unscheduled"}
    cache.update_pod(a, replace(a, metadata=replace(a.metadata, labels={"x": "y"})))
    cache.add_pod(make_member("other", "n1", group="h"))
    cache.remove_pod(a)
    assert states(groups.get("default/g")) == {"b": "unscheduled", "c": "unscheduled"}
    assert states(groups.get("default/h")) == {"other": "assigned"}
    groups.check()


def test_cache_without_groups_counts_no_group():
    cache = SchedulerCache(lambda: 0.0)
    cache.assume_pod(PodInfo(make_member("a", "n1")))
    value: Any = cache.pod_groups
    assert value is None
