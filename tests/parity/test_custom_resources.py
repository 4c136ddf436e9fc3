"""The same custom resource requests to kube-apiserver and to the development API server: the same responses."""

from __future__ import annotations

import time
from typing import Any

from support.custom_resource_requests import Step, comparable, differences, steps
from support.http_api import HttpApi, server_pair


def _response(server: HttpApi, step: Step) -> Any:
    while True:
        response = server.request(step.method, step.path, step.body, step.content_type, step.accept)
        if response.status != 429:  # storage is (re)initializing
            return comparable(step, response)
        time.sleep(1)


def _wait_until_settled(server: HttpApi) -> None:
    """Wait until the definitions do not change for half a second: kube-apiserver's controllers update them."""
    request = Step("", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    before = None
    for _ in range(20):
        time.sleep(0.5)
        now = _response(server, request)
        if now == before:
            return
        before = now


def test_custom_resource_responses_match_kube_apiserver(tmp_path):
    different = []
    with server_pair(tmp_path, user_agent="tester/1") as servers:
        for step in steps():
            real, ours = _response(servers.real, step), _response(servers.ours, step)
            different += [f"{step.about}: {difference}" for difference in differences(real, ours)]
            if step.settle:
                _wait_until_settled(servers.real)
    assert different == []
