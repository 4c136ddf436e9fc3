"""Checks of the Pod Security Standards, by level and version."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.pod_security_checks import violations

JSON = dict[str, Any]
RESTRICTED_CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESTRICTED_POD_CONTEXT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def spec(*contexts: JSON, context: JSON = RESTRICTED_POD_CONTEXT, **fields: Any) -> JSON:
    """Return a pod spec that passes every level, with fields of its security contexts replaced."""
    containers = [
        {"name": f"c{i}", "securityContext": {**RESTRICTED_CONTEXT, **container_context}}
        for i, container_context in enumerate(contexts or ({},))
    ]
    return {"securityContext": context, "containers": containers, **fields}


def container(**fields: Any) -> JSON:
    return {"containers": [{"name": "c", "securityContext": RESTRICTED_CONTEXT, **fields}]}


def violation_texts(level: str, minor: int | None, pod: JSON, annotations: JSON | None = None) -> list[str]:
    pod_violations = violations(level, minor, {"annotations": annotations or {}}, pod)
    return [f"{violation.reason}: {violation.detail}" for violation in pod_violations]


UNCONFINED: JSON = {"type": "Unconfined"}
BASELINE = [
    pytest.param(
        spec({"appArmorProfile": UNCONFINED}, context={**RESTRICTED_POD_CONTEXT, "appArmorProfile": UNCONFINED}),
        'forbidden AppArmor profile: pod and container "c0" must not set AppArmor profile type to "Unconfined"',
        id="AppArmor",
    ),
    pytest.param(
        spec({"capabilities": {"add": ["BPF", "KILL"], "drop": ["ALL"]}}, {"capabilities": {"add": ["A"]}}),
        'non-default capabilities: containers "c0", "c1" must not include "A", "BPF" in '
        "securityContext.capabilities.add",
        id="capabilities",
    ),
    pytest.param(
        spec(hostNetwork=True, hostPID=True), "host namespaces: hostNetwork=true, hostPID=true", id="host namespaces"
    ),
    pytest.param(
        spec(volumes=[{"name": "a", "hostPath": {}}, {"name": "b", "hostPath": {}}]),
        'hostPath volumes: volumes "a", "b"',
        id="hostPath volumes",
    ),
    pytest.param(
        spec(**container(ports=[{"hostPort": 9}, {"hostPort": 80}, {"containerPort": 1}])),
        'hostPort: container "c" uses hostPorts 80, 9',
        id="host ports",
    ),
    pytest.param(
        spec(
            **container(livenessProbe={"httpGet": {"host": "b"}}, lifecycle={"preStop": {"tcpSocket": {"host": "a"}}})
        ),
        'probe or lifecycle host: container "c" uses probe or lifecycle hosts "a", "b"',
        id="probe hosts",
    ),
    pytest.param(
        spec({"privileged": True}),
        'privileged: container "c0" must not set securityContext.privileged=true',
        id="privileged",
    ),
    pytest.param(
        spec({"procMount": "Unmasked"}),
        'procMount: container "c0" must not set securityContext.procMount to "Unmasked"',
        id="procMount",
    ),
    pytest.param(
        spec(
            {"seLinuxOptions": {"type": "t"}},
            context={**RESTRICTED_POD_CONTEXT, "seLinuxOptions": {"user": "u", "role": "r"}},
        ),
        'seLinuxOptions: pod and container "c0" set forbidden securityContext.seLinuxOptions: type "t"; user may not '
        "be set; role may not be set",
        id="SELinux",
    ),
    pytest.param(
        spec({"seccompProfile": UNCONFINED}),
        'seccompProfile: container "c0" must not set securityContext.seccompProfile.type to "Unconfined"',
        id="seccomp",
    ),
    pytest.param(
        spec(context={**RESTRICTED_POD_CONTEXT, "sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}),
        "forbidden sysctls: kernel.msgmax",
        id="sysctls",
    ),
    pytest.param(
        spec(context={**RESTRICTED_POD_CONTEXT, "windowsOptions": {"hostProcess": True}}),
        "hostProcess: pod must not set securityContext.windowsOptions.hostProcess=true",
        id="Windows host process",
    ),
]
RESTRICTED = [
    pytest.param(
        spec({"allowPrivilegeEscalation": None}, {"allowPrivilegeEscalation": True}),
        'allowPrivilegeEscalation != false: containers "c0", "c1" must set '
        "securityContext.allowPrivilegeEscalation=false",
        id="privilege escalation",
    ),
    pytest.param(
        spec({"capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}}, {"capabilities": None}),
        'unrestricted capabilities: containers "c0", "c1" must set securityContext.capabilities.drop=["ALL"]; '
        'container "c0" must not include "CHOWN" in securityContext.capabilities.add',
        id="capabilities",
    ),
    pytest.param(
        spec(volumes=[{"name": "a", "nfs": {}}, {"name": "b", "emptyDir": {}}, {"name": "c", "hostPath": {}}]),
        'restricted volume types: volumes "a", "c" use restricted volume types "hostPath", "nfs"',
        id="volume types",
    ),
    pytest.param(
        spec({"runAsNonRoot": True}, {}, context={"seccompProfile": RESTRICTED_POD_CONTEXT["seccompProfile"]}),
        'runAsNonRoot != true: pod or container "c1" must set securityContext.runAsNonRoot=true',
        id="runAsNonRoot is not set",
    ),
    pytest.param(
        spec({"runAsNonRoot": False}),
        'runAsNonRoot != true: container "c0" must not set securityContext.runAsNonRoot=false',
        id="runAsNonRoot is false",
    ),
    pytest.param(
        spec(context={**RESTRICTED_POD_CONTEXT, "runAsUser": 0}),
        "runAsUser=0: pod must not set runAsUser=0",
        id="runAsUser is 0",
    ),
    pytest.param(
        spec({}, {"seccompProfile": {"type": "Localhost"}}, context={"runAsNonRoot": True}),
        'seccompProfile: pod or container "c0" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost"',
        id="seccomp",
    ),
]


def test_restricted_pod_passes_and_privileged_allows_all():
    assert violation_texts("baseline", None, spec()) == violation_texts("restricted", None, spec()) == []
    assert violation_texts("privileged", None, spec({"privileged": True}, hostNetwork=True)) == []


@pytest.mark.parametrize(("pod", "violation"), BASELINE)
def test_baseline_forbids(pod: JSON, violation: str):
    assert violation_texts("baseline", None, pod) == [violation]


@pytest.mark.parametrize(("pod", "violation"), RESTRICTED)
def test_restricted_forbids(pod: JSON, violation: str):
    assert violation_texts("restricted", None, pod) == [violation]


USER_NAMESPACE_POD = spec(
    {"procMount": "Unmasked"},
    hostUsers=False,
    context={**RESTRICTED_POD_CONTEXT, "runAsNonRoot": False, "runAsUser": 0},
)
WINDOWS_POD = {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}, "containers": [{"name": "c"}]}
SYSCTLS = ("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_wmem")


@pytest.mark.parametrize(
    ("level", "pod", "counts"),
    [
        pytest.param(
            "baseline",
            spec(**container(startupProbe={"httpGet": {"host": "b"}})),
            {0: 0, 33: 0, 34: 1, 99: 1},
            id="probe hosts",
        ),
        pytest.param(
            "baseline",
            spec(context={**RESTRICTED_POD_CONTEXT, "seLinuxOptions": {"type": "container_engine_t"}}),
            {0: 1, 30: 1, 31: 0},
            id="SELinux type of container engines",
        ),
        pytest.param(
            "baseline", spec({"seccompProfile": UNCONFINED}), {0: 0, 18: 0, 19: 1}, id="unconfined seccomp profile"
        ),
        *(
            pytest.param(
                "baseline",
                spec(context={**RESTRICTED_POD_CONTEXT, "sysctls": [{"name": name}]}),
                {0: 1, since - 1: 1, since: 0},
                id=name,
            )
            for name, since in zip(SYSCTLS, (27, 29, 32), strict=True)
        ),
        pytest.param("baseline", USER_NAMESPACE_POD, {0: 1, 34: 1, 35: 0}, id="procMount in a user namespace"),
        pytest.param(
            "restricted", USER_NAMESPACE_POD, {0: 2, 22: 2, 23: 3, 34: 3, 35: 1}, id="root in a user namespace"
        ),
        pytest.param("restricted", spec({"allowPrivilegeEscalation": True}), {7: 0, 8: 1}, id="privilege escalation"),
        pytest.param("restricted", spec({"capabilities": {"add": ["BPF"]}}), {0: 1, 21: 1, 22: 1}, id="BPF added"),
        pytest.param(
            "restricted", spec({"capabilities": {"add": ["KILL"]}}), {0: 0, 21: 0, 22: 1}, id="ALL is not dropped"
        ),
        pytest.param("restricted", spec(context={"runAsNonRoot": True}), {18: 0, 19: 1}, id="no seccomp profile"),
        pytest.param("restricted", WINDOWS_POD, {18: 1, 19: 2, 22: 3, 24: 3, 25: 0}, id="Windows pod"),
    ],
)
def test_number_of_violations_by_minor_version(level: str, pod: JSON, counts: dict[int, int]):
    assert {minor: len(violation_texts(level, minor, pod)) for minor in counts} == counts


def test_profiles_of_annotations_are_checked():
    armor, seccomp = "container.apparmor.security.beta.kubernetes.io/c0", "seccomp.security.alpha.kubernetes.io/pod"
    assert violation_texts("baseline", None, spec(), {armor: "unconfined", f"{armor}x": "localhost/y"}) == [
        f'forbidden AppArmor profile: annotation must not set AppArmor profile type to "{armor}="unconfined""'
    ]
    assert violation_texts(
        "baseline", 18, spec(), {seccomp: "unconfined", f"container.{seccomp[:-3]}c0": "docker/default"}
    ) == [f'seccompProfile: forbidden annotation {seccomp}="unconfined"']
