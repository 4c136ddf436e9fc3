"""Delete, deletecollection, binding, eviction and scale requests, with the responses of kube-apiserver v1.36."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.devcluster.api.request import Response
from support.apiserver.api_requests import InProcessApi, request

JSON = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
TEMPLATE: JSON = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
ORPHAN_WARNING = "child pods are preserved by default when jobs are deleted"


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    if api("GET", NAMESPACE)[0] == 404:
        api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
    return api


def create_config_maps(api: InProcessApi, names: str, **metadata: Any) -> str:
    path = f"{NAMESPACE}/configmaps"
    for name in names:
        api.create(path, {"metadata": {"name": name, **metadata}})
    return path


async def test_jobs_and_replication_controllers_orphan_pods_by_default(api: InProcessApi):
    jobs, controllers = "/apis/batch/v1/namespaces/default/jobs", f"{NAMESPACE}/replicationcontrollers"
    job_template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    api.create(jobs, {"metadata": {"name": "a"}, "spec": {"template": job_template}})
    api.create(controllers, {"metadata": {"name": "a"}, "spec": {"selector": {"a": "b"}, "template": TEMPLATE}})
    status, job = api("DELETE", f"{jobs}/a")
    assert (status, job["metadata"]["finalizers"], job["metadata"]["generation"]) == (200, ["orphan"], 2)
    assert [ORPHAN_WARNING in warning for warning in api.warnings] == [True]
    assert api("DELETE", f"{controllers}/a?dryRun=All")[1]["metadata"]["finalizers"] == ["orphan"]
    assert not api.warnings
    assert api("DELETE", f"{controllers}/a?propagationPolicy=Background")[1]["status"] == "Success"


async def test_deployment_deletion_is_in_background_by_default(api: InProcessApi):
    path = "/apis/apps/v1/namespaces/default/deployments"
    api.create(
        path, {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    )
    assert api("DELETE", f"{path}/a?dryRun=All")[1]["kind"] == "Status"
    assert api("DELETE", f"{path}/a?dryRun=All&propagationPolicy=Orphan")[1]["metadata"]["finalizers"] == ["orphan"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "Foo"}, 'no kind "Foo" is registered for version "meta.k8s.io/v1"'),
        ({"kind": "Status", "apiVersion": "v7"}, "converting (v1.Status) to (v1.DeleteOptions): unknown conversion"),
        ({"dryRun": "All"}, "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"),
        ({"propagationPolicy": ""}, 'propagationPolicy: Unsupported value: "": supported values'),
        ({"orphanDependents": True, "propagationPolicy": "Orphan"}, "deletionPropagation cannot be both set"),
        ({"preconditions": {"uid": ""}}, "the UID in the precondition () does not match the UID in record"),
    ],
)
async def test_invalid_delete_options_are_rejected(api: InProcessApi, options: JSON, message: str):
    path = create_config_maps(api, "a")
    status, answer = api("DELETE", f"{path}/a", options)
    assert (status >= 400, message in answer["message"]) == (True, True), answer
    assert api("GET", f"{path}/a")[0] == 200


async def test_delete_options_in_body_override_query(api: InProcessApi):
    path = create_config_maps(api, "a")
    assert api("DELETE", f"{path}/a?dryRun=All", {"gracePeriodSeconds": 1})[0] == 200
    assert api("GET", f"{path}/a")[0] == 404


async def test_delete_query_sets_preconditions(api: InProcessApi):
    path = create_config_maps(api, "a")
    assert api("DELETE", f"{path}/a?uid=x")[0] == 409
    assert api("DELETE", f"{path}/a?resourceVersion=1")[0] == 409
    assert api("DELETE", f"{path}/a?dryRun=All&dryRun=None")[0] == 422


async def test_deletion_returns_202_if_finalizer_waits_without_orphans(api: InProcessApi):
    path = create_config_maps(api, "a", finalizers=["a.b/c"])
    assert api("DELETE", f"{path}/a?orphanDependents=false")[0] == 202
    assert api("DELETE", f"{path}/a")[0] == 200


async def test_deletecollection_with_limit_deletes_one_page(api: InProcessApi):
    path = create_config_maps(api, "abc")
    first = api("DELETE", f"{path}?limit=2")[1]
    assert [config_map["metadata"]["name"] for config_map in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert first["metadata"]["continue"]
    remaining = api("DELETE", path)[1]
    assert [config_map["metadata"]["name"] for config_map in remaining["items"]] == ["c"]
    assert "continue" not in remaining["metadata"]


def create_pod(api: InProcessApi, name: str, **spec_fields: Any) -> str:
    path = f"{NAMESPACE}/pods"
    spec = {**TEMPLATE["spec"], **spec_fields}
    api.create(path, {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
    return f"{path}/{name}"


async def test_terminating_pod_only_accepts_shorter_grace_period(api: InProcessApi):
    pod = create_pod(api, "p", nodeName="n")
    assert api("DELETE", pod)[1]["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api("DELETE", f"{pod}?gracePeriodSeconds=50")[1]["metadata"]["deletionGracePeriodSeconds"] == 30
    shortened = api("DELETE", f"{pod}?gracePeriodSeconds=5&propagationPolicy=Foreground")[1]["metadata"]
    assert (shortened["deletionGracePeriodSeconds"], shortened["finalizers"]) == (5, ["foregroundDeletion"])
    assert api("DELETE", f"{pod}?propagationPolicy=Orphan")[1]["metadata"]["finalizers"] == ["foregroundDeletion"]


def deletion_requests(pod: str) -> dict[str, tuple[str, str, Any]]:
    """Return the requests that delete a pod, which is on no node."""
    return {
        "delete": ("DELETE", pod, None),
        "deletecollection": ("DELETE", f"{NAMESPACE}/pods?labelSelector=a%3Db", None),
        "eviction": ("POST", f"{pod}/eviction", {"metadata": {"name": "p"}}),
    }


def begin_deletion(api: InProcessApi, verb: str) -> tuple[str, Callable[[], Awaitable[Response]]]:
    """Begin to delete a watched pod; return its path and the rest of the request, which has to wait."""
    pod = create_pod(api, "p")
    api.succeed("GET", f"{NAMESPACE}/pods?watch=1")
    pending = api.server.respond(request(*deletion_requests(pod)[verb]))
    assert not isinstance(pending, Response)
    return pod, pending


@pytest.mark.parametrize("verb", deletion_requests(""))
async def test_client_can_read_mark_of_watched_pod_before_removal(api: InProcessApi, verb: str):
    pod, pending = begin_deletion(api, verb)
    assert api.succeed("GET", pod)["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await pending()).status in (200, 201)
    assert api("GET", pod)[0] == 404


@pytest.mark.parametrize("verb", deletion_requests(""))
async def test_deletion_spares_pod_that_replaced_the_marked_one(api: InProcessApi, verb: str):
    pod, pending = begin_deletion(api, verb)
    assert api("DELETE", pod)[0] == 200  # removes the marked pod
    create_pod(api, "p")
    assert (await pending()).status in (200, 201)
    assert "deletionTimestamp" not in api.succeed("GET", pod)["metadata"]


async def test_resource_version_precondition_ignores_the_mark(api: InProcessApi):
    pod = create_pod(api, "p")
    version = api.succeed("GET", pod)["metadata"]["resourceVersion"]
    assert api("DELETE", pod, {"preconditions": {"resourceVersion": version}})[0] == 200
    assert api("GET", pod)[0] == 404


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, (400, "Name parameter required.")),
        ({"name": "none"}, (404, 'pods "none" not found')),
        ({"name": "p", "namespace": "x"}, (400, "the namespace of the provided object does not match")),
        ({"name": "p", "resourceVersion": "1"}, (409, "ResourceVersion in precondition: 1")),
    ],
)
async def test_binding_of_unknown_or_other_pod_is_rejected(
    api: InProcessApi, metadata: JSON, expected: tuple[int, str]
):
    create_pod(api, "p")
    status, answer = api("POST", f"{NAMESPACE}/bindings", {"metadata": metadata, "target": {"name": "n"}})
    assert (status, expected[1] in answer["message"]) == (expected[0], True), answer


async def test_binding_of_bound_pod_conflicts(api: InProcessApi):
    pod = create_pod(api, "p")
    binding = {"metadata": {"name": "p"}, "target": {"name": "n"}}
    assert api("POST", f"{NAMESPACE}/bindings", binding)[0] == 201
    status, answer = api("POST", f"{pod}/binding", binding)
    assert (status, answer["details"]["kind"]) == (409, "pods/binding")


@pytest.mark.parametrize(
    ("eviction", "expected"),
    [
        ({}, (400, "name in URL does not match name in Eviction object")),
        ({"metadata": {"name": "p", "namespace": "x"}}, (400, "the namespace of the provided object does not match")),
        ({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["x"]}}, (500, "[All] and [x]")),
        ({"metadata": {"name": "p"}, "deleteOptions": {"propagationPolicy": "x"}}, (422, "propagationPolicy")),
        ({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "x"}}}, (409, "the UID")),
        ({"metadata": {"name": "p"}, "apiVersion": "policy/v2"}, (400, "policy/v2")),
    ],
)
async def test_invalid_evictions_are_rejected(api: InProcessApi, eviction: JSON, expected: tuple[int, str]):
    pod = create_pod(api, "p")
    status, answer = api("POST", f"{pod}/eviction?dryRun=All", eviction)
    assert (status, expected[1] in answer["message"]) == (expected[0], True), answer


async def test_v1beta1_eviction_is_accepted_and_warns_of_unknown_fields(api: InProcessApi):
    pod = create_pod(api, "p", nodeName="n")
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}, "foo": 1}
    assert api("POST", f"{pod}/eviction", body)[0] == 201
    assert ["unknown field" in warning for warning in api.warnings] == [True]
    conditions = api("GET", pod)[1]["status"]["conditions"]
    assert [condition["reason"] for condition in conditions if condition["type"] == "DisruptionTarget"] == [
        "EvictionByEvictionAPI"
    ]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "is still being processed by the server"),
        ({"currentHealthy": 1, "desiredHealthy": 1}, "needs 1 healthy pods and has 1 currently"),
        ({"currentHealthy": 3, "desiredHealthy": 1}, "does not allow evicting pods currently"),
    ],
)
async def test_rejected_eviction_names_reason_of_disruption_budget(api: InProcessApi, status: JSON, message: str):
    pod = create_pod(api, "p", nodeName="n")
    patch = "application/merge-patch+json"
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert api("PATCH", f"{pod}/status", {"status": ready}, patch)[0] == 200
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    api.create(budgets, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}})
    if status:
        counted = {"observedGeneration": 1, "disruptionsAllowed": 0, "expectedPods": 1, **status}
        assert api("PATCH", f"{budgets}/b/status", {"status": counted}, patch)[0] == 200
    code, answer = api("POST", f"{pod}/eviction", {"metadata": {"name": "p"}})
    assert (code, message in answer["details"]["causes"][0]["message"]) == (429, True), answer


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ({"spec": {"replicas": 3}}, (400, "name must be provided")),
        ({"metadata": {"name": "a", "namespace": "x"}, "spec": {"replicas": 3}}, (400, "does not match the namespace")),
        ({"metadata": {"name": "a"}, "spec": {"replicas": -1}}, (422, "spec.replicas: Invalid value: -1")),
        ({"metadata": {"name": "a", "uid": "x"}, "spec": {"replicas": -1}}, (409, "deployments.apps")),
        ({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"replicas": 3}}, (409, "deployments.apps")),
        ({"metadata": {"name": "a", "labels": {"a b": ""}}, "spec": {"replicas": 3}}, (422, "metadata.labels")),
    ],
)
async def test_invalid_scales_are_rejected(api: InProcessApi, scale: JSON, expected: tuple[int, str]):
    path = "/apis/apps/v1/namespaces/default/deployments"
    api.create(
        path, {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    )
    status, answer = api("PUT", f"{path}/a/scale?dryRun=All", scale)
    assert (status, expected[1] in answer["message"]) == (expected[0], True), answer
    status, answer = api("PUT", f"{path}/a/scale", {"metadata": {"name": "a"}, "spec": {"replicas": 3}, "foo": 1})
    assert (status, answer["spec"]["replicas"], len(api.warnings)) == (200, 3, 1)


async def test_object_warnings_appear_on_writes_but_not_on_deletes(api: InProcessApi):
    services = f"{NAMESPACE}/services"
    service = {"metadata": {"name": "a", "finalizers": ["example.com/x"]}, "spec": {"externalIPs": ["1.2.3.4"]}}
    api.create(services, {**service, "spec": {**service["spec"], "ports": [{"port": 80}]}})
    assert any("externalIPs is deprecated" in warning for warning in api.warnings)
    _, stored = api("GET", f"{services}/a")
    stored["metadata"]["labels"] = {"a": "b"}
    assert api("PUT", f"{services}/a", stored)[0] == 200
    assert any("externalIPs is deprecated" in warning for warning in api.warnings)
    assert api("PUT", f"{services}/a/status", api("GET", f"{services}/a")[1])[0] == 200
    assert not api.warnings
    assert api("DELETE", f"{services}/a")[0] == 200
    assert not api.warnings


async def test_deletecollection_with_continue_deletes_current_objects(api: InProcessApi):
    path = create_config_maps(api, "abc")
    token = api("GET", f"{path}?limit=1")[1]["metadata"]["continue"]
    api("PATCH", f"{path}/b", {"data": {"k": "v"}}, "application/merge-patch+json")
    api("DELETE", f"{path}/c")
    status, deleted = api("DELETE", f"{path}?limit=2&continue={token}")
    assert (status, [config_map["metadata"]["name"] for config_map in deleted["items"]]) == (200, ["b", "c"])
    assert [config_map["metadata"]["name"] for config_map in api("GET", path)[1]["items"]] == ["a"]
