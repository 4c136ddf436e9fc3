"""Validation of ResourceClaims, ResourceClaimTemplates and DeviceClasses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.resource.device_class import validate_device_class
from kubeloop.devcluster.kinds.resource.resource_claim import validate_resource_claim
from kubeloop.devcluster.validation.common.error_list import error_list_type
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from support.objects.validation_causes import cause_texts, create_causes, defaulted, update_causes, validator_causes

REQUEST: JSON = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
OPAQUE: JSON = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "fast"}}}
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "


def claim(*requests: JSON, status: JSON | None = None, **devices: Any) -> JSON:
    spec = {"devices": {"requests": list(requests or [REQUEST]), **devices}}
    return {"spec": spec, **({"status": status} if status is not None else {})}


def exactly(**fields: Any) -> JSON:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}


def selector(expression: str) -> JSON:
    return {"selectors": [{"cel": {"expression": expression}}]}


def shortened(causes: list[str]) -> list[str]:
    return [cause.partition("with an alphanumeric")[0] for cause in causes]


FIRST = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(claim(), [], id="minimal"),
        pytest.param(
            claim(
                {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]},
                constraints=[{"requests": ["a/x"], "matchAttribute": "example.com/numa"}],
                config=[{"requests": ["a"], **OPAQUE}],
            ),
            [],
            id="alternatives, constraints and configuration",
        ),
        pytest.param(claim({"name": "gpu"}), [f"{FIRST}: Required value: {ONE_OF}"], id="neither form of a request"),
        pytest.param(
            claim({**REQUEST, "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}),
            [f"{FIRST}: Invalid value: null: {ONE_OF}, but multiple fields are set"],
            id="both forms of a request",
        ),
        pytest.param(claim(REQUEST, REQUEST), ['spec.devices.requests[1]: Duplicate value: "gpu"'], id="duplicate"),
        pytest.param(
            claim(*(exactly() for _ in range(33))),
            ["spec.devices.requests: Too many: 33: must have at most 32 items"],
            id="too many requests",
        ),
        pytest.param(
            claim({"name": "GPU", "exactly": {"deviceClassName": ""}}),
            [f'{FIRST}.name: Invalid value: "GPU": {LABEL}', f"{FIRST}.exactly.deviceClassName: Required value"],
            id="name and class",
        ),
        pytest.param(
            claim(exactly(count=-1)),
            [f"{FIRST}.exactly.count: Invalid value: -1: must be greater than zero"],
            id="count",
        ),
        pytest.param(
            claim(exactly(allocationMode="All", count=2)),
            [f"{FIRST}.exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"],
            id="count of all devices",
        ),
        pytest.param(
            claim(exactly(allocationMode="Some")),
            [
                f'{FIRST}.exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"',
            ],
            id="allocation mode",
        ),
        pytest.param(
            claim(exactly(selectors=[{}])), [f"{FIRST}.exactly.selectors[0].cel: Required value"], id="empty selector"
        ),
        pytest.param(
            claim(exactly(**selector("device.drive == 'a'"))),
            [
                f"{FIRST}.exactly.selectors[0].cel.expression: Invalid value: \"device.drive == 'a'\": "
                "compilation failed: "
                "ERROR: <input>:1:7: undefined field 'drive'\n | device.drive == 'a'\n | ......^"
            ],
            id="unknown field in a selector",
        ),
        pytest.param(
            claim(exactly(**selector("device.driver"))),
            [
                f'{FIRST}.exactly.selectors[0].cel.expression: Invalid value: "device.driver": '
                "must evaluate to bool or the unknown type, not string"
            ],
            id="selector that is no condition",
        ),
        pytest.param(
            claim(exactly(**selector("true || " * 1300 + "true"))),
            [f"{FIRST}.exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
            id="long selector",
        ),
        pytest.param(
            claim(exactly(tolerations=[{"operator": "Exists", "value": "x"}, {"operator": "In", "effect": "Now"}])),
            [
                f'{FIRST}.exactly.tolerations[0].value: Invalid value: "x": must be empty for operator `Exists`',
                f'{FIRST}.exactly.tolerations[1].operator: Unsupported value: "In": supported values: "Equal", '
                '"Exists"',
                f'{FIRST}.exactly.tolerations[1].effect: Unsupported value: "Now": supported values: "NoExecute", '
                '"NoSchedule", "None"',
            ],
            id="tolerations",
        ),
        pytest.param(
            claim(constraints=[{"requests": ["nic", "gpu/x"], "matchAttribute": "numa"}, {}]),
            [
                f'spec.devices.constraints[0].requests[0]: Invalid value: "nic": {NOT_A_REQUEST}',
                f'spec.devices.constraints[0].requests[1]: Invalid value: "gpu/x": {NOT_A_REQUEST}',
                'spec.devices.constraints[0].matchAttribute: Invalid value: "numa": a fully qualified name must '
                "be a domain "
                "and a name separated by a slash",
                'spec.devices.constraints[1]: Required value: exactly one of "matchAttribute" or '
                '"distinctAttribute" is '
                "required, but multiple fields are set",
            ],
            id="constraints",
        ),
        pytest.param(
            claim(config=[{}, {"opaque": {"driver": "", "parameters": []}}]),
            [
                "spec.devices.config[0].opaque: Required value",
                "spec.devices.config[1].opaque.driver: Required value",
                'spec.devices.config[1].opaque.parameters: Invalid value: "<value omitted>": must be a valid '
                "JSON object",
            ],
            id="configuration",
        ),
    ],
)
def test_claim_spec(obj: JSON, expected: list[str]) -> None:
    assert shortened(validator_causes(validate_resource_claim, defaulted(RESOURCE_CLAIMS, obj))) == expected


def test_constraint_requires_matchattribute_without_consumable_capacity() -> None:
    errors = error_list_type(FeatureGates({"DRAConsumableCapacity": False}))()
    validate_resource_claim(errors, claim(exactly(allocationMode="All"), constraints=[{}]))
    assert cause_texts(errors) == ["spec.devices.constraints[0].matchAttribute: Required value"]


def test_spec_of_claims_and_templates_is_immutable() -> None:
    (cause,) = update_causes(RESOURCE_CLAIMS, claim(), claim(exactly(count=2)))
    assert cause.startswith('spec: Invalid value: {"Devices":{"Requests":[{"Name":"gpu","Exactly":{')
    assert cause.endswith(": field is immutable")
    old, new = {"spec": {"spec": claim()["spec"]}}, {"spec": {"spec": claim(exactly(count=2))["spec"]}}
    (cause,) = update_causes(RESOURCE_CLAIM_TEMPLATES, old, new)
    assert cause.startswith("spec: Invalid value: ")
    assert cause.endswith(": field is immutable")


def test_template_has_labels_annotations_and_a_valid_spec() -> None:
    metadata = {"labels": {"a b": "c"}, "annotations": {"a": "b"}, "name": "x"}
    template = {"spec": {"metadata": metadata, "spec": claim({"name": "gpu"})["spec"]}}
    causes = [cause.partition(": Invalid value")[0] for cause in create_causes(RESOURCE_CLAIM_TEMPLATES, template)]
    assert causes == [
        "spec.metadata.labels",
        "spec.metadata.name: Forbidden: cannot be set",
        f"spec.spec.devices.requests[0]: Required value: {ONE_OF}",
    ]


def test_device_class() -> None:
    spec = {**selector("1"), "config": [{"opaque": None}], "extendedResourceName": "cpu"}
    assert validator_causes(validate_device_class, {"spec": spec}) == [
        'spec.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int',
        "spec.config[0].opaque: Required value",
        'spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name',
    ]
    valid = {"spec": {**selector("true"), "config": [OPAQUE], "extendedResourceName": "example.com/gpu"}}
    assert validator_causes(validate_device_class, valid) == []


RESULT: JSON = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}
DEVICE: JSON = {name: RESULT[name] for name in ("driver", "pool", "device")}
CONSUMER: JSON = {"resource": "pods", "name": "p", "uid": "1"}


def allocated(*results: JSON, **allocation: Any) -> JSON:
    return {"allocation": {"devices": {"results": list(results or [RESULT])}, **allocation}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({**allocated(), "reservedFor": [CONSUMER], "devices": [DEVICE]}, [], id="valid"),
        pytest.param(
            {"reservedFor": [CONSUMER]},
            ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
            id="reserved without an allocation",
        ),
        pytest.param(
            {**allocated(), "reservedFor": [CONSUMER, CONSUMER, {}]},
            [
                "status.reservedFor[2].resource: Required value",
                "status.reservedFor[2].name: Required value",
                "status.reservedFor[2].uid: Required value",
                'status.reservedFor[1]: Duplicate value: "1"',
            ],
            id="consumers",
        ),
        pytest.param(
            allocated({**RESULT, "request": "nic", "pool": "", "bindingConditions": ["a"]}),
            [
                f'status.allocation.devices.results[0].request: Invalid value: "nic": {NOT_A_REQUEST}',
                "status.allocation.devices.results[0].pool: Required value",
                "status.allocation.devices.results[0].bindingFailureConditions: Invalid value: null: "
                "bindingFailureConditions are required to use bindingConditions",
            ],
            id="result",
        ),
        pytest.param(
            allocated(nodeSelector={"nodeSelectorTerms": []}),
            [
                "status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node "
                "selector "
                "term"
            ],
            id="node selector",
        ),
        pytest.param(
            {**allocated(), "devices": [{**DEVICE, "device": "other", "networkData": {"ips": ["10.0.0.1"]}}]},
            [
                'status.devices[0]: Invalid value: {"Driver":"gpu.example.com","Pool":"node-0","Device":"other",'
                '"ShareID":""}: must be an allocated device in the claim',
                'status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid address in '
                "CIDR form,",
            ],
            id="status of another device",
        ),
        pytest.param(
            allocated({**RESULT, "shareID": "x"}),
            [
                'status.allocation.devices.results[0].shareID: Invalid value: "x": error validating uid: invalid UUID '
                "length: 1"
            ],
            id="share",
        ),
    ],
)
def test_claim_status(status: JSON, expected: list[str]) -> None:
    assert update_causes(RESOURCE_CLAIMS, claim(), claim(status=status), "status") == expected


def test_allocation_is_immutable_but_can_be_removed() -> None:
    other = allocated({**RESULT, "device": "gpu-1"})
    (cause,) = update_causes(RESOURCE_CLAIMS, claim(status=allocated()), claim(status=other), "status")
    assert cause.startswith("status.allocation: Invalid value: {")
    assert cause.endswith(": field is immutable")
    assert update_causes(RESOURCE_CLAIMS, claim(status=allocated()), claim(status={}), "status") == []
