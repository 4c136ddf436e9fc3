"""The same custom resource requests to kube-apiserver and to the development API server: the same responses."""

from __future__ import annotations

from support.apiserver.http_api import response_when_initialized, server_pair, wait_until_settled
from support.comparison.custom_resource_requests import comparable, differences, steps


def test_custom_resource_responses_match_kube_apiserver(tmp_path):
    different = []
    with server_pair(tmp_path, user_agent="tester/1") as servers:
        for step in steps():
            real, ours = (
                comparable(step, response_when_initialized(server, step)) for server in (servers.real, servers.ours)
            )
            different += [f"{step.about}: {difference}" for difference in differences(real, ours)]
            if step.settle:
                wait_until_settled(servers.real)
    assert different == []
