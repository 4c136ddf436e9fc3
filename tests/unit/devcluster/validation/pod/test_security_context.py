"""Validation of security contexts, and of the fields that each operating system allows."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.error_list import error_list_type
from kubeloop.devcluster.validation.pod.security_context import (
    every_container,
    validate_app_armor,
    validate_container_security_context,
    validate_host_processes,
    validate_host_users,
    validate_operating_system,
    validate_pod_security_context,
)
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


def test_containers_are_visited_in_order_of_their_kinds() -> None:
    spec = {kind: [{"name": kind}] for kind in ("ephemeralContainers", "containers", "initContainers")}
    assert [(path, container["name"]) for path, container in every_container("spec", spec)] == [
        (f"spec.{kind}[0]", kind) for kind in ("initContainers", "containers", "ephemeralContainers")
    ]


@pytest.mark.parametrize(
    ("context", "causes"),
    [
        pytest.param({"runAsUser": 0, "procMount": "Default"}, [], id="valid"),
        pytest.param(
            {"runAsUser": -1},
            ["c.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
            id="user",
        ),
        pytest.param(
            {"procMount": "Unmasked"},
            ['c.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'],
            id="unmasked proc",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Localhost"}},
            ["c.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"],
            id="seccomp profile without file",
        ),
        pytest.param(
            {"windowsOptions": {"runAsUserName": "a\\b\\c"}},
            [
                'c.windowsOptions.runAsUserName: Invalid value: "a\\\\b\\\\c": '
                "runAsUserName cannot contain more than one backslash"
            ],
            id="Windows user",
        ),
    ],
)
def test_container_security_context_causes(context: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_container_security_context, "c", context, host_users=True) == causes


def test_privileged_container_cannot_forbid_escalation() -> None:
    context = {"allowPrivilegeEscalation": False, "privileged": True}
    [cause] = validator_causes(validate_container_security_context, "c", context, host_users=True)
    assert cause.endswith(": cannot set `allowPrivilegeEscalation` to false and `privileged` to true")


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"securityContext": {"sysctls": [{"name": "net.core.somaxconn"}]}}, [], id="valid"),
        pytest.param(
            {"hostPID": True, "shareProcessNamespace": True},
            ["c.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"],
            id="two process namespaces",
        ),
        pytest.param(
            {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net/core/somaxconn"}, {}]}},
            [
                'c.sysctls[0].name: Invalid value: "net/core/somaxconn": '
                "may not be specified when 'hostNetwork' is true",
                "c.sysctls[1].name: Required value",
            ],
            id="sysctl of the host's network",
        ),
        pytest.param(
            {"securityContext": {"fsGroupChangePolicy": "Never", "supplementalGroups": [1, -1]}},
            [
                "c.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                'c.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"',
            ],
            id="groups",
        ),
    ],
)
def test_pod_security_context_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_pod_security_context, "c", spec) == causes


@pytest.mark.parametrize(
    ("profile", "causes"),
    [
        pytest.param(None, [], id="none"),
        pytest.param({"type": "Localhost", "localhostProfile": "p"}, [], id="valid"),
        pytest.param({}, ["p.type: Required value: type is required when appArmorProfile is set"], id="no type"),
        pytest.param(
            {"type": "Unconfined", "localhostProfile": "p"},
            ['p.localhostProfile: Invalid value: "p": can only be set when AppArmor type is Localhost'],
            id="file of another type",
        ),
        pytest.param(
            {"type": "Localhost", "localhostProfile": " p"},
            ['p.localhostProfile: Invalid value: " p": must not be padded with whitespace'],
            id="padded name",
        ),
    ],
)
def test_app_armor_profile_causes(profile: JSON | None, causes: list[str]) -> None:
    assert validator_causes(validate_app_armor, "p", profile) == causes


def windows_pod(*host_processes: bool | None, **spec: Any) -> JSON:
    contexts = ({"windowsOptions": {} if value is None else {"hostProcess": value}} for value in host_processes)
    return {"containers": [{"name": f"c{i}", "securityContext": c} for i, c in enumerate(contexts)], **spec}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(windows_pod(None, None), [], id="no host process"),
        pytest.param(windows_pod(True, True, hostNetwork=True), [], id="all host processes"),
        pytest.param(
            windows_pod(True, None, hostNetwork=True),
            [
                'spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be '
                "HostProcess containers"
            ],
            id="one host process",
        ),
        pytest.param(
            windows_pod(True),
            [
                "spec.hostNetwork: Invalid value: false: "
                "hostNetwork must be true if pod contains any hostProcess containers"
            ],
            id="network of the pod",
        ),
    ],
)
def test_host_process_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_host_processes, "spec", spec) == causes


def test_user_namespace_excludes_namespaces_of_the_host() -> None:
    spec = {"hostIPC": True, "containers": [{"volumeDevices": [{"name": "d"}]}]}
    assert validator_causes(validate_host_users, "spec", spec) == []
    assert validator_causes(validate_host_users, "spec", {**spec, "hostUsers": False}) == [
        "spec.HostIPC: Forbidden: when `hostUsers` is false",
        "spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
    ]


@pytest.mark.parametrize(
    ("name", "spec", "causes"),
    [
        pytest.param("linux", {"securityContext": {"runAsUser": 1}}, [], id="Linux"),
        pytest.param("", {}, ["spec.os.name: Required value"], id="no name"),
        pytest.param(
            "linux",
            windows_pod(None),
            [
                "spec.containers[0].securityContext.windowsOptions: Forbidden: "
                "windows options cannot be set for a linux pod"
            ],
            id="Windows options on Linux",
        ),
        pytest.param(
            "windows",
            {"hostPID": False, "hostUsers": True, "containers": [{"securityContext": {"privileged": False}}]},
            [
                f"spec.{field}: Forbidden: cannot be set for a windows pod"
                for field in ("hostUsers", "containers[0].securityContext.privileged")
            ],
            id="Linux options on Windows",
        ),
    ],
)
def test_operating_system_causes(name: str, spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_operating_system, "spec", {**spec, "os": {"name": name}}) == causes


def test_mount_option_policy_is_valid_only_if_its_gate_is_enabled() -> None:
    spec = {"securityContext": {"seLinuxChangePolicy": "MountOption"}}
    errors = error_list_type(FeatureGates({"SELinuxMount": True}))()
    validate_pod_security_context(errors, "c", spec)
    assert errors == []
    assert validator_causes(validate_pod_security_context, "c", spec) == [
        'c.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: "Recursive"'
    ]
