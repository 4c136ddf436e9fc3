"""Rules that take long are run beside the event loop, and the request is answered again with what they found."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.apiextensions import cel_rules
from kubeloop.devcluster.server.apiserver import ApiServer
from support.api_requests import InProcessApi, decoded, request
from support.rule_cases import CRDS, GROUP, definition

JSON = dict[str, Any]
OBJECTS = f"/apis/{GROUP}/v1/pairs"
RULE = "self.all(x, self.all(y, x != y || x == y))"


def pair(name: str, count: int) -> JSON:
    spec = {"numbers": [*range(count)], "name": name}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Pairs", "metadata": {"name": name}, "spec": spec}


def status_and_content(response: Response | None) -> tuple[int, JSON]:
    assert response is not None
    return response.status, decoded(response)


@pytest.fixture
async def server() -> ApiServer:
    api = InProcessApi()
    numbers = {"type": "array", "maxItems": 1000, "items": {"type": "integer"}}
    named = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self != 'bad'"}]}
    fields = {"numbers": {**numbers, "x-kubernetes-validations": [{"rule": RULE}]}, "name": named}
    api.create(CRDS, definition("pairs", fields))
    return api.server


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where rules were run to their end."""
    found: list[str] = []
    whole = cel_rules.check_object

    def noted(*arguments: Any) -> cel_rules.RuleEvaluation:
        result = whole(*arguments)
        found.append("loop" if threading.current_thread() is threading.main_thread() else "beside")
        return result

    monkeypatch.setattr(cel_rules, "check_object", noted)
    return found


async def test_rules_that_cost_little_are_run_at_once(server: ApiServer, threads: list[str]):
    assert status_and_content(server.handle_or_defer(request("POST", OBJECTS, pair("a", 10))))[0] == 201
    assert status_and_content(server.handle_or_defer(request("POST", OBJECTS, pair("bad", 10))))[0] == 422
    assert {*threads} == {"loop"}


async def test_rules_that_cost_much_are_run_beside_the_loop(server: ApiServer, threads: list[str]):
    for name, status in (("a", 201), ("bad", 422)):
        pending = request("POST", OBJECTS, pair(name, 200))
        assert server.handle_or_defer(pending) is None
        code, answer = status_and_content(await server.handle(pending))
        assert code == status
        assert status == 201 or "failed rule: self != 'bad'" in answer["message"]
    assert threads == ["beside", "beside"]


async def test_what_costs_too_much_altogether_is_refused_after_it_too(server: ApiServer, threads: list[str]):
    pending = request("POST", OBJECTS, pair("a", 1000))
    assert server.handle_or_defer(pending) is None
    code, answer = status_and_content(await server.handle(pending))
    assert code == 422
    assert "call cost exceeds limit" in answer["message"]
    assert threads == ["beside"]


async def test_an_object_that_changes_meanwhile_is_looked_at_again(server: ApiServer, threads: list[str]):
    assert status_and_content(server.handle_now(request("POST", OBJECTS, pair("a", 200))))[0] == 201
    long = request("PATCH", f"{OBJECTS}/a", {"spec": {"name": "bad"}})
    assert server.handle_or_defer(long) is None
    waiting = asyncio.create_task(server.handle(long))
    await asyncio.sleep(0)
    quick = request("PATCH", f"{OBJECTS}/a", {"spec": {"numbers": [1]}})
    assert status_and_content(server.handle_or_defer(quick))[0] == 200
    assert status_and_content(await waiting)[0] == 422
    assert threads[-1] == "loop"  # the object has few numbers now


async def test_a_name_that_is_made_up_each_time_does_no_harm(server: ApiServer, threads: list[str]):
    pending = request("POST", OBJECTS, {**pair("a", 200), "metadata": {"generateName": "a-"}})
    assert server.handle_or_defer(pending) is None
    assert status_and_content(await server.handle(pending))[0] == 201
    assert threads == ["beside"]


async def test_who_asks_inside_of_the_process_does_not_wait(server: ApiServer, threads: list[str]):
    assert status_and_content(server.handle_now(request("POST", OBJECTS, pair("a", 200))))[0] == 201
    assert threads == ["loop"]
