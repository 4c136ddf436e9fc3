"""Validation rules of custom resources: the same responses to some 800 requests as kube-apiserver."""

from __future__ import annotations

import time

from support.apiserver.http_api import response_when_served, server_pair
from support.comparison.rule_cases import comparable, steps


def test_validation_rules_respond_like_kube_apiserver(tmp_path):
    differences = []
    with server_pair(tmp_path) as servers:
        for step in steps():
            real, ours = (comparable(response_when_served(server, step)) for server in (servers.real, servers.ours))
            if real != ours:
                differences.append(f"{step.method} {step.about}: real {real}, ours {ours}")
            if step.settle:
                assert real["status"] < 300, real
                time.sleep(1)  # until kube-apiserver has reloaded its definitions
    assert differences == []
