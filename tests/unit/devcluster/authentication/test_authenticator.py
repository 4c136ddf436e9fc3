"""Authentication of requests by their bearer token."""

from __future__ import annotations

import pytest

from support.api_requests import InProcessApi


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(token="right")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic YTpi", "right", "bearer  "])
async def test_request_without_a_valid_token_gets_401(api: InProcessApi, header: str):
    headers = {"authorization": header} if header else {}
    status, response = api("GET", "/api/v1/namespaces", **headers)
    assert (status, response) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )
    assert api("GET", "/healthz", **headers)[0] == api("GET", "/version", **headers)[0] == 200
