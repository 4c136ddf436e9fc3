"""Validation of pod updates: fields that may change."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.pod.pod_update import validate_immutable_annotations, validate_pod_update
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import defaulted, pod, pod_with_container, update_causes, validator_causes

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


@pytest.mark.parametrize(
    ("new", "old", "detail"),
    [
        pytest.param({"a": "1"}, {}, "", id="other annotation"),
        pytest.param({"kubernetes.io/config.mirror": "x"}, {}, "may not add mirror pod annotation", id="mirror"),
        pytest.param(
            {},
            {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"},
            "may not remove or update AppArmor annotations",
            id="AppArmor",
        ),
    ],
)
def test_immutable_annotation_causes(new: dict[str, str], old: dict[str, str], detail: str) -> None:
    pod_with, pod_before = (
        {"metadata": {"annotations": annotations}, "spec": {"nodeName": "n"}} for annotations in (new, old)
    )
    causes = [f"metadata.annotations[{key}]: Forbidden: {detail}" for key in {**new, **old}] if detail else []
    assert validator_causes(validate_immutable_annotations, pod_with, pod_before) == causes


@pytest.mark.parametrize(
    ("old_seconds", "new_seconds", "causes"),
    [
        pytest.param(None, 10, [], id="set"),
        pytest.param(10, 5, [], id="shortened"),
        pytest.param(
            5,
            10,
            ["spec.activeDeadlineSeconds: Invalid value: 10: must be less than or equal to previous value"],
            id="extended",
        ),
        pytest.param(
            5,
            None,
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
            id="removed",
        ),
    ],
)
def test_active_deadline_only_becomes_shorter(
    old_seconds: int | None, new_seconds: int | None, causes: list[str]
) -> None:
    old, new = (
        defaulted(PODS, pod(**({} if seconds is None else {"activeDeadlineSeconds": seconds})))
        for seconds in (old_seconds, new_seconds)
    )
    assert [cause.partition("\n")[0] for cause in validator_causes(validate_pod_update, new, old)][:1] == causes
