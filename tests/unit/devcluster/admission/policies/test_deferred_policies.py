"""Expensive policies run on a background thread, and their request is handled again with the results."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kubeloop.devcluster.languages.cel.program import EvaluationResult, Program
from support.api_requests import InProcessApi, decoded, request

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
EXPENSIVE = "lists.range(200).all(x, lists.range(200).all(y, x != y || x == y))"
RULE: JSON = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps", "jobs"]}
PARAMS: JSON = {"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}


class Cluster:
    """A server whose requests may be deferred."""

    def __init__(self) -> None:
        self.server = InProcessApi().server

    def create_policy(self, spec: JSON, kind: str = "validating", name: str = "p", **binding: Any) -> None:
        spec = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
        binding_spec = {
            "policyName": name,
            **({"validationActions": ["Deny"]} if kind == "validating" else {}),
            **binding,
        }
        for plural, fields in ((f"{kind}admissionpolicies", spec), (f"{kind}admissionpolicybindings", binding_spec)):
            create = request("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": fields})
            assert self.server.handle_now(create).status == 201

    async def send(self, method: str, path: str, body: Any = None, *, is_deferred: bool) -> tuple[int, JSON]:
        """Send a request and return its status and content. is_deferred: whether it must be deferred."""
        pending = request(method, path, body)
        response = self.server.handle_or_defer(pending)
        assert (response is None) is is_deferred
        response = response or await self.server.handle(pending)
        return response.status, decoded(response)


def config_map(name: str, **data: str) -> JSON:
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each complete run of an expensive expression adds "loop" or "background"."""
    thread_names: list[str] = []
    run = Program.run

    def recording_run(program: Program, *arguments: Any) -> EvaluationResult:
        result = run(program, *arguments)
        if not result.error and result.cost > 100_000:
            thread_names.append("loop" if threading.current_thread() is threading.main_thread() else "background")
        return result

    monkeypatch.setattr(Program, "run", recording_run)
    return thread_names


async def test_cheap_policies_run_at_once():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": "object == null || object.metadata.name != 'bad'"}]})
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_deferred=False))[0] == 201
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("bad"), is_deferred=False))[0] == 422


async def test_expensive_policy_runs_in_the_background(threads: list[str]):
    cluster = Cluster()
    cluster.create_policy(
        {"validations": [{"expression": f"object.metadata.name != 'bad' && {EXPENSIVE}", "message": "no"}]}
    )
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_deferred=True))[0] == 201
    code, content = await cluster.send("POST", CONFIG_MAPS, config_map("bad"), is_deferred=False)
    assert (code, content["message"].endswith("denied request: no")) == (422, True)
    assert threads == ["background"]


async def test_many_cheap_policies_run_in_the_background_together():
    cluster = Cluster()
    for number in range(30):
        expression = "lists.range(20).all(x, lists.range(20).all(y, x != y || x == y))"
        cluster.create_policy({"validations": [{"expression": expression}]}, name=f"p{number}")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_deferred=True))[0] == 201


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
        pending = request("POST", path, body)
        assert cluster.server.handle_or_defer(pending) is None
        response = await cluster.server.handle(pending)
        metadata = decoded(response)["metadata"]
        expected = " ".join(metadata[name] for name in ("name", "uid", "creationTimestamp"))
        assert [warning.endswith(expected) for warning in pending.warnings] == [True]
    assert threads == ["background", "background"]


async def test_concurrent_deferred_requests_get_unique_uids():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": EXPENSIVE}]})
    body = {"metadata": {"generateName": "a-"}}
    responses = await asyncio.gather(*(cluster.send("POST", CONFIG_MAPS, body, is_deferred=True) for _ in range(3)))
    assert [code for code, _ in responses] == [201] * 3
    assert len({content["metadata"]["uid"] for _, content in responses}) == 3


@pytest.mark.parametrize(
    ("expression", "path", "change"),
    [
        pytest.param(
            "params.data.limit == 'low'", f"{CONFIG_MAPS}/limits", {"data": {"limit": "high"}}, id="parameters"
        ),
        pytest.param(
            "!('strict' in namespaceObject.metadata.labels)",
            "/api/v1/namespaces/default",
            {"metadata": {"labels": {"strict": "yes"}}},
            id="namespace",
        ),
        pytest.param("oldObject.data.a == '1'", f"{CONFIG_MAPS}/a", {"data": {"a": "2"}}, id="old object"),
    ],
)
async def test_deferred_request_sees_changes_of_its_inputs(expression: str, path: str, change: JSON):
    cluster = Cluster()
    for body in (config_map("limits", limit="low"), config_map("a", a="1")):
        assert (await cluster.send("POST", CONFIG_MAPS, body, is_deferred=False))[0] == 201
    cluster.create_policy(
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConditions": [{"name": "checked", "expression": "object.metadata.?labels.check.hasValue()"}],
            "validations": [{"expression": f"{EXPENSIVE} && {expression}"}],
        },
        **PARAMS,
    )
    pending = request("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"check": "yes"}}})
    assert cluster.server.handle_or_defer(pending) is None
    task = asyncio.create_task(cluster.server.handle(pending))
    await asyncio.sleep(0)
    assert (await cluster.send("PATCH", path, change, is_deferred=False))[0] == 200
    assert (await task).status == 422


async def test_policy_unbound_during_deferral_denies_nothing():
    cluster = Cluster()
    cluster.create_policy({"validations": [{"expression": f"!{EXPENSIVE}"}]})
    pending = request("POST", CONFIG_MAPS, config_map("a"))
    assert cluster.server.handle_or_defer(pending) is None
    task = asyncio.create_task(cluster.server.handle(pending))
    await asyncio.sleep(0)
    binding = f"{ADMISSION}/validatingadmissionpolicybindings/p"
    assert (await cluster.send("DELETE", binding, is_deferred=False))[0] == 200
    assert (await task).status == 201


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
    code, content = await cluster.send("POST", CONFIG_MAPS, {"metadata": {"generateName": "m-"}}, is_deferred=True)
    assert (code, content.get("data")) == (201, {"a": "0", "b": "1"})
    assert threads == ["background", "background"]


async def test_deferred_mutation_with_an_invalid_result_is_an_error():
    cluster = Cluster()
    operation = f"[JSONPatch{{op: 'add', path: '/data', value: {EXPENSIVE}}}]"
    spec = {
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": operation}}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    }
    cluster.create_policy(spec, "mutating")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), is_deferred=True))[0] == 500


async def test_delete_collection_is_not_deferred():
    cluster = Cluster()
    for name in ("a", "b"):
        assert (await cluster.send("POST", CONFIG_MAPS, config_map(name), is_deferred=False))[0] == 201
    cluster.create_policy({"validations": [{"expression": f"oldObject.metadata.name != 'b' || {EXPENSIVE}"}]})
    code, content = await cluster.send("DELETE", CONFIG_MAPS, is_deferred=False)
    assert (code, {obj["metadata"]["name"] for obj in content["items"]} >= {"a", "b"}) == (200, True)
