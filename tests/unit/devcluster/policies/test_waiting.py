"""Policies that take long are run beside the event loop, and the request is answered again with what they found."""

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
LONG = "lists.range(200).all(x, lists.range(200).all(y, x != y || x == y))"
RULE: JSON = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps", "jobs"]}
PARAMS: JSON = {"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}


class Cluster:
    def __init__(self) -> None:
        self.server = InProcessApi().server

    def policy(self, spec: JSON, kind: str = "validating", name: str = "p", **binding: Any) -> None:
        spec = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
        bound = {"policyName": name, **({"validationActions": ["Deny"]} if kind == "validating" else {}), **binding}
        for plural, each in ((f"{kind}admissionpolicies", spec), (f"{kind}admissionpolicybindings", bound)):
            create = request("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": each})
            assert self.server.handle_now(create).status == 201

    async def send(self, method: str, path: str, body: Any = None, *, waits: bool) -> tuple[int, JSON]:
        """Send a request and return its status and content. waits: whether it must have been deferred."""
        pending = request(method, path, body)
        response = self.server.handle_or_defer(pending)
        assert (response is None) is waits
        response = response or await self.server.handle(pending)
        return response.status, decoded(response)


def config_map(name: str, **data: str) -> JSON:
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where expressions that take long were run to their end."""
    found: list[str] = []
    run = Program.run

    def noted(program: Program, *arguments: Any) -> EvaluationResult:
        outcome = run(program, *arguments)
        if not outcome.error and outcome.cost > 100_000:
            found.append("loop" if threading.current_thread() is threading.main_thread() else "beside")
        return outcome

    monkeypatch.setattr(Program, "run", noted)
    return found


async def test_policies_that_cost_little_are_asked_at_once():
    cluster = Cluster()
    cluster.policy({"validations": [{"expression": "object == null || object.metadata.name != 'bad'"}]})
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), waits=False))[0] == 201
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("bad"), waits=False))[0] == 422


async def test_policies_that_cost_much_are_asked_beside_the_loop(threads: list[str]):
    cluster = Cluster()
    cluster.policy({"validations": [{"expression": f"object.metadata.name != 'bad' && {LONG}", "message": "no"}]})
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), waits=True))[0] == 201
    code, answer = await cluster.send("POST", CONFIG_MAPS, config_map("bad"), waits=False)
    assert (code, answer["message"].endswith("denied request: no")) == (422, True)
    assert threads == ["beside"]


async def test_many_policies_that_take_long_together_are_asked_beside_the_loop_at_one_go():
    cluster = Cluster()
    for number in range(30):
        expression = "lists.range(20).all(x, lists.range(20).all(y, x != y || x == y))"
        cluster.policy({"validations": [{"expression": expression}]}, name=f"p{number}")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), waits=True))[0] == 201


async def test_what_is_made_up_for_an_object_is_what_policies_have_seen(threads: list[str]):
    cluster = Cluster()
    seen = "[object.metadata.name, object.metadata.uid, object.metadata.creationTimestamp].join(' ')"
    cluster.policy({"validations": [{"expression": f"!{LONG}", "messageExpression": seen}]}, validationActions=["Warn"])
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
        told = " ".join(metadata[name] for name in ("name", "uid", "creationTimestamp"))
        assert [each.endswith(told) for each in pending.warnings] == [True]
    assert threads == ["beside", "beside"]


async def test_two_requests_that_wait_get_names_and_uids_of_their_own():
    cluster = Cluster()
    cluster.policy({"validations": [{"expression": LONG}]})
    body = {"metadata": {"generateName": "a-"}}
    answers = await asyncio.gather(*(cluster.send("POST", CONFIG_MAPS, body, waits=True) for _ in range(3)))
    assert [code for code, _ in answers] == [201] * 3
    assert len({answer["metadata"]["uid"] for _, answer in answers}) == 3


@pytest.mark.parametrize(
    ("expression", "path", "change"),
    [
        ("params.data.limit == 'low'", f"{CONFIG_MAPS}/limits", {"data": {"limit": "high"}}),
        (
            "!('strict' in namespaceObject.metadata.labels)",
            "/api/v1/namespaces/default",
            {"metadata": {"labels": {"strict": "yes"}}},
        ),
        ("oldObject.data.a == '1'", f"{CONFIG_MAPS}/a", {"data": {"a": "2"}}),
    ],
)
async def test_what_policies_look_at_may_change_meanwhile(expression: str, path: str, change: JSON):
    cluster = Cluster()
    for each in (config_map("limits", limit="low"), config_map("a", a="1")):
        assert (await cluster.send("POST", CONFIG_MAPS, each, waits=False))[0] == 201
    cluster.policy(
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConditions": [{"name": "one", "expression": "object.metadata.?labels.ask.hasValue()"}],
            "validations": [{"expression": f"{LONG} && {expression}"}],
        },
        **PARAMS,
    )
    long = request("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"ask": "yes"}}})
    assert cluster.server.handle_or_defer(long) is None
    waiting = asyncio.create_task(cluster.server.handle(long))
    await asyncio.sleep(0)
    assert (await cluster.send("PATCH", path, change, waits=False))[0] == 200
    assert (await waiting).status == 422


async def test_a_policy_that_is_taken_back_meanwhile_refuses_nothing():
    cluster = Cluster()
    cluster.policy({"validations": [{"expression": f"!{LONG}"}]})
    long = request("POST", CONFIG_MAPS, config_map("a"))
    assert cluster.server.handle_or_defer(long) is None
    waiting = asyncio.create_task(cluster.server.handle(long))
    await asyncio.sleep(0)
    assert (await cluster.send("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/p", waits=False))[0] == 200
    assert (await waiting).status == 201


async def test_changes_that_cost_much_are_made_beside_the_loop(threads: list[str]):
    cluster = Cluster()
    for name in ("a", "b"):
        data = f"{LONG} ? {{'{name}': string(size(object.?data.orValue({{}})))}} : {{}}"
        spec = {
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{data: {data}}}"}}
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        }
        cluster.policy(spec, "mutating", name)
    code, answer = await cluster.send("POST", CONFIG_MAPS, {"metadata": {"generateName": "m-"}}, waits=True)
    assert (code, answer.get("data")) == (201, {"a": "0", "b": "1"})
    assert threads == ["beside", "beside"]


async def test_a_change_that_makes_no_object_of_its_kind_is_told_after_waiting_too():
    cluster = Cluster()
    operation = f"[JSONPatch{{op: 'add', path: '/data', value: {LONG}}}]"
    spec = {
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": operation}}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    }
    cluster.policy(spec, "mutating")
    assert (await cluster.send("POST", CONFIG_MAPS, config_map("a"), waits=True))[0] == 500


async def test_a_collection_is_deleted_in_one_go():
    cluster = Cluster()
    for name in ("a", "b"):
        assert (await cluster.send("POST", CONFIG_MAPS, config_map(name), waits=False))[0] == 201
    cluster.policy({"validations": [{"expression": f"oldObject.metadata.name != 'b' || {LONG}"}]})
    code, answer = await cluster.send("DELETE", CONFIG_MAPS, waits=False)
    assert (code, {each["metadata"]["name"] for each in answer["items"]} >= {"a", "b"}) == (200, True)
