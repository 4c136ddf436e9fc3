"""PodSecurity admission: pods, pod templates and namespace labels."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.pod_security import check_new_namespace, check_pod, check_template
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import CRON_JOBS, POD_TEMPLATES
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, Resource
from support.apiserver.api_requests import InProcessApi
from support.objects.validation_causes import cause_texts

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


async def test_workload_with_violating_template_gets_a_warning(cluster: Cluster):
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


def namespace_store(**labels: str) -> ObjectStore:
    """Return a store with namespace `n` with PodSecurity labels."""
    store = ObjectStore(seconds=lambda: 0.0)
    prefixed = {f"{LABEL}{name}": value for name, value in labels.items()}
    store.create(NAMESPACES, {"metadata": {"name": "n", "uid": "u", "labels": prefixed}})
    return store


def host_network_pod(**container: Any) -> JSON:
    spec = {"hostNetwork": True, "containers": [{"name": "c", "image": "i", **container}]}
    return {"metadata": {"name": "a", "namespace": "n"}, "spec": spec}


def test_check_pod_raises_for_a_violation_of_the_enforced_level():
    with pytest.raises(StatusError, match="host namespaces"):
        check_pod(namespace_store(enforce="baseline"), host_network_pod(), [])


@pytest.mark.parametrize(
    "labels", [pytest.param({}, id="no labels"), pytest.param({"enforce": "privileged"}, id="privileged")]
)
def test_check_pod_allows_every_pod_without_a_level(labels: dict[str, str]):
    warnings: list[str] = []
    check_pod(namespace_store(**labels), host_network_pod(), warnings)
    assert warnings == []


def test_check_pod_skips_updates_with_the_same_images():
    store, old = namespace_store(enforce="baseline"), host_network_pod()
    check_pod(store, host_network_pod(), [], old)
    with pytest.raises(StatusError):
        check_pod(store, host_network_pod(image="j"), [], old)


@pytest.mark.parametrize("resource", [DEPLOYMENTS, CRON_JOBS, POD_TEMPLATES], ids=lambda resource: resource.kind)
def test_check_template_warns_about_pods_of_each_kind(resource: Resource[Any]):
    path = strategy_of(resource).template_path
    assert path
    obj: JSON = {"metadata": {}, "spec": host_network_pod()["spec"]}
    for name in reversed(path):
        obj = {name: obj}
    warnings: list[str] = []
    obj["metadata"] = {"name": "a", "namespace": "n"}
    check_template(namespace_store(enforce="baseline"), obj, path, warnings)
    assert warnings == ['would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)']


def test_invalid_labels_of_a_new_namespace_are_an_error():
    with pytest.raises(StatusError, match="must be one of privileged, baseline, restricted"):
        check_new_namespace({"metadata": {"name": "n", "labels": {f"{LABEL}enforce": "strict"}}})
