"""What may change in a pod, and what it keeps although an update leaves it out.

Source: core/validation/validation.go, admission/priority, registry/core/pod/strategy.go.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.registry.strategies import prepare_for_status_update, prepare_for_update
from kubeloop.kube.objects.resources import PODS
from support.validation_causes import pod, pod_with_container, update_causes

JSON = dict[str, Any]


def whole(spec, status):
    return {"metadata": {"name": "web", "uid": "1"}, "spec": spec, "status": status}


def test_an_update_without_priority_keeps_the_one_that_admission_gave():
    new = whole({"containers": []}, {})
    prepare_for_update(get_served_resource(PODS), new, whole({"priority": 10, "preemptionPolicy": "Never"}, {}), {})
    assert new["spec"] == {"containers": [], "priority": 10, "preemptionPolicy": "Never"}


def test_a_status_without_qos_class_and_generations_keeps_them():
    seen = {"type": "Ready", "observedGeneration": 2}
    old = whole({}, {"qosClass": "Burstable", "observedGeneration": 3, "conditions": [seen]})
    written = whole(
        {}, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]}
    )
    assert prepare_for_status_update(get_served_resource(PODS), written, old)["status"] == {
        "phase": "Running",
        "qosClass": "Burstable",
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}, {"type": "Initialized"}],
    }


def test_what_a_status_does_say_is_taken():
    old = whole({}, {"qosClass": "Burstable", "observedGeneration": 3})
    written = whole({}, {"qosClass": "Burstable", "observedGeneration": 4})
    assert prepare_for_status_update(get_served_resource(PODS), written, old)["status"]["observedGeneration"] == 4


NODE_TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


def gated(*terms: JSON, **spec: Any) -> JSON:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(schedulingGates=[{"name": "g"}], affinity={"nodeAffinity": required}, **spec)


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        pytest.param(
            pod_with_container(image="nginx:1"), pod_with_container(image="nginx:2"), [], id="the image may change"
        ),
        pytest.param(pod(), pod(activeDeadlineSeconds=5), [], id="a deadline may come"),
        pytest.param(
            pod(activeDeadlineSeconds=5),
            pod(),
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
            id="but not go",
        ),
        pytest.param(
            pod(activeDeadlineSeconds=5),
            pod(activeDeadlineSeconds=6),
            ["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
            id="nor grow",
        ),
        pytest.param(
            pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),
            pod(
                tolerations=[
                    {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9},
                    {"key": "l", "operator": "Exists"},
                ]
            ),
            [],
            id="tolerations may be added and last longer",
        ),
        pytest.param(
            pod(tolerations=[{"key": "k", "operator": "Exists"}]),
            pod(tolerations=[{"key": "l", "operator": "Exists"}]),
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
            id="but not be exchanged",
        ),
        pytest.param(
            pod(),
            pod(containers=[{"name": "c", "image": "nginx"}, {"name": "d", "image": "nginx"}]),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="containers are as they are",
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "a"}, {"name": "b"}]),
            pod(schedulingGates=[{"name": "b"}, {"name": "c"}]),
            ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"],
            id="gates only open",
        ),
        pytest.param(
            gated(NODE_TERM, nodeSelector={"a": "b"}),
            gated(NODE_TERM, nodeSelector={"a": "b", "c": "d"}),
            [],
            id="a gated pod may become choosier",
        ),
        pytest.param(
            gated(NODE_TERM, nodeSelector={"a": "b"}),
            gated(NODE_TERM, nodeSelector={"c": "d"}),
            [
                'spec.nodeSelector: Invalid value: {"c":"d"}: '
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            ],
            id="but not change its mind",
        ),
        pytest.param(
            gated(NODE_TERM),
            gated(NODE_TERM, NODE_TERM),
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: "
                'Invalid value: [{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null'
                '},{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null}]: '
                "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
            ],
            id="nor have alternatives",
        ),
    ],
)
def test_what_may_change_in_a_pod(old: JSON, new: JSON, causes: list[str]) -> None:
    assert update_causes(PODS, old, new) == causes


def test_any_other_change_of_a_pod_is_refused_with_its_difference() -> None:
    (cause,) = update_causes(PODS, pod(), pod(nodeName="n1"))
    text, _, difference = cause.partition("\n")
    assert text == (
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    assert difference.startswith("@@ -")
    assert [line for line in difference.splitlines() if line[0] in "+-"] == ['- "NodeName": "",', '+ "NodeName": "n1",']


def test_a_pod_that_never_restarts_stays_terminated() -> None:
    def status(**state: Any) -> JSON:
        return {**pod(restartPolicy="Never"), "status": {"containerStatuses": [{"name": "c", "state": state}]}}

    ended, running = status(terminated={"exitCode": 0}), status(running={})
    assert update_causes(PODS, running, ended, "status") == []
    assert update_causes(PODS, ended, running, "status") == [
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]


def test_the_qos_class_of_a_pod_stays() -> None:
    old, new = {**pod(), "status": {"qosClass": "BestEffort"}}, {**pod(), "status": {"qosClass": "Burstable"}}
    assert update_causes(PODS, old, new, "status") == [
        'status.qosClass: Invalid value: "Burstable": field is immutable'
    ]
