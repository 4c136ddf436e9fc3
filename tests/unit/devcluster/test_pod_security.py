"""PodSecurity: what each level forbids, since which version, and what namespaces, pods and templates are told."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.pod_security_checks import violations
from support.api_requests import InProcessApi

JSON = dict[str, Any]
CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
GOOD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
LABEL = "pod-security.kubernetes.io/"


def spec(*contexts: JSON, context: JSON = GOOD, **fields: Any) -> JSON:
    """A pod that meets every level, but for what is given."""
    containers = [{"name": f"c{i}", "securityContext": {**CLOSED, **each}} for i, each in enumerate(contexts or ({},))]
    return {"securityContext": context, "containers": containers, **fields}


def container(**fields: Any) -> JSON:
    return {"containers": [{"name": "c", "securityContext": CLOSED, **fields}]}


def told(level: str, minor: int | None, pod: JSON, annotations: JSON | None = None) -> list[str]:
    found = violations(level, minor, {"annotations": annotations or {}}, pod)
    return [f"{each.reason}: {each.detail}" for each in found]


UNCONFINED: JSON = {"type": "Unconfined"}
BASELINE = [
    pytest.param(
        spec({"appArmorProfile": UNCONFINED}, context={**GOOD, "appArmorProfile": UNCONFINED}),
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
        id="hosts of probes",
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
        spec({"seLinuxOptions": {"type": "t"}}, context={**GOOD, "seLinuxOptions": {"user": "u", "role": "r"}}),
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
        spec(context={**GOOD, "sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}),
        "forbidden sysctls: kernel.msgmax",
        id="sysctls",
    ),
    pytest.param(
        spec(context={**GOOD, "windowsOptions": {"hostProcess": True}}),
        "hostProcess: pod must not set securityContext.windowsOptions.hostProcess=true",
        id="Windows",
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
        id="volumes",
    ),
    pytest.param(
        spec({"runAsNonRoot": True}, {}, context={"seccompProfile": GOOD["seccompProfile"]}),
        'runAsNonRoot != true: pod or container "c1" must set securityContext.runAsNonRoot=true',
        id="root by default",
    ),
    pytest.param(
        spec({"runAsNonRoot": False}),
        'runAsNonRoot != true: container "c0" must not set securityContext.runAsNonRoot=false',
        id="root",
    ),
    pytest.param(spec(context={**GOOD, "runAsUser": 0}), "runAsUser=0: pod must not set runAsUser=0", id="user"),
    pytest.param(
        spec({}, {"seccompProfile": {"type": "Localhost"}}, context={"runAsNonRoot": True}),
        'seccompProfile: pod or container "c0" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost"',
        id="seccomp",
    ),
]


def test_levels_allow_what_is_good_and_privileged_all():
    assert told("baseline", None, spec()) == told("restricted", None, spec()) == []
    assert told("privileged", None, spec({"privileged": True}, hostNetwork=True)) == []


@pytest.mark.parametrize(("pod", "wrong"), BASELINE)
def test_baseline_forbids(pod: JSON, wrong: str):
    assert told("baseline", None, pod) == [wrong]


@pytest.mark.parametrize(("pod", "wrong"), RESTRICTED)
def test_restricted_forbids_more(pod: JSON, wrong: str):
    assert told("restricted", None, pod) == [wrong]


OWN_USERS = spec({"procMount": "Unmasked"}, hostUsers=False, context={**GOOD, "runAsNonRoot": False, "runAsUser": 0})
WINDOWS = {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}, "containers": [{"name": "c"}]}
SYSCTLS = ("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_wmem")


@pytest.mark.parametrize(
    ("level", "pod", "changes"),
    [
        ("baseline", spec(**container(startupProbe={"httpGet": {"host": "b"}})), {0: 0, 33: 0, 34: 1, 99: 1}),
        ("baseline", spec(context={**GOOD, "seLinuxOptions": {"type": "container_engine_t"}}), {0: 1, 30: 1, 31: 0}),
        ("baseline", spec({"seccompProfile": UNCONFINED}), {0: 0, 18: 0, 19: 1}),
        *(
            ("baseline", spec(context={**GOOD, "sysctls": [{"name": name}]}), {0: 1, since - 1: 1, since: 0})
            for name, since in zip(SYSCTLS, (27, 29, 32), strict=True)
        ),
        ("baseline", OWN_USERS, {0: 1, 34: 1, 35: 0}),
        ("restricted", OWN_USERS, {0: 2, 22: 2, 23: 3, 34: 3, 35: 1}),
        ("restricted", spec({"allowPrivilegeEscalation": True}), {7: 0, 8: 1}),
        ("restricted", spec({"capabilities": {"add": ["BPF"]}}), {0: 1, 21: 1, 22: 1}),
        ("restricted", spec({"capabilities": {"add": ["KILL"]}}), {0: 0, 21: 0, 22: 1}),
        ("restricted", spec(context={"runAsNonRoot": True}), {18: 0, 19: 1}),
        ("restricted", WINDOWS, {18: 1, 19: 2, 22: 3, 24: 3, 25: 0}),
    ],
)
def test_a_version_keeps_the_rules_that_it_had(level: str, pod: JSON, changes: dict[int, int]):
    assert {minor: len(told(level, minor, pod)) for minor in changes} == changes


def test_annotations_say_profiles_as_well():
    armor, seccomp = "container.apparmor.security.beta.kubernetes.io/c0", "seccomp.security.alpha.kubernetes.io/pod"
    assert told("baseline", None, spec(), {armor: "unconfined", f"{armor}x": "localhost/y"}) == [
        f'forbidden AppArmor profile: annotation must not set AppArmor profile type to "{armor}="unconfined""'
    ]
    assert told("baseline", 18, spec(), {seccomp: "unconfined", f"container.{seccomp[:-3]}c0": "docker/default"}) == [
        f'seccompProfile: forbidden annotation {seccomp}="unconfined"'
    ]


# --- requests ---------------------------------------------------------------------------------------------------------


class Cluster:
    """A server with namespace `n`: requests return (status, message, warnings)."""

    def __init__(self) -> None:
        self._api = InProcessApi()
        self._api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})

    def request(self, method: str, path: str, body: JSON) -> tuple[int, str, list[str]]:
        status, content = self._api(method, path, body)
        return status, content.get("message", ""), [text.removeprefix("299 - ") for text in self._api.warnings]

    def label(self, **labels: str | None) -> list[str]:
        """Set labels of namespace `n` (`_` stands for `-`) and return the warnings."""
        prefixed = {f"{LABEL}{name.replace('_', '-')}": value for name, value in labels.items()}
        status, _, warnings = self.request("PATCH", "/api/v1/namespaces/n", {"metadata": {"labels": prefixed}})
        assert status == 200
        return warnings


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


PODS = "/api/v1/namespaces/n/pods"


def pod(name: str, **fields: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **fields}}


async def test_pods_are_refused_by_the_level_enforced_and_warned_of_by_the_other(cluster: Cluster):
    cluster.label(enforce="baseline", warn="restricted", warn_version="v1.18")
    told = (
        'restricted:v1.18\\": allowPrivilegeEscalation != false (container \\"c\\" must set '
        'securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container \\"c\\" must set '
        'securityContext.runAsNonRoot=true)"'
    )
    assert cluster.request("POST", PODS, pod("a")) == (201, "", [f'"would violate PodSecurity \\"{told}'])
    why = 'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    refused = cluster.request("POST", PODS, pod("b", hostNetwork=True))
    assert refused == (403, f'pods "b" is forbidden: {why}', [])


async def test_an_update_is_looked_at_where_it_brings_images(cluster: Cluster):
    cluster.request("POST", PODS, pod("a", hostPID=True))
    cluster.label(enforce="baseline")
    image = [{"name": "c", "image": "other"}]
    changes = [
        ("", {"metadata": {"labels": {"a": "b"}}}, 200),
        ("", {"spec": {"containers": image}}, 403),
        ("/ephemeralcontainers", {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}, 403),
        ("/status", {"status": {"message": "m"}}, 200),
    ]
    for subresource, change, status in changes:
        assert cluster.request("PATCH", f"{PODS}/a{subresource}", change)[0] == status, change
    cluster.label(enforce=None)
    assert cluster.request("PATCH", f"{PODS}/a", {"spec": {"containers": image}})[0] == 200


async def test_what_makes_pods_is_stored_with_a_warning(cluster: Cluster):
    cluster.label(enforce="baseline")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("", hostIPC=True)["spec"]}
    sets = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    job = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
    cron = {"metadata": {"name": "d"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}
    told = ['"would violate PodSecurity \\"baseline:latest\\": host namespaces (hostIPC=true)"']
    for path, body in (("apps/v1", sets), ("batch/v1", cron)):
        plural = "deployments" if body is sets else "cronjobs"
        target = f"/apis/{path}/namespaces/n/{plural}"
        assert cluster.request("POST", target, body) == (201, "", told)
        assert cluster.request("PATCH", f"{target}/d", {"metadata": {"labels": {"x": "y"}}}) == (200, "", told)
        assert cluster.request("PATCH", f"{target}/d/status", {"status": {}})[2] == []
    cluster.label(warn="privileged")
    assert cluster.request("PATCH", f"{target}/d", {"metadata": {"labels": {"x": "z"}}})[2] == []


async def test_warnings_are_told_of_what_is_refused_and_of_what_is_scaled(cluster: Cluster):
    twice = [{"name": "A", "value": "a"}, {"name": "A", "value": "b"}]
    container = {"name": "c", "image": "i", "env": twice}
    told = '[0].env[1]: hides previous definition of \\"A\\", which may be dropped when using apply"'
    cluster.label(enforce="baseline")
    body = {"metadata": {"name": "a"}, "spec": {"hostPID": True, "containers": [container]}}
    status, _, warnings = cluster.request("POST", PODS, body)
    assert (status, warnings) == (403, [f'"spec.containers{told}'])
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    path = "/apis/apps/v1/namespaces/n/deployments"
    cluster.request("POST", path, body)
    for warnings in ([f'"spec.template.spec.containers{told}'], []):
        scaled = cluster.request("PATCH", f"{path}/d/scale", {"spec": {"replicas": 3}})
        assert scaled == (200, "", warnings)


async def test_a_stricter_level_tells_of_the_pods_that_are_there(cluster: Cluster):
    for name in ("b", "a", "c"):
        cluster.request("POST", PODS, pod(name, hostPID=True))
    cluster.request("POST", PODS, pod("plain"))
    existing = '"existing pods in namespace \\"n\\" violate the new PodSecurity enforce level \\"%s\\""'
    shared = '"a (and 2 other pods): host namespaces%s"'
    assert cluster.label(enforce="baseline") == [existing % "baseline:latest", shared % ""]
    more = "allowPrivilegeEscalation != false, runAsNonRoot != true"
    assert cluster.label(enforce="restricted", enforce_version="v1.18") == [
        existing % "restricted:v1.18",
        shared % f", {more}",
        f'"plain: {more}"',
    ]
    assert cluster.label(enforce="baseline") == cluster.label(enforce=None) == []
