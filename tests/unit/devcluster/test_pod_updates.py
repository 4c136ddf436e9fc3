"""What a pod keeps although an update leaves it out. Source: admission/priority, registry/core/pod/strategy.go."""

from __future__ import annotations

from kubeloop.devcluster.registry import served
from kubeloop.devcluster.strategies import prepare_for_status_update, prepare_for_update
from kubeloop.kube.resources import PODS


def pod(spec, status):
    return {"metadata": {"name": "web", "uid": "1"}, "spec": spec, "status": status}


def test_an_update_without_priority_keeps_the_one_that_admission_gave():
    new = pod({"containers": []}, {})
    prepare_for_update(served(PODS), new, pod({"priority": 10, "preemptionPolicy": "Never"}, {}))
    assert new["spec"] == {"containers": [], "priority": 10, "preemptionPolicy": "Never"}


def test_a_status_without_qos_class_and_generations_keeps_them():
    seen = {"type": "Ready", "observedGeneration": 2}
    old = pod({}, {"qosClass": "Burstable", "observedGeneration": 3, "conditions": [seen]})
    written = pod(
        {}, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]}
    )
    assert prepare_for_status_update(served(PODS), written, old)["status"] == {
        "phase": "Running",
        "qosClass": "Burstable",
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}, {"type": "Initialized"}],
    }


def test_what_a_status_does_say_is_taken():
    old = pod({}, {"qosClass": "Burstable", "observedGeneration": 3})
    written = pod({}, {"qosClass": "Burstable", "observedGeneration": 4})
    assert prepare_for_status_update(served(PODS), written, old)["status"]["observedGeneration"] == 4
