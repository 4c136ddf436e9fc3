"""A real kube-apiserver and ours, asked the same over connections that stay open."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.custom_resource_requests import Step
from support.real_apiserver import needs_binaries, real_apiserver

Answer = tuple[int, Any, list[str]]
"""Status, content and warnings; the content of what is no JSON is a message."""


class Asked:
    def __init__(self, connection: http.client.HTTPConnection, token: str) -> None:
        self._connection = connection
        self._token = token

    def answer(self, step: Step) -> Answer:
        accepted = {"Content-Type": step.content_type, "Accept": "application/json"}
        body = None if step.body is None else json.dumps(step.body)
        self._connection.request(step.method, step.path, body, {"Authorization": f"Bearer {self._token}", **accepted})
        answer = self._connection.getresponse()
        text = answer.read()
        content = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
        return answer.status, content, answer.headers.get_all("Warning") or []


@contextlib.contextmanager
def both_servers(folder: Path) -> Iterator[tuple[Asked, Asked]]:
    """(the real one, ours). Skips the test where there is no kube-apiserver; no traceback may be left in our log."""
    needs_binaries()
    with real_apiserver(folder / "real") as real, running_apiserver_sync(apiserver_command(folder)) as (url, log):
        trusted = http.client.HTTPSConnection(
            "127.0.0.1", real.port, context=ssl.create_default_context(cafile=str(real.ca))
        )
        ours = http.client.HTTPConnection(urlsplit(url).netloc)
        with contextlib.closing(trusted), contextlib.closing(ours):
            yield Asked(trusted, real.token), Asked(ours, TOKEN)
        assert "Traceback" not in log()
