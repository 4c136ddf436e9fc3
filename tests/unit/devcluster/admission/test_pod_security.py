"""PodSecurity admission: pods, pod templates and namespace labels."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import InProcessApi
from support.validation_causes import cause_texts

JSON = dict[str, Any]
LABEL = "pod-security.kubernetes.io/"


class Cluster:
    """A server with namespace `n`. Requests return (status, message, warnings)."""

    def __init__(self) -> None:
        self._api = InProcessApi()
        self._api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})

    def request(self, method: str, path: str, body: JSON) -> tuple[int, str, list[str]]:
        status, content = self._api(method, path, body)
        return status, content.get("message", ""), [text.removeprefix("299 - ") for text in self._api.warnings]

    def label(self, **labels: str | None) -> list[str]:
        """Set PodSecurity labels of namespace `n`, with `_` for `-`, and return the warnings."""
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


async def test_enforced_level_forbids_pods_and_warn_level_warns(cluster: Cluster):
    cluster.label(enforce="baseline", warn="restricted", warn_version="v1.18")
    violations = (
        'restricted:v1.18\\": allowPrivilegeEscalation != false (container \\"c\\" must set '
        'securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container \\"c\\" must set '
        'securityContext.runAsNonRoot=true)"'
    )
    assert cluster.request("POST", PODS, pod("a")) == (201, "", [f'"would violate PodSecurity \\"{violations}'])
    detail = 'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    response = cluster.request("POST", PODS, pod("b", hostNetwork=True))
    assert response == (403, f'pods "b" is forbidden: {detail}', [])


async def test_pod_update_is_checked_if_it_changes_images(cluster: Cluster):
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


async def test_workload_with_violating_template_is_stored_with_a_warning(cluster: Cluster):
    cluster.label(enforce="baseline")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("", hostIPC=True)["spec"]}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    job = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
    cron_job = {"metadata": {"name": "d"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}
    warnings = ['"would violate PodSecurity \\"baseline:latest\\": host namespaces (hostIPC=true)"']
    for path, body in (("apps/v1", deployment), ("batch/v1", cron_job)):
        plural = "deployments" if body is deployment else "cronjobs"
        target = f"/apis/{path}/namespaces/n/{plural}"
        assert cluster.request("POST", target, body) == (201, "", warnings)
        assert cluster.request("PATCH", f"{target}/d", {"metadata": {"labels": {"x": "y"}}}) == (200, "", warnings)
        assert cluster.request("PATCH", f"{target}/d/status", {"status": {}})[2] == []
    cluster.label(warn="privileged")
    assert cluster.request("PATCH", f"{target}/d", {"metadata": {"labels": {"x": "z"}}})[2] == []


async def test_object_warnings_of_a_forbidden_pod_and_a_scale_update(cluster: Cluster):
    env = [{"name": "A", "value": "a"}, {"name": "A", "value": "b"}]
    container = {"name": "c", "image": "i", "env": env}
    hidden = '[0].env[1]: hides previous definition of \\"A\\", which may be dropped when using apply"'
    cluster.label(enforce="baseline")
    body = {"metadata": {"name": "a"}, "spec": {"hostPID": True, "containers": [container]}}
    status, _, warnings = cluster.request("POST", PODS, body)
    assert (status, warnings) == (403, [f'"spec.containers{hidden}'])
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    path = "/apis/apps/v1/namespaces/n/deployments"
    cluster.request("POST", path, body)
    for warnings in ([f'"spec.template.spec.containers{hidden}'], []):
        scaled = cluster.request("PATCH", f"{path}/d/scale", {"spec": {"replicas": 3}})
        assert scaled == (200, "", warnings)


async def test_stricter_enforce_level_warns_of_existing_pods(cluster: Cluster):
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


async def test_invalid_labels_of_a_namespace_are_rejected():
    api, key = InProcessApi(), f"{LABEL}enforce"
    valid = {key: "baseline", f"{key}-version": "v1.36"}
    invalid = {key: "strict", f"{key}-version": "1"}
    causes = [
        f'metadata.labels[{key}]: Invalid value: "strict": must be one of privileged, baseline, restricted',
        f'metadata.labels[{key}-version]: Invalid value: "1": must be "latest" or "v1.x"',
    ]
    api.create("/api/v1/namespaces", {"metadata": {"name": "n", "labels": valid}})
    for method, name in (("POST", ""), ("PUT", "/n")):
        body = {"metadata": {"name": "n", "labels": invalid}}
        status, content = api(method, f"/api/v1/namespaces{name}", body)
        assert status == 422
        assert cause_texts(content["details"]["causes"]) == causes
