"""Expensive policies run on a background thread."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import IPv4Network
from typing import Any

import pytest

from kubeloop.cel.program import CelProgram, EvaluationResult
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.objects.resources import CONFIG_MAPS as CONFIG_MAP_KIND
from kubeloop.kube.objects.resources import RESOURCE_QUOTAS, Resource
from support.apiserver.api_requests import InProcessApi, pending_of, request, response_of

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
EXPENSIVE = "lists.range(200).all(x, lists.range(200).all(y, x != y || x == y))"
RULE: JSON = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["configmaps", "jobs", "services"],
}
SERVICES = "/api/v1/namespaces/default/services"


class Cluster:
    """A server whose requests may have to wait."""

    def __init__(self, **options: Any) -> None:
        self.server = InProcessApi(**options).server

    def config_map(self, name: str) -> JSON:
        obj = self.server.store.get(CONFIG_MAP_KIND, "default", name)
        assert obj is not None
        return obj

    def create_policy(self, spec: JSON, kind: str = "validating", name: str = "p", **binding: Any) -> None:
        spec = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
        binding_spec = {
            "policyName": name,
            **({"validationActions": ["Deny"]} if kind == "validating" else {}),
            **binding,
        }
        for plural, fields in ((f"{kind}admissionpolicies", spec), (f"{kind}admissionpolicybindings", binding_spec)):
            create = request("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": fields})
            assert response_of(self.server.respond(create))[0] == 201

    async def send(self, method: str, path: str, body: Any = None, *, is_slow: bool) -> tuple[int, JSON]:
        """Send a request and return its status and content. is_slow: whether it must have to wait."""
        response = self.server.respond(request(method, path, body))
        return response_of(await pending_of(response)() if is_slow else response)


def stored(cluster: Cluster, name: str, change: JSON) -> tuple[Resource[Any], JSON]:
    """Return the arguments that update a ConfigMap in the store, past admission."""
    return CONFIG_MAP_KIND, {**cluster.config_map(name), **change}


def counted_quota(quota: JSON) -> JSON:
    """Return a quota in `default` whose usage has been computed."""
    hard = quota["spec"]["hard"]
    metadata = {**quota["metadata"], "namespace": "default", "uid": "q"}
    return {**quota, "metadata": metadata, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}


def config_map(name: str, **data: str) -> JSON:
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each complete run of an expensive expression adds "loop" or "background"."""
    thread_names: list[str] = []
    run = CelProgram.run

    def recording_run(program: CelProgram, *arguments: Any) -> EvaluationResult:
        result = run(program, *arguments)
        if not result.error and result.cost > 100_000:
            thread_names.append("loop" if threading.current_thread() is threading.main_thread() else "background")
        return result

    monkeypatch.setattr(CelProgram, "run", recording_run)
    return thread_names


async def test_cheap_policies_run_at_once():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": "object == null || object.metadata.name != 'bad'"}]})
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False))[0] == 201
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("bad"), is_slow=False))[0] == 422


async def test_expensive_policy_runs_in_the_background(threads: list[str]):
    cluster = Cluster()
    cluster.create_policy(
        {"validations": [{"expression": f"object.metadata.name != 'bad' && {EXPENSIVE}", "message": "no"}]}
    )
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=True))[0] == 201
    code, content = await cluster.send("POST", CONFIG_MAPS, config_map("bad"), is_slow=False)
    assert (code, content["message"].endswith("denied request: no")) == (422, True)
    assert threads == ["background"]


async def test_many_cheap_policies_run_in_the_background_together():
    cluster = Cluster()
    for number in range(30):
        expression = "lists.range(20).all(x, lists.range(20).all(y, x != y || x == y))"
        cluster.create_policy({"validations": [{"expression": expression}]}, name=f"p{number}")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=True))[0] == 201


async def test_stored_object_has_the_generated_values_policies_saw(threads: list[str]):
    cluster = Cluster()
    message = "[object.metadata.name, object.metadata.uid, object.metadata.creationTimestamp].join(' ')"
    cluster.create_policy(
        {"validations": [{"expression": f"!{EXPENSIVE}", "messageExpression": message}]}, validationActions=["Warn"]
    )
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = {"metadata": {"generateName": "j-"}, "spec": {"template": {"spec": pod}}}
    for path, body in (
        (CONFIG_MAPS, {"metadata": {"generateName": "a-"}}),
        ("/apis/batch/v1/namespaces/default/jobs", job),
    ):
        sent = request("POST", path, body)
        _, content = response_of(await pending_of(cluster.server.respond(sent))())
        expected = " ".join(content["metadata"][name] for name in ("name", "uid", "creationTimestamp"))
        assert [warning.endswith(expected) for warning in sent.warnings] == [True]
    assert threads == ["background", "background"]


async def test_concurrent_slow_requests_get_unique_uids():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    body = {"metadata": {"generateName": "a-"}}
    responses = await asyncio.gather(*(cluster.send("POST", CONFIG_MAPS, body, is_slow=True) for _ in range(3)))
    assert [code for code, _ in responses] == [201] * 3
    assert len({content["metadata"]["uid"] for _, content in responses}) == 3


OLD_A_IS_1: JSON = {
    "matchConditions": [{"name": "update", "expression": "request.operation == 'UPDATE'"}],
    "validations": [{"expression": f"{EXPENSIVE} && oldObject.data.a == '1'"}],
}


async def test_policy_runs_again_on_an_object_that_has_changed(threads: list[str]):
    cluster = Cluster()
    await cluster.send("POST", CONFIG_MAPS, config_map("a", a="1"), is_slow=False)
    cluster.create_policy(OLD_A_IS_1)
    pending = pending_of(cluster.server.respond(request("PATCH", f"{CONFIG_MAPS}/a", {"data": {"b": "1"}})))
    cluster.server.store.update(*stored(cluster, "a", {"data": {"a": "2"}}))
    assert response_of(await pending())[0] == 422
    assert threads == ["background"] * 2


async def test_two_slow_patches_of_an_object_are_both_applied():
    cluster = Cluster()
    await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False)
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    patches = [request("PATCH", f"{CONFIG_MAPS}/a", {"data": {name: "1"}}) for name in ("x", "y", "z")]
    pending = [pending_of(cluster.server.respond(patch)) for patch in patches]
    assert [response.status for response in await asyncio.gather(*(finish() for finish in pending))] == [200] * 3
    assert cluster.config_map("a")["data"] == {"x": "1", "y": "1", "z": "1"}


async def test_slow_update_with_an_outdated_resource_version_is_a_conflict():
    cluster = Cluster()
    _, created = await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False)
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    pending = pending_of(cluster.server.respond(request("PUT", f"{CONFIG_MAPS}/a", {**created, "data": {"x": "1"}})))
    cluster.server.store.update(*stored(cluster, "a", {"data": {"y": "1"}}))
    code, content = response_of(await pending())
    assert (code, content["reason"]) == (409, "Conflict")
    assert cluster.config_map("a")["data"] == {"y": "1"}


async def test_slow_update_of_a_deleted_object_is_not_found():
    cluster = Cluster()
    await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False)
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    pending = pending_of(cluster.server.respond(request("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})))
    cluster.server.store.delete(CONFIG_MAP_KIND, "default", "a")
    assert response_of(await pending())[0] == 404


async def test_slow_create_with_a_name_that_is_taken_meanwhile_already_exists():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    pending = [
        pending_of(cluster.server.respond(request("POST", CONFIG_MAPS, config_map("a", x=value)))) for value in "12"
    ]
    first, second = [response_of(await finish()) for finish in pending]
    assert (first[0], second[0], second[1]["reason"]) == (201, 409, "AlreadyExists")
    assert cluster.config_map("a")["data"] == {"x": "1"}


async def test_slow_create_in_a_namespace_that_is_terminated_meanwhile_is_forbidden():
    cluster = Cluster()
    namespace = {"metadata": {"name": "n", "finalizers": ["example.com/x"]}}
    await cluster.send("POST", "/api/v1/namespaces", namespace, is_slow=False)
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    pending = pending_of(cluster.server.respond(request("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))))
    await cluster.send("DELETE", "/api/v1/namespaces/n", is_slow=False)
    code, content = response_of(await pending())
    assert (code, content["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


async def test_slow_services_get_different_cluster_ips_and_node_ports():
    settings = ServingSettings(service_range=IPv4Network("10.9.0.0/28"))
    cluster = Cluster(settings=settings)
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    bodies = [
        {"metadata": {"name": f"s{number}"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        for number in range(4)
    ]
    pending = [pending_of(cluster.server.respond(request("POST", SERVICES, body))) for body in bodies]
    services = [response_of(await finish()) for finish in pending]
    assert [code for code, _ in services] == [201] * 4
    assert len({content["spec"]["clusterIP"] for _, content in services}) == 4
    assert len({content["spec"]["ports"][0]["nodePort"] for _, content in services}) == 4


async def test_requested_cluster_ip_that_is_taken_meanwhile_is_refused():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    bodies = [
        {"metadata": {"name": name}, "spec": {"clusterIP": "10.0.0.77", "ports": [{"port": 80}]}} for name in ("a", "b")
    ]
    pending = [pending_of(cluster.server.respond(request("POST", SERVICES, body))) for body in bodies]
    first, second = [response_of(await finish()) for finish in pending]
    assert (first[0], second[0]) == (201, 422)
    assert "provided IP is already allocated" in second[1]["message"]


async def test_cancelled_slow_create_stores_and_allocates_nothing():
    cluster = Cluster(settings=ServingSettings(service_range=IPv4Network("10.9.0.0/28")))
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"services": "1"}}}
    cluster.server.store.create(RESOURCE_QUOTAS, counted_quota(quota))
    service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.9.0.5", "ports": [{"port": 80}]}}
    task = asyncio.ensure_future(pending_of(cluster.server.respond(request("POST", SERVICES, service)))())
    await asyncio.sleep(0)
    revision = cluster.server.store.revision
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.server.store.revision == revision
    code, created = await cluster.send("POST", SERVICES, service, is_slow=True)
    assert (code, created["spec"]["clusterIP"]) == (201, "10.9.0.5")
    assert cluster.server.store.list(RESOURCE_QUOTAS)[0]["status"]["used"] == {"services": "1"}


async def test_slow_creates_do_not_exceed_a_quota_together():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"services": "1"}}}
    cluster.server.store.create(RESOURCE_QUOTAS, counted_quota(quota))
    bodies = [{"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}} for name in ("a", "b")]
    pending = [pending_of(cluster.server.respond(request("POST", SERVICES, body))) for body in bodies]
    first, second = [response_of(await finish()) for finish in pending]
    assert (first[0], second[0]) == (201, 403)
    assert "exceeded quota: q" in second[1]["message"]


async def test_slow_delete_applies_to_an_object_that_has_changed(threads: list[str]):
    cluster = Cluster()
    await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False)
    cluster.create_policy({"validations": [{"expression": f"{EXPENSIVE} && oldObject.?data.keep.orValue('') == ''"}]})
    pending = pending_of(cluster.server.respond(request("DELETE", f"{CONFIG_MAPS}/a")))
    cluster.server.store.update(*stored(cluster, "a", {"data": {"keep": "yes"}}))
    assert response_of(await pending())[0] == 422
    assert threads == ["background"] * 2


async def test_policy_that_is_unbound_meanwhile_still_applies():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": f"!{EXPENSIVE}"}]})
    pending = pending_of(cluster.server.respond(request("POST", CONFIG_MAPS, config_map("a"))))
    binding = f"{ADMISSION}/validatingadmissionpolicybindings/p"
    assert (await cluster.send("DELETE", binding, is_slow=False))[0] == 200
    assert response_of(await pending())[0] == 422
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=False))[0] == 201


async def test_expensive_mutations_run_in_the_background(threads: list[str]):
    cluster = Cluster()
    for name in ("a", "b"):
        data = f"{EXPENSIVE} ? {{'{name}': string(size(object.?data.orValue({{}})))}} : {{}}"
        spec = {
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{data: {data}}}"}}
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        }
        cluster.create_policy(spec, "mutating", name)
    code, content = await cluster.send("POST", CONFIG_MAPS, {"metadata": {"generateName": "m-"}}, is_slow=True)
    assert (code, content.get("data")) == (201, {"a": "0", "b": "1"})
    assert threads == ["background", "background"]


async def test_slow_mutation_with_an_invalid_result_is_an_error():
    cluster = Cluster()
    operation = f"[JSONPatch{{op: 'add', path: '/data', value: {EXPENSIVE}}}]"
    spec = {
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": operation}}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    }
    cluster.create_policy(spec, "mutating")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_slow=True))[0] == 500


async def test_collection_is_deleted_object_by_object_under_a_slow_policy(threads: list[str]):
    cluster = Cluster()
    for name in ("a", "b"):
        await cluster.send("POST", CONFIG_MAPS, config_map(name), is_slow=False)
    cluster.create_policy({"validations": [{"expression": f"oldObject.metadata.name != 'b' || {EXPENSIVE}"}]})
    pending = pending_of(cluster.server.respond(request("DELETE", CONFIG_MAPS)))
    assert (await cluster.send("GET", f"{CONFIG_MAPS}/a", is_slow=False))[0] == 404
    assert (await cluster.send("GET", f"{CONFIG_MAPS}/b", is_slow=False))[0] == 200
    code, content = response_of(await pending())
    assert (code, {obj["metadata"]["name"] for obj in content["items"]} >= {"a", "b"}) == (200, True)
    assert cluster.server.store.get(CONFIG_MAP_KIND, "default", "b") is None
    assert threads == ["background"]
