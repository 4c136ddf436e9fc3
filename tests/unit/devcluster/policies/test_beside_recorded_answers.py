"""The requests of tests/support/policy_cases.yaml, sent to a server in memory: it answers as kube-apiserver did.

`policy_answers.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_admission_policies.py sends the
same requests to an installed kube-apiserver.
"""

import json
import random
from pathlib import Path

from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock
from support import policy_cases
from support.custom_resource_requests import Step
from support.policy_cases import asking, comparable, preparing

ANSWERS = Path(policy_cases.__file__).parent / "policy_answers.json"


def _answer(server: ApiServer, step: Step) -> Response:
    body = b"" if step.body is None else json.dumps(step.body).encode()
    return server.handle_now(Request.of(step.method, step.path, {"Content-Type": step.content_type}, body))


async def test_policies_refuse_warn_and_change_as_at_kube_apiserver():
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    for step in preparing():
        assert _answer(server, step).status == 201, step
    wrong = []
    for step, recorded in zip(asking(), json.loads(ANSWERS.read_text()), strict=True):
        response = _answer(server, step)
        assert isinstance(response.body, bytes)
        content = json.loads(response.body) if response.body.startswith(b"{") else {"message": response.body.decode()}
        warnings = [value for name, value in response.headers if name == "Warning"]
        answer = {"step": step.about, **comparable(response.status, content, warnings)}
        if answer != recorded:
            wrong.append(f"{recorded} there, {answer} here")
    assert wrong == []
