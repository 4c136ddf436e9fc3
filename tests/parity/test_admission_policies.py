"""Admission policies: the same responses to the requests of policy_cases.yaml as kube-apiserver."""

from __future__ import annotations

import time

from support.apiserver.http_api import server_pair
from support.comparison.policy_cases import POLICY_DELAY_SECONDS, comparable, judged_requests, setup_requests


def test_policies_reject_warn_and_admit_like_kube_apiserver(tmp_path):
    differences = []
    with server_pair(tmp_path) as servers:
        for step in setup_requests():
            for server in (servers.real, servers.ours):
                response = server.request(step.method, step.path, step.body, step.content_type)
                assert response.status == 201, (step.about, response.content)
        time.sleep(POLICY_DELAY_SECONDS)
        for step in judged_requests():
            real, ours = (
                comparable(server.request(step.method, step.path, step.body, step.content_type))
                for server in (servers.real, servers.ours)
            )
            if real != ours:
                differences.append(f"{step.method} {step.about}: real {real}, ours {ours}")
    assert differences == []
