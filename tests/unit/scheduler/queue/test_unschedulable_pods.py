"""Unschedulable pods by the plugins that rejected them and by their claims (queue/unschedulable_pods.py)."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.unschedulable_pods import UnschedulablePods
from support.scheduling.plugin_cluster import make_pod


def rejected(name: str, *plugins: str, pending: str = "") -> QueuedPodInfo:
    queued = QueuedPodInfo(PodInfo(make_pod(name)), 0)
    queued.unschedulable_plugins = set(plugins)
    queued.pending_plugins = {pending} if pending else set()
    return queued


def names(pods: UnschedulablePods, *plugins: str) -> list[str]:
    return [queued.pod.metadata.name for queued in pods.rejected_by(plugins)]


@pytest.fixture
def pods() -> UnschedulablePods:
    pods = UnschedulablePods()
    for queued in (rejected("c", "A"), rejected("b", "A", "B"), rejected("a"), rejected("d", "C", pending="B")):
        pods.put(queued)
    pods.check()
    return pods


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param([], ["a"], id="pods that no plugin rejected"),
        pytest.param(["A"], ["c", "b", "a"], id="one plugin"),
        pytest.param(["B"], ["b", "a", "d"], id="pending plugins count"),
        pytest.param(["C", "A"], ["c", "b", "a", "d"], id="each pod once, in the order added"),
        pytest.param(["X"], ["a"], id="a plugin that rejected none"),
    ],
)
def test_pods_by_plugin(pods, plugins, expected):
    assert names(pods, *plugins) == expected


def test_put_updates_the_plugins_in_place(pods):
    assert len(pods) == 4
    queued = pods.get("default/c")
    queued.unschedulable_plugins = {"B"}
    pods.put(queued)
    pods.check()
    assert (names(pods, "A"), names(pods, "B")) == (["b", "a"], ["c", "b", "a", "d"])
    assert [queued.key for queued in pods] == ["default/c", "default/b", "default/a", "default/d"]


def test_discarded_pod_is_in_no_index(pods):
    queued = pods.get("default/b")
    assert pods.discard("default/b") is queued
    assert pods.discard("default/b") is None
    pods.check()
    assert "default/b" not in pods
    assert "default/c" in pods
    assert names(pods, "A", "B") == ["c", "a", "d"]
    pods.put(queued)
    assert names(pods, "A") == ["c", "a", "b"], "added again: the last one"
    assert UnschedulablePods().rejected_by(["A"]) == []


def test_pods_by_claim(pods):
    template, shared = {"name": "t", "resourceClaimTemplateName": "t"}, {"name": "s", "resourceClaimName": "shared"}
    for name, plugin, entries in (("e", "A", [shared]), ("f", "A", [shared, template]), ("g", "B", [shared])):
        queued = rejected(name, plugin)
        queued.update(make_pod(name, resourceClaims=entries))
        pods.put(queued)
        pods.check()

    def users(claim: str, *plugins: str) -> list[str]:
        return [queued.pod.metadata.name for queued in pods.rejected_by(plugins, claim)]

    assert users("default/shared", "A") == ["a", "e", "f"]
    assert users("default/shared", "A", "B") == ["a", "e", "f", "g"]
    assert users("default/f-t", "A") == ["a"]
    queued = pods.get("default/f")
    status = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "f-t"}]}
    queued.update(make_pod("f", resourceClaims=[template], status=status))
    pods.put(queued)
    pods.check()
    assert (users("default/shared", "A"), users("default/f-t", "A")) == (["a", "e"], ["a", "f"])
    pods.discard("default/f")
    pods.check()
    assert users("default/f-t", "A") == ["a"]
