"""The requests of tests/support/custom_resource_requests.py, sent to a server in memory: kube-apiserver's responses.

`custom_resource_answers.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_custom_resources.py
sends the same requests to an installed kube-apiserver.
"""

import json
import random
from pathlib import Path

from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock
from support import custom_resource_requests
from support.custom_resource_requests import comparable, differences, steps

ANSWERS = Path(custom_resource_requests.__file__).parent / "custom_resource_answers.json"


async def test_every_answer_is_that_of_kube_apiserver():
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    expected = json.loads(ANSWERS.read_text())
    wrong = []
    for step, recorded in zip(steps(), expected, strict=True):
        headers = {"Content-Type": step.content_type, "Accept": step.accept, "User-Agent": "tester/1"}
        body = b"" if step.body is None else json.dumps(step.body).encode()
        response = server.handle_now(Request.of(step.method, step.path, headers, body))
        assert isinstance(response.body, bytes)
        content = (
            json.loads(response.body) if response.body.startswith(b"{") else response.body.decode(errors="replace")
        )
        warnings = [value for name, value in response.headers if name == "Warning"]
        answer = {"step": step.about, **comparable(step, response.status, content, warnings)}
        wrong += [f"{step.about}: {each}" for each in differences(recorded, answer)]
    assert wrong == []
