"""Requests to the API server: authentication, generated names, deletion, continue tokens, injected faults."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.server.faults import AnswerLost, Faults
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


def pod(**metadata: Any) -> JSON:
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_all_paths_but_health_and_version_require_the_token():
    api = InProcessApi(token="secret")
    assert api("GET", "/api/v1/nodes")[0] == 403
    assert api("GET", "/api", authorization="Bearer other")[0] == 401
    assert api("GET", "/api/v1/nodes", authorization="Bearer secret")[0] == 200
    assert api("GET", "/version")[0] == 200
    assert api("GET", "/readyz") == (200, "ok")


async def test_generated_names_have_kubernetes_random_suffix():
    api = InProcessApi()
    names = [api("POST", PODS, pod(generateName="web-"))[1]["metadata"]["name"] for _ in range(20)]
    assert len(set(names)) == 20
    assert all(len(name) == 9 and set(name[4:]) <= set("bcdfghjklmnpqrstvwxz2456789") for name in names)


async def test_bound_pod_is_deleted_gracefully_and_pending_pod_at_once():
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
    assert [item["metadata"]["name"] for item in page["items"]] == ["a"]


async def test_continue_token_reads_revision_of_first_page():
    api = InProcessApi()
    for name in "abc":
        api("POST", PODS, pod(name=name))
    _, first = api("GET", f"{PODS}?limit=2")
    api("DELETE", f"{PODS}/c")
    _, second = api("GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in second["items"]] == ["c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_lost_response_takes_effect_and_silence_does_not():
    lost, silent = InProcessApi(faults=Faults(lost_answer=1.0)), InProcessApi(faults=Faults(silence=1.0))
    for api, expected in ((lost, ["a"]), (silent, [])):
        with pytest.raises(AnswerLost):
            await api.handle("POST", PODS, pod(name="a"))
        tables = [table for name, table in api.server.store.tables() if name == "pods"]
        assert [stored.object["metadata"]["name"] for table in tables for stored in table.list()] == expected


@pytest.mark.parametrize(("faults", "code"), [
    pytest.param(Faults(error=1.0), 500, id="error"),
    pytest.param(Faults(throttle=1.0), 429, id="throttle"),
    pytest.param(Faults(conflict=1.0), 409, id="conflict")])  # fmt: skip
async def test_injected_faults_return_a_status(faults: Faults, code: int):
    api = InProcessApi(faults=faults)
    status, content = await api.handle("DELETE", f"{PODS}/a")
    assert (status, content["kind"], content["code"]) == (code, "Status", code)
