"""Validation of Workloads and PodGroups."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.scheduling import pod_group, workload
from kubeloop.devcluster.validation.common.error_list import ErrorList, error_list_type
from kubeloop.kube.feature_gates import GANG_SCHEDULING_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import cause_texts

ALL_GATES = FeatureGates(dict.fromkeys(GANG_SCHEDULING_GATES, True))
GENERIC = FeatureGates({"GenericWorkload": True})
GANG: JSON = {"gang": {"minCount": 2}}
GATED: JSON = {
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "disruptionMode": "PodGroup",
    "priorityClassName": "high",
    "priority": 7,
}
CLAIMS = [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)]
NAME = "a lowercase RFC 1123"


def causes(validate: Any, *specs: JSON, gates: FeatureGates = ALL_GATES) -> list[str]:
    errors: ErrorList = error_list_type(gates)()
    validate(errors, *({"metadata": {"name": "x"}, "spec": spec} for spec in specs))
    return [text.partition(" label must consist")[0].partition(" subdomain must")[0] for text in cause_texts(errors)]


def template(**fields: Any) -> JSON:
    return {"name": "t", "schedulingPolicy": GANG, **fields}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"podGroupTemplates": [template(**GATED)]}, []),
        ({}, ["spec.podGroupTemplates: Required value"]),
        (
            {"podGroupTemplates": [template(name=f"t{i}") for i in range(9)]},
            ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
        ),
        (
            {"podGroupTemplates": [template(), template(schedulingConstraints=None)]},
            [
                'spec.podGroupTemplates[1]: Duplicate value: {"name":"t","schedulingPolicy":{"gang":{"minCount":2}},'
                '"schedulingConstraints":null}'
            ],
        ),
        (
            {"podGroupTemplates": [template(name="")], "controllerRef": {"apiGroup": "B!", "name": "a/b"}},
            [
                f'spec.controllerRef.apiGroup: Invalid value: "B!": {NAME}',
                "spec.controllerRef.kind: Required value",
                "spec.controllerRef.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.podGroupTemplates[0].name: Required value",
            ],
        ),
    ],
    ids=["valid", "no templates", "too many templates", "same name", "references"],
)
def test_invalid_workload_has_causes(spec: JSON, expected: list[str]):
    assert causes(workload.validate_workload, spec) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (GATED, []),
        ({"schedulingPolicy": {}}, ['schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`']),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {}}},
            [
                'schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`',
                "schedulingPolicy.gang.minCount: Required value",
            ],
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": -1}}},
            ["schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"],
        ),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            ["schedulingConstraints.topology: Too many: 2: must have at most 1 item"],
        ),
        ({"schedulingConstraints": {"topology": [{}]}}, ["schedulingConstraints.topology[0].key: Required value"]),
        ({"resourceClaims": CLAIMS}, ["resourceClaims: Too many: 5: must have at most 4 items"]),
        (
            {"resourceClaims": [{"name": "A", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]},
            [
                'resourceClaims[0]: Invalid value: "{resourceClaimName, resourceClaimTemplateName}": '
                "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`",
                f'resourceClaims[0].name: Invalid value: "A": {NAME}',
            ],
        ),
        (
            {"disruptionMode": "Node", "priorityClassName": "A", "priority": 2_000_000_000},
            [
                'disruptionMode: Unsupported value: "Node": supported values: "Pod", "PodGroup"',
                f'priorityClassName: Invalid value: "A": {NAME}',
                "priority: Invalid value: 2000000000: must be less than or equal to 1000000000",
            ],
        ),
        (
            {"podGroupTemplateRef": {"workload": {"podGroupTemplateName": "A"}}},
            [
                "podGroupTemplateRef.workload.workloadName: Required value",
                f'podGroupTemplateRef.workload.podGroupTemplateName: Invalid value: "A": {NAME}',
            ],
        ),
    ],
)
def test_invalid_pod_group_has_causes(fields: JSON, expected: list[str]):
    spec = {"schedulingPolicy": GANG, **fields}
    assert causes(pod_group.validate_pod_group, spec) == [f"spec.{cause}" for cause in expected]


def test_fields_of_disabled_gates_are_forbidden():
    spec = {"schedulingPolicy": GANG, **GATED}
    assert causes(pod_group.validate_pod_group, spec, gates=GENERIC) == [f"spec.{name}: Forbidden" for name in GATED]


def test_specs_are_immutable():
    old = {"schedulingPolicy": GANG, **GATED, "resourceClaims": CLAIMS[:1]}
    assert causes(pod_group.validate_pod_group_update, old, old) == []
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    new = {"podGroupTemplateRef": reference, "schedulingPolicy": {"basic": {}}, "resourceClaims": CLAIMS}
    immutable = "Invalid value: null: field is immutable"
    fields = ("podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims")
    expected = [f"spec.{name}: {immutable}" for name in fields]
    expected.append("spec.resourceClaims: Too many: 5: must have at most 4 items")
    expected += [f"spec.{name}: {immutable}" for name in ("disruptionMode", "priorityClassName", "priority")]
    assert causes(pod_group.validate_pod_group_update, new, old) == expected
    templates = {"podGroupTemplates": [template()]}
    assert causes(workload.validate_workload_update, {"podGroupTemplates": []}, templates) == [
        f"spec.podGroupTemplates: {immutable}",
        "spec.podGroupTemplates: Required value",
    ]


def test_stored_fields_of_disabled_gates_may_only_be_removed():
    old = {"schedulingPolicy": GANG, **GATED}
    assert causes(pod_group.validate_pod_group_update, old, old, gates=GENERIC) == []
    assert causes(pod_group.validate_pod_group_update, {"schedulingPolicy": GANG}, old, gates=GENERIC) == []
    changed = {**old, "priority": 8}
    assert causes(pod_group.validate_pod_group_update, changed, old, gates=GENERIC) == ["spec.priority: Forbidden"]


def test_claim_statuses_need_a_claim_and_valid_names():
    old = {"spec": {"resourceClaims": [{"name": "gpu"}]}, "status": {}}
    statuses = [{"name": "gpu", "resourceClaimName": "A"}, {"name": "nic"}, {"name": "nic"}]
    errors = ErrorList()
    new = {**old, "status": {"resourceClaimStatuses": statuses}}
    pod_group.validate_pod_group_status_update(errors, new, old)
    unknown = 'Invalid value: "nic": must match the name of an entry in `spec.resourceClaims`'
    path = "status.resourceClaimStatuses"
    texts = cause_texts(errors)
    assert texts[:3] == [
        f"{path}[1].name: {unknown}",
        f"{path}[2].name: {unknown}",
        f'{path}[2]: Duplicate value: {{"name":"nic"}}',
    ]
    assert texts[3].startswith(f'{path}[0].resourceClaimName: Invalid value: "A": {NAME}')
    errors = ErrorList()
    pod_group.validate_pod_group_status_update(errors, new, new)
    assert [cause["field"] for cause in errors] == [f"{path}[1].name", f"{path}[2].name"]  # ratcheting
