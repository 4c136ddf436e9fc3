"""The same custom resource requests to a real kube-apiserver and to ours: the same responses."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.custom_resource_requests import Step, comparable, differences, steps
from support.real_apiserver import needs_binaries, real_apiserver


def _ask(connection: http.client.HTTPConnection, token: str, step: Step) -> Any:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": step.content_type,
        "Accept": step.accept,
        "User-Agent": "tester/1",
    }
    while True:
        connection.request(step.method, step.path, None if step.body is None else json.dumps(step.body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 429:  # storage is (re)initializing
            break
        time.sleep(1)
    content = json.loads(text) if text.startswith(b"{") else text.decode(errors="replace")
    return comparable(step, answer.status, content, answer.headers.get_all("Warning") or [])


def _settle(connection: http.client.HTTPConnection, token: str) -> None:
    """Give the real server's controllers time: they look again every few seconds, or when they hear of a change."""
    names = Step("", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    before = None
    for _ in range(20):
        time.sleep(0.5)
        now = _ask(connection, token, names)
        if now == before:
            return
        before = now


def test_kube_apiserver_gives_the_same_answers(tmp_path):
    needs_binaries()
    with real_apiserver(tmp_path / "real") as real, running_apiserver_sync(apiserver_command(tmp_path)) as (url, _):
        trusted = http.client.HTTPSConnection(
            "127.0.0.1", real.port, context=ssl.create_default_context(cafile=str(real.ca))
        )
        ours = http.client.HTTPConnection(urlsplit(url).netloc)
        with contextlib.closing(trusted), contextlib.closing(ours):
            wrong = []
            for step in steps():
                expected, answer = _ask(trusted, real.token, step), _ask(ours, TOKEN, step)
                wrong += [f"{step.about}: {each}" for each in differences(expected, answer)]
                if step.settle:
                    _settle(trusted, real.token)
    assert wrong == []
