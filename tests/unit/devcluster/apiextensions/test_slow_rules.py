"""Expensive rules of custom resources run on a background thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kubeloop.devcluster.api.slow_work import run
from kubeloop.devcluster.apiextensions import cel_rules
from kubeloop.devcluster.server.apiserver import ApiServer
from support.apiserver.api_requests import InProcessApi, pending_of, request, response_of
from support.comparison.rule_cases import CRDS, GROUP, definition

JSON = dict[str, Any]
OBJECTS = f"/apis/{GROUP}/v1/pairs"
RULE = "self.all(x, self.all(y, x != y || x == y))"


def pair(name: str, count: int) -> JSON:
    spec = {"numbers": [*range(count)], "name": name}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Pairs", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def server() -> ApiServer:
    api = InProcessApi()
    numbers = {"type": "array", "maxItems": 1000, "items": {"type": "integer"}}
    name = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self != 'bad'"}]}
    fields = {"numbers": {**numbers, "x-kubernetes-validations": [{"rule": RULE}]}, "name": name}
    api.create(CRDS, definition("pairs", fields))
    return api.server


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each complete evaluation of an object's rules adds "loop" or "background"."""
    thread_names: list[str] = []
    check_object = cel_rules.check_object

    def recording_check(*arguments: Any) -> cel_rules.RuleEvaluation:
        evaluation = check_object(*arguments)
        thread_names.append("loop" if threading.current_thread() is threading.main_thread() else "background")
        return evaluation

    monkeypatch.setattr(cel_rules, "check_object", recording_check)
    return thread_names


async def test_cheap_rules_run_at_once(server: ApiServer, threads: list[str]):
    assert response_of(server.respond(request("POST", OBJECTS, pair("a", 10))))[0] == 201
    assert response_of(server.respond(request("POST", OBJECTS, pair("bad", 10))))[0] == 422
    assert {*threads} == {"loop"}


async def test_expensive_rules_run_in_the_background(server: ApiServer, threads: list[str]):
    for name, status in (("a", 201), ("bad", 422)):
        pending = pending_of(server.respond(request("POST", OBJECTS, pair(name, 200))))
        code, content = response_of(await pending())
        assert code == status
        assert status == 201 or "failed rule: self != 'bad'" in content["message"]
    assert threads == ["background", "background"]


async def test_background_rules_have_the_cost_limit_of_the_object(server: ApiServer, threads: list[str]):
    pending = pending_of(server.respond(request("POST", OBJECTS, pair("a", 1000))))
    code, content = response_of(await pending())
    assert code == 422
    assert "call cost exceeds limit" in content["message"]
    assert threads == ["background"]


async def test_patch_is_applied_again_to_an_object_that_has_changed(server: ApiServer, threads: list[str]):
    assert response_of(await server.handle(request("POST", OBJECTS, pair("a", 200))))[0] == 201
    pending = pending_of(server.respond(request("PATCH", f"{OBJECTS}/a", {"spec": {"name": "b"}})))
    change = request("PATCH", f"{OBJECTS}/a", {"spec": {"numbers": [1]}})
    assert response_of(server.respond(change))[0] == 200
    code, content = response_of(await pending())
    assert (code, content["spec"]) == (200, {"name": "b", "numbers": [1]})
    assert threads[-2:] == ["background", "loop"]  # the object now has one number


async def test_object_of_a_definition_that_is_deleted_meanwhile_is_not_stored(server: ApiServer):
    pending = pending_of(server.respond(request("POST", OBJECTS, pair("a", 200))))
    assert response_of(server.respond(request("DELETE", f"{CRDS}/pairs.{GROUP}")))[0] == 200
    assert response_of(await pending())[0] == 404
    response_of(server.respond(request("POST", CRDS, definition("pairs", {}))))
    assert response_of(server.respond(request("GET", OBJECTS)))[1]["items"] == []


async def test_object_is_validated_by_a_schema_that_has_changed_meanwhile(server: ApiServer):
    pending = pending_of(server.respond(request("POST", OBJECTS, pair("a", 200))))
    changed = definition("pairs", {"numbers": {"type": "array", "maxItems": 9, "items": {"type": "integer"}}})
    change = request("PATCH", f"{CRDS}/pairs.{GROUP}", {"spec": changed["spec"]})
    assert response_of(server.respond(change))[0] == 200
    code, content = response_of(await pending())
    assert (code, content["details"]["causes"][0]["reason"]) == (422, "FieldValueTooMany")


async def test_slow_request_with_a_generated_name(server: ApiServer, threads: list[str]):
    body = {**pair("a", 200), "metadata": {"generateName": "a-"}}
    pending = pending_of(server.respond(request("POST", OBJECTS, body)))
    assert response_of(await pending())[0] == 201
    assert threads == ["background"]


async def test_rules_of_an_in_process_request_run_in_the_background(server: ApiServer, threads: list[str]):
    assert response_of(await run(server.handle_in_process(request("POST", OBJECTS, pair("a", 200)))))[0] == 201
    assert threads == ["background"]
