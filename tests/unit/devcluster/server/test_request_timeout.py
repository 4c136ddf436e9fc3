"""The query parameter `timeout` of requests."""

from __future__ import annotations

import pytest

from support.apiserver.api_requests import InProcessApi

MAPS = "/api/v1/namespaces/default/configmaps"
PROBLEM = "invalid timeout specified in the request URL - time: "


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}/a", "/version", "/api/v1", "/nowhere"])
@pytest.mark.parametrize(
    ("timeout", "problem"),
    [("invalid", 'invalid duration "invalid"'), ("5", 'missing unit in duration "5"')],
)
async def test_timeout_that_is_no_duration_is_refused(path: str, timeout: str, problem: str):
    status, content = InProcessApi()("GET", f"{path}?timeout={timeout}")
    assert (status, content["reason"], content["message"]) == (400, "BadRequest", PROBLEM + problem)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_invalid_timeout_of_a_write_stores_nothing(method: str):
    api = InProcessApi()
    path = MAPS if method == "POST" else f"{MAPS}/a"
    body = None if method == "DELETE" else {"metadata": {"name": "a"}}
    assert api(method, f"{path}?timeout=1", body)[0] == 400
    assert api.succeed("GET", MAPS)["items"] == []


@pytest.mark.parametrize("timeout", ["", "-1s", "1s", "1h0.5s"])
async def test_timeout_that_is_a_duration_is_accepted(timeout: str):
    InProcessApi().succeed("GET", f"{MAPS}?timeout={timeout}")


@pytest.mark.parametrize("path", [f"{MAPS}?watch=1&timeoutSeconds=1&", "/api/v1/watch/configmaps?timeoutSeconds=1&"])
async def test_watch_ignores_its_timeout(path: str):
    assert InProcessApi().respond("GET", f"{path}timeout=x").status == 200


async def test_log_ignores_its_timeout():
    assert InProcessApi()("GET", "/api/v1/namespaces/default/pods/p/log?timeout=x")[0] == 404
