"""The API server through its requests: tokens, names, deletion, binding, faults."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.server.faults import AnswerLost, Faults
from support.api_requests import InProcessApi

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


def pod(**metadata: Any) -> JSON:
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_every_path_but_health_and_version_needs_the_token():
    api = InProcessApi(token="secret")
    assert api("GET", "/api/v1/nodes")[0] == 401
    assert api("GET", "/api", authorization="Bearer other")[0] == 401
    assert api("GET", "/api/v1/nodes", authorization="Bearer secret")[0] == 200
    assert api("GET", "/version")[0] == 200
    assert api("GET", "/readyz") == (200, "ok")


async def test_generated_names_have_five_characters_of_kubernetes_alphabet():
    api = InProcessApi()
    made = [api("POST", PODS, pod(generateName="web-"))[1]["metadata"]["name"] for _ in range(20)]
    assert len(set(made)) == 20
    assert all(len(name) == 9 and set(name[4:]) <= set("bcdfghjklmnpqrstvwxz2456789") for name in made)


async def test_a_bound_pod_is_deleted_gracefully_and_a_pending_one_at_once():
    api = InProcessApi()
    api("POST", PODS, pod(name="a"))
    api("POST", PODS, pod(name="b"))
    target = {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "a"}}
    assert api("POST", f"{PODS}/a/binding", target)[0] == 201
    assert api("POST", f"{PODS}/a/binding", target)[0] == 409
    code, deleted = api("DELETE", f"{PODS}/a")
    assert (code, deleted["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)
    api("DELETE", f"{PODS}/b")
    code, page = api("GET", PODS)
    assert [each["metadata"]["name"] for each in page["items"]] == ["a"]


async def test_a_continue_token_shows_the_state_of_its_first_page():
    api = InProcessApi()
    for name in "abc":
        api("POST", PODS, pod(name=name))
    _, first = api("GET", f"{PODS}?limit=2")
    api("DELETE", f"{PODS}/c")
    _, second = api("GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in second["items"]] == ["c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_lost_answer_has_taken_effect_and_silence_has_not():
    losing, silent = InProcessApi(faults=Faults(lost_answer=1.0)), InProcessApi(faults=Faults(silence=1.0))
    for api, found in ((losing, ["a"]), (silent, [])):
        with pytest.raises(AnswerLost):
            await api.handle("POST", PODS, pod(name="a"))
        stored = [table for name, table in api.server.store.tables() if name == "pods"]
        assert [each.object["metadata"]["name"] for table in stored for each in table.list()] == found


@pytest.mark.parametrize(("faults", "code"), [
    pytest.param(Faults(error=1.0), 500, id="error"),
    pytest.param(Faults(throttle=1.0), 429, id="throttle"),
    pytest.param(Faults(conflict=1.0), 409, id="conflict")])  # fmt: skip
async def test_faults_are_answered_as_statuses(faults: Faults, code: int):
    api = InProcessApi(faults=faults)
    answered, status = await api.handle("DELETE", f"{PODS}/a")
    assert (answered, status["kind"], status["code"]) == (code, "Status", code)
