"""Admission policies beside a real kube-apiserver: the same answers to all requests of policy_cases.yaml."""

from __future__ import annotations

import time

from support.both_servers import both_servers
from support.policy_cases import SETTLING_SECONDS, asking, comparable, preparing


def test_kube_apiserver_refuses_warns_and_accepts_the_same(tmp_path):
    wrong = []
    with both_servers(tmp_path) as (real, ours):
        for step in preparing():
            for server in (real, ours):
                status, content, _ = server.answer(step)
                assert status == 201, (step.about, content)
        time.sleep(SETTLING_SECONDS)
        for step in asking():
            expected, answer = comparable(*real.answer(step)), comparable(*ours.answer(step))
            if expected != answer:
                wrong.append(f"{step.method} {step.about}: {expected} there, {answer} here")
    assert wrong == []
