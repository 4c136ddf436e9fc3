"""The requests of tests/support/rule_cases.py, sent to a server in memory: it answers as kube-apiserver did.

`rule_answers.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_validation_rules.py sends the same
requests to an installed kube-apiserver.
"""

import json
import random
from pathlib import Path

from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock
from support import rule_cases
from support.rule_cases import comparable, steps

ANSWERS = Path(rule_cases.__file__).parent / "rule_answers.json"


async def test_rules_are_accepted_refused_broken_and_kept_as_by_kube_apiserver():
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    expected = json.loads(ANSWERS.read_text())
    wrong = []
    for step, recorded in zip(steps(), expected, strict=True):
        body = b"" if step.body is None else json.dumps(step.body).encode()
        response = server.handle_now(Request.of(step.method, step.path, {"Content-Type": step.content_type}, body))
        assert isinstance(response.body, bytes)
        content = json.loads(response.body)
        warnings = [value for name, value in response.headers if name == "Warning"]
        answer = {"step": step.about, **comparable(response.status, content, warnings)}
        if answer != recorded:
            wrong.append(f"{recorded} there, {answer} here")
    assert wrong == []
