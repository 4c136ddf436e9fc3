"""Admission policies beside a real kube-apiserver: the same answers to all requests of policy_cases.yaml."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from support.custom_resource_requests import Step
from support.policy_cases import SETTLING_SECONDS, asking, comparable, preparing
from support.real_apiserver import needs_binaries, real_apiserver
from support.serving import TOKEN, arguments, serving_plainly


def _ask(connection: http.client.HTTPConnection, token: str, step: Step) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": step.content_type, "Accept": "application/json"}
    connection.request(step.method, step.path, None if step.body is None else json.dumps(step.body), headers)
    answer = connection.getresponse()
    text = answer.read()
    content = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
    return comparable(answer.status, content, answer.headers.get_all("Warning") or [])


def test_kube_apiserver_refuses_warns_and_accepts_the_same(tmp_path):
    needs_binaries()
    with real_apiserver(tmp_path / "real") as real, serving_plainly(arguments(tmp_path)) as (url, log):
        trusted = http.client.HTTPSConnection(
            "127.0.0.1", real.port, context=ssl.create_default_context(cafile=str(real.ca))
        )
        ours = http.client.HTTPConnection(urlsplit(url).netloc)
        with contextlib.closing(trusted), contextlib.closing(ours):
            for step in preparing():
                for connection, token in ((trusted, real.token), (ours, TOKEN)):
                    answer = _ask(connection, token, step)
                    assert answer["status"] == 201, (step.about, answer)
            time.sleep(SETTLING_SECONDS)
            wrong = []
            for step in asking():
                expected, answer = _ask(trusted, real.token, step), _ask(ours, TOKEN, step)
                if expected != answer:
                    wrong.append(f"{step.method} {step.about}: {expected} there, {answer} here")
        assert "Traceback" not in log()
    assert wrong == []
