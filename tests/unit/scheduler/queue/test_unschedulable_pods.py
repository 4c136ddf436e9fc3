"""UnschedulablePods: the index by rejecting plugin."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.queue.unschedulable_pods import UnschedulablePods


def test_pods_are_found_by_rejecting_plugin(queued: Any) -> None:
    pods = UnschedulablePods()
    pods.put(queued("fit", unschedulable_plugins={"NodeResourcesFit"}))
    pods.put(queued("unknown"))
    pods.put(queued("both", unschedulable_plugins={"NodeResourcesFit", "NodeAffinity"}))
    pods.check()
    assert [pod.key for pod in pods.rejected_by(["NodeAffinity"])] == ["n/unknown", "n/both"]
    assert [pod.key for pod in pods.rejected_by(["NodeResourcesFit"])] == ["n/fit", "n/unknown", "n/both"]


def test_plugins_of_a_pod_are_updated(queued: Any) -> None:
    pods, pod = UnschedulablePods(), queued("p", unschedulable_plugins={"NodeResourcesFit"})
    pods.put(pod)
    pod.unschedulable_plugins = {"NodeAffinity"}
    pods.put(pod)
    pods.check()
    assert pods.rejected_by(["NodeResourcesFit"]) == []
    assert pods.rejected_by(["NodeAffinity"]) == [pod]
    assert pods.discard("n/p") is pod
    assert pods.discard("n/p") is None
    pods.check()
