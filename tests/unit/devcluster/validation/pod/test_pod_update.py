"""Validation of pod updates: fields that may change."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import PODS
from support.validation_causes import pod, pod_with_container, update_causes

JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


def annotated(body: JSON, **annotations: str) -> JSON:
    return {**body, "metadata": {"name": "p", "annotations": annotations}}


def test_annotation_update_is_validated_twice():
    invalid = annotated(pod(), **{"controller.kubernetes.io/pod-deletion-cost": "+1"})
    cause = (
        'metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer'
    )
    assert update_causes(PODS, named_pod(), invalid) == [cause, cause]
    assert update_causes(PODS, invalid, annotated(pod(), **{"controller.kubernetes.io/pod-deletion-cost": "x"})) == []


def test_se_linux_change_policy_of_a_stored_pod():
    old, new = (pod(securityContext={"seLinuxChangePolicy": policy}) for policy in ("Recursive", "MountOption"))
    causes = update_causes(PODS, old, new)
    assert len(causes) == 1
    assert causes[0].startswith("spec: Forbidden: pod updates may not change fields other than")
    assert '-  "SELinuxChangePolicy": "Recursive"' in causes[0]


NODE_TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


def gated(*terms: JSON, **spec: Any) -> JSON:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(schedulingGates=[{"name": "g"}], affinity={"nodeAffinity": required}, **spec)


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        pytest.param(pod_with_container(image="nginx:1"), pod_with_container(image="nginx:2"), [], id="image changes"),
        pytest.param(pod(), pod(activeDeadlineSeconds=5), [], id="deadline is added"),
        pytest.param(
            pod(activeDeadlineSeconds=5),
            pod(),
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
            id="deadline is removed",
        ),
        pytest.param(
            pod(activeDeadlineSeconds=5),
            pod(activeDeadlineSeconds=6),
            ["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
            id="deadline grows",
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
            id="toleration added or extended",
        ),
        pytest.param(
            pod(tolerations=[{"key": "k", "operator": "Exists"}]),
            pod(tolerations=[{"key": "l", "operator": "Exists"}]),
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
            id="toleration replaced",
        ),
        pytest.param(
            pod(),
            pod(containers=[{"name": "c", "image": "nginx"}, {"name": "d", "image": "nginx"}]),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="container added",
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "a"}, {"name": "b"}]),
            pod(schedulingGates=[{"name": "b"}, {"name": "c"}]),
            ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"],
            id="scheduling gate added",
        ),
        pytest.param(
            gated(NODE_TERM, nodeSelector={"a": "b"}),
            gated(NODE_TERM, nodeSelector={"a": "b", "c": "d"}),
            [],
            id="gated pod: node selector extended",
        ),
        pytest.param(
            gated(NODE_TERM, nodeSelector={"a": "b"}),
            gated(NODE_TERM, nodeSelector={"c": "d"}),
            [
                'spec.nodeSelector: Invalid value: {"c":"d"}: '
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            ],
            id="gated pod: node selector replaced",
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
            id="gated pod: node affinity term added",
        ),
    ],
)
def test_pod_update_causes(old: JSON, new: JSON, causes: list[str]) -> None:
    assert update_causes(PODS, old, new) == causes


def test_immutable_pod_field_is_reported_with_a_diff() -> None:
    (cause,) = update_causes(PODS, pod(), pod(nodeName="n1"))
    text, _, difference = cause.partition("\n")
    assert text == (
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    assert difference.startswith("@@ -")
    assert [line for line in difference.splitlines() if line[0] in "+-"] == ['- "NodeName": "",', '+ "NodeName": "n1",']
