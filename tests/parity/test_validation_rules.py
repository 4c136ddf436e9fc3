"""Rules of custom resources beside a real kube-apiserver: some 800 requests, and the same answers to all of them."""

from __future__ import annotations

import time

from support.both_servers import Answer, Asked, both_servers
from support.custom_resource_requests import Step
from support.rule_cases import comparable, steps

_PATIENCE_SECONDS = 20.0


def _answer(server: Asked, step: Step) -> Answer:
    """A definition is served some time after it has been accepted: until then there is a 404 or 429."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := server.answer(step))[0] in (404, 429) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def test_kube_apiserver_says_the_same_of_rules_and_of_what_breaks_them(tmp_path):
    wrong = []
    with both_servers(tmp_path) as (real, ours):
        for step in steps():
            expected, answer = comparable(*_answer(real, step)), comparable(*_answer(ours, step))
            if expected != answer:
                wrong.append(f"{step.method} {step.about}: {expected} there, {answer} here")
            if step.settle:
                assert expected["status"] < 300, expected
                time.sleep(1)  # the real server reads its definitions again
    assert wrong == []
