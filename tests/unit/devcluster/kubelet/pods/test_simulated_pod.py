"""State of a simulated pod: annotations as durations, address."""

from __future__ import annotations

import math

from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from support.simulation.simulated_pods import running_pod, simulated_node, simulated_pod


def test_pod_in_host_network_has_address_of_node():
    node = simulated_node(addresses=[{"type": "InternalIP", "address": "192.168.0.9"}])
    pod = simulated_pod(node, hostNetwork=True)
    pod.assign_address()
    assert pod.address == "192.168.0.9"


def test_jitter_annotation_overrides_settings():
    settings = NodeSettings(jitter=0.5)
    assert (
        simulated_pod(annotations={"run-seconds": "10", "jitter": "0"}, settings=settings).seconds("run-seconds") == 10
    )
    jittered = simulated_pod(annotations={"run-seconds": "10"}, settings=settings).seconds("run-seconds")
    assert jittered is not None
    assert 5 <= jittered <= 15
    assert jittered != 10


def test_address_of_status_is_adopted_and_not_assigned_again():
    node = simulated_node()
    pod = simulated_pod(node)
    pod.object["status"] = {"podIP": "10.128.3.2"}
    pod.adopt_address()
    other = simulated_pod(node, name="other")
    other.adopt_address()
    other.assign_address()
    assert (pod.address, other.address) == ("10.128.3.2", "10.128.3.3")


def test_markers_are_read_again_when_annotations_change():
    pod = simulated_pod(annotations={"not-ready": "true"})
    assert pod.is_held_unready
    pod.object = {**pod.object, "metadata": {**pod.object["metadata"], "annotations": {}}}
    assert not pod.is_held_unready


def test_next_due_is_the_earliest_time_that_counts():
    def due(pod: SimulatedPod, **times: float) -> float | None:
        for name, seconds in times.items():
            setattr(pod, name, seconds)
        return pod.next_due()

    assert due(running_pod()) is None
    assert due(running_pod(), deadline_at=9.0, resize_at=3.0) == 3.0
    assert due(running_pod(), deadline_at=9.0, start_at=math.inf) == 9.0
    assert due(running_pod(), deadline_at=1.0, stop_at=7.0) == 7.0
    assert due(running_pod(), deadline_at=1.0, ended=True) is None
    assert due(running_pod(), deadline_at=1.0, staged=True) is None
    assert due(simulated_pod(), deadline_at=1.0) is None  # not observed by the kubelet


def test_pod_without_annotations_and_labels_has_the_markers_of_the_settings():
    pod = simulated_pod(settings=NodeSettings(pod_markers=lambda pod: {"run-seconds": "10"}))
    pod.object["metadata"].pop("annotations", None)
    pod.object["metadata"].pop("labels", None)
    assert pod.seconds("run-seconds") == 10
