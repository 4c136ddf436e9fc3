"""Rules of custom resources beside a real kube-apiserver: some 700 requests, and the same answers to all of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from support.custom_resource_requests import Step
from support.real_apiserver import needs_binaries, real_apiserver
from support.rule_cases import comparable, steps
from support.serving import TOKEN, arguments, serving_plainly

_PATIENCE_SECONDS = 20.0


def _ask(connection: http.client.HTTPConnection, token: str, step: Step) -> Any:
    """A definition is served some time after it has been accepted: until then there is a 404 or 429."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": step.content_type, "Accept": "application/json"}
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        connection.request(step.method, step.path, None if step.body is None else json.dumps(step.body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (404, 429) or time.monotonic() > until:
            break
        time.sleep(0.2)
    content = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
    return comparable(answer.status, content, answer.headers.get_all("Warning") or [])


def test_kube_apiserver_says_the_same_of_rules_and_of_what_breaks_them(tmp_path):
    needs_binaries()
    with real_apiserver(tmp_path / "real") as real, serving_plainly(arguments(tmp_path)) as (url, log):
        trusted = http.client.HTTPSConnection(
            "127.0.0.1", real.port, context=ssl.create_default_context(cafile=str(real.ca))
        )
        ours = http.client.HTTPConnection(urlsplit(url).netloc)
        with contextlib.closing(trusted), contextlib.closing(ours):
            wrong = []
            for step in steps():
                expected, answer = _ask(trusted, real.token, step), _ask(ours, TOKEN, step)
                if expected != answer:
                    wrong.append(f"{step.method} {step.about}: {expected} there, {answer} here")
                if step.settle:
                    assert expected["status"] < 300, expected
                    time.sleep(1)  # the real server reads its definitions again
        assert "Traceback" not in log()
    assert wrong == []
