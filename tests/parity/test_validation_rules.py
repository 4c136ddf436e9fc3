"""Validation rules of custom resources: the same responses to some 800 requests as kube-apiserver."""

from __future__ import annotations

import time

from support.api_response import ApiResponse
from support.custom_resource_requests import Step
from support.http_api import HttpApi, server_pair
from support.rule_cases import comparable, steps

_SERVED_SECONDS = 20.0


def _response(server: HttpApi, step: Step) -> ApiResponse:
    """Send a request; repeat it after a 404 or 429, which the server sends until it serves a new definition."""
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        response = server.request(step.method, step.path, step.body, step.content_type)
        if response.status not in (404, 429) or time.monotonic() > deadline:
            return response
        time.sleep(0.2)


def test_validation_rules_respond_like_kube_apiserver(tmp_path):
    differences = []
    with server_pair(tmp_path) as servers:
        for step in steps():
            real, ours = (comparable(_response(server, step)) for server in (servers.real, servers.ours))
            if real != ours:
                differences.append(f"{step.method} {step.about}: real {real}, ours {ours}")
            if step.settle:
                assert real["status"] < 300, real
                time.sleep(1)  # until kube-apiserver has reloaded its definitions
    assert differences == []
