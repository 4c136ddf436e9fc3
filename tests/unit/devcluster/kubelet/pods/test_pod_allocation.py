"""Resources that are allocated to a pod during a resize."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.kubelet.pods.pod_allocation import allocate, allocated_object, differs_from_spec
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from support.simulation.simulated_pods import simulated_node, simulated_pod


def resized_pod(**spec: Any) -> SimulatedPod:
    """Return a counted pod with 500m whose spec asks for 2 CPUs then."""
    pod = simulated_pod(simulated_node(), **spec)
    pod.count_resources()
    containers = [{"name": "web", "resources": {"requests": {"cpu": "2"}}}]
    pod.object = {**pod.object, "spec": {**pod.object["spec"], "containers": containers}}
    return pod


def test_allocated_object_has_earlier_resources_until_allocation():
    pod = resized_pod()
    assert differs_from_spec(pod)
    (web,) = allocated_object(pod)["spec"]["containers"]
    assert web["resources"] == {"requests": {"cpu": "500m"}}
    assert pod.node.used == {"cpu": 500, "pods": 1}
    allocate(pod)
    assert not differs_from_spec(pod)
    assert allocated_object(pod) is pod.object
    assert pod.requests == pod.node.used == {"cpu": 2000, "pods": 1}


def test_resources_at_pod_level_are_allocated_too():
    pod = simulated_pod(resources={"requests": {"cpu": "1"}})
    pod.object = {**pod.object, "spec": {**pod.object["spec"], "resources": {"requests": {"cpu": "3"}}}}
    assert differs_from_spec(pod)
    assert allocated_object(pod)["spec"]["resources"] == {"requests": {"cpu": "1"}}
    allocate(pod)
    assert allocated_object(pod)["spec"]["resources"] == {"requests": {"cpu": "3"}}
