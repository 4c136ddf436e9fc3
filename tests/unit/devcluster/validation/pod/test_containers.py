"""Validation of containers and security contexts."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.pod.containers import (
    is_extended,
    may_be_overcommitted,
    validate_container_resource_name,
    validate_field_reference,
    validate_host_port_conflicts,
    validate_resource_quantity,
    validate_resource_reference,
    validate_resource_requirements,
)
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import create_causes, pod, pod_with_container, validator_causes

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(
            pod_with_container(lifecycle={"preStop": {"exec": {}, "httpGet": {"port": 1}}}),
            [
                "spec.containers[0].lifecycle.preStop.exec.command: Required value",
                "spec.containers[0].lifecycle.preStop.httpGet: Forbidden: may not specify more than 1 handler type",
            ],
            id="two handlers",
        ),
        pytest.param(
            pod_with_container(resizePolicy=[{"resourceName": "disk", "restartPolicy": "NotRequired"}]),
            ['spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"'],
            id="resizePolicy",
        ),
        pytest.param(
            pod_with_container(restartPolicyRules=[{"action": "Restart"}]),
            [
                "spec.containers[0].restartPolicy: Required value: "
                "must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
            id="restart rules",
        ),
        pytest.param(
            pod_with_container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            [
                f"spec.containers[0].resources.{part}[hugepages-2Mi]: Invalid value: "
                '"3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
                for part in ("limits", "requests")
            ],
            id="not a multiple of the huge page size",
        ),
        pytest.param(
            pod_with_container(resources={"claims": [{"name": "gpu"}]}),
            [
                'spec.containers[0].resources.claims[0]: Not found: "gpu": '
                "must be one of the names in pod.spec.resourceClaims which is empty"
            ],
            id="unknown resource claim",
        ),
        pytest.param(
            pod(os={"name": "plan9"}),
            ['spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'],
            id="os",
        ),
        pytest.param(
            pod(os={"name": "windows"}, hostPID=True, securityContext={"runAsUser": 1}),
            [
                f"spec.{field}: Forbidden: cannot be set for a windows pod"
                for field in ("hostPID", "securityContext.runAsUser")
            ],
            id="windows",
        ),
        pytest.param(
            pod(hostUsers=False, hostNetwork=True),
            ["spec.hostNetwork: Forbidden: when `hostUsers` is false"],
            id="hostUsers",
        ),
        pytest.param(
            pod_with_container(securityContext={"appArmorProfile": {"type": "Localhost"}, "procMount": "Unmasked"}),
            [
                "spec.containers[0].securityContext.procMount: Invalid value: "
                '"Unmasked": `hostUsers` must be false to use `Unmasked`',
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: "
                "must be set when AppArmor type is Localhost",
            ],
            id="a container's security context",
        ),
    ],
)  # fmt: skip
def test_container_and_security_context_causes(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes


@pytest.mark.parametrize(
    ("name", "extended", "overcommitted"),
    [
        ("cpu", False, True),
        ("hugepages-2Mi", False, False),
        ("example.com/gpu", True, False),
        ("requests.example.com/gpu", False, False),
        ("kubernetes.io/batch", False, True),
    ],
)
def test_extended_and_overcommittable_resources(name: str, extended: bool, overcommitted: bool) -> None:
    assert (is_extended(name), may_be_overcommitted(name)) == (extended, overcommitted)


@pytest.mark.parametrize(
    ("name", "details"),
    [
        pytest.param("memory", [], id="standard"),
        pytest.param("example.com/gpu", [], id="extended"),
        pytest.param(
            "disk",
            ["must be a standard resource type or fully qualified", "must be a standard resource for containers"],
            id="unknown",
        ),
        pytest.param("pods", ["must be a standard resource for containers"], id="resource of quotas"),
        pytest.param(
            "requests.example.com/gpu", ["doesn't follow extended resource name standard"], id="resource of a request"
        ),
    ],
)
def test_container_resource_name_causes(name: str, details: list[str]) -> None:
    expected = [f'n: Invalid value: "{name}": {detail}' for detail in details]
    assert validator_causes(validate_container_resource_name, "n", name) == expected


@pytest.mark.parametrize(
    ("name", "quantity", "causes"),
    [
        ("cpu", "500m", []),
        ("cpu", "-1", ['q: Invalid value: "-1": must be greater than or equal to 0']),
        ("example.com/gpu", "500m", ['q: Invalid value: "500m": must be an integer']),
    ],
)
def test_resource_quantity_causes(name: str, quantity: str, causes: list[str]) -> None:
    assert validator_causes(validate_resource_quantity, "q", name, quantity) == causes


@pytest.mark.parametrize(
    ("resources", "causes"),
    [
        pytest.param({"limits": {"cpu": "1"}, "requests": {"cpu": "1000m"}}, [], id="equal amounts"),
        pytest.param(
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            ['r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="request above the limit",
        ),
        pytest.param(
            {"limits": {"a.b/gpu": "2"}, "requests": {"a.b/gpu": "1"}},
            ['r.requests: Invalid value: "1": must be equal to a.b/gpu limit of 2'],
            id="extended resource below its limit",
        ),
        pytest.param(
            {"requests": {"a.b/gpu": "1"}},
            ["r.limits: Required value: Limit must be set for non overcommitable resources"],
            id="extended resource without limit",
        ),
        pytest.param(
            {"limits": {"hugepages-2Mi": "2Mi"}},
            ["r: Forbidden: HugePages require cpu or memory"],
            id="huge pages only",
        ),
    ],
)
def test_resource_requirement_causes(resources: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_resource_requirements, "r", resources) == causes


def test_host_ports_of_all_containers_are_unique() -> None:
    containers = [{"ports": [{"hostPort": 80, "protocol": protocol}]} for protocol in ("TCP", "UDP", "TCP")]
    assert validator_causes(validate_host_port_conflicts, "c", containers) == [
        'c[2].ports[0].hostPort: Duplicate value: "TCP//80"'
    ]


@pytest.mark.parametrize(
    ("field_path", "causes"),
    [
        pytest.param("metadata.labels['a']", [], id="label"),
        pytest.param("spec.host", [], id="old name of spec.nodeName"),
        pytest.param(
            "metadata.uid['a']",
            [
                "f.fieldPath: Invalid value: \"metadata.uid['a']\": error converting fieldPath: "
                "field label does not support subscript: metadata.uid['a']"
            ],
            id="subscript of a string",
        ),
        pytest.param(
            "spec.containers",
            [
                'f.fieldPath: Invalid value: "spec.containers": error converting fieldPath: '
                "field label not supported: spec.containers"
            ],
            id="unknown field",
        ),
        pytest.param(
            "status.phase",
            ['f.fieldPath: Unsupported value: "status.phase": supported values: "spec.nodeName"'],
            id="field that is not supported here",
        ),
    ],
)
def test_field_reference_causes(field_path: str, causes: list[str]) -> None:
    reference = {"apiVersion": "v1", "fieldPath": field_path}
    assert validator_causes(validate_field_reference, "f", reference, ("spec.nodeName",)) == causes


@pytest.mark.parametrize(
    ("reference", "causes"),
    [
        pytest.param({"resource": "limits.cpu", "divisor": "1m"}, [], id="valid"),
        pytest.param({}, ["f.resource: Required value"], id="no resource"),
        pytest.param(
            {"resource": "requests.cpu", "divisor": "2"},
            [
                'f.divisor: Invalid value: "requests.cpu": '
                "only divisor's values 1m and 1 are supported with the cpu resource"
            ],
            id="divisor of a CPU amount",
        ),
    ],
)
def test_resource_reference_causes(reference: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_resource_reference, "f", reference, in_volume=False) == causes
