"""Requests whose responses of kube-apiserver and of the development API server are compared.

Compared are status, content type, warnings and body, without what each server generates: UIDs, times, names, resource
versions, continue tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote

from support.apiserver.http_api import JSON_TYPE, HttpApi, ServerPair
from support.objects.token_volumes import masked_token_volumes


class Request(NamedTuple):
    """A request. A body that is text is sent unchanged. headers: further ones, such as those of impersonation."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


def check_responses(servers: ServerPair, requests: Iterable[Request]) -> None:
    """Send all requests to both servers. Raises AssertionError with every request whose responses differ."""
    requests = list(requests)

    def responses(server: HttpApi) -> list[Any]:
        return [comparable_response(server, request) for request in requests]

    with ThreadPoolExecutor(2) as executor:
        real, ours = executor.map(responses, (servers.real, servers.ours))
    different = [
        f"{request}\n  real {json.dumps(real_response)}\n  ours {json.dumps(our_response)}"
        for request, real_response, our_response in zip(requests, real, ours, strict=True)
        if real_response != our_response
    ]
    assert not different, f"{len(different)} of {len(requests)}:\n" + "\n".join(different)


def comparable_response(server: HttpApi, request: Request) -> Any:
    path = quote(request.path, safe="/?&=%,*~()!$;")
    response = server.request(request.method, path, request.body, request.content_type, request.accept, request.headers)
    content = response.content
    if type(content) is str and "json" in response.media_type:
        content = [json.loads(line) for line in content.splitlines()]
    warnings = [_masked(warning) for warning in sorted(response.warnings)]
    return [response.status, response.media_type, warnings, _masked(masked_token_volumes(content))]


_MASKS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(uid)"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)"), "(time)"),
    (re.compile(r"127\.0\.0\.1:\d+"), "(server)"),
    (re.compile(r' in scheme "[^"]*"'), ""),
    (re.compile(r'Invalid value: "\{.*\}": ', re.DOTALL), "Invalid value: (an object): "),
    (re.compile(r"(?<=ResourceVersion in object meta: )\d+|(?<=, current: )\d+|(?<= in record \()\d+"), "(version)"),
    (re.compile(r'(?<="resourceVersion":")\d+|(?<="resourceVersion": ")\d+'), "(version)"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "(token)"),
    (re.compile(r"(g-|y{58})[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1(generated)"),
)


_AGE = re.compile(r"(\d+m)?\d+s")  # the servers may process a request in different seconds


def _sorted_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _masked(value: Any, field: str = "") -> Any:
    """Return a value without generated parts, and with sorted managed fields and causes."""
    if type(value) is dict:
        return {name: _masked(inner, name) for name, inner in value.items()}
    if type(value) is list:
        inner = [_masked(item, "cell" if field == "cells" else "") for item in value]
        return sorted(inner, key=_sorted_text) if field in ("managedFields", "causes") else inner
    if field in ("resourceVersion", "continue") and value not in ("", "0"):
        return "(version)"
    if field == "retryAfterSeconds":  # of a storage that is initialized, it grows with time
        return "(seconds)"
    if field == "cell" and type(value) is str and _AGE.fullmatch(value):
        return "(age)"
    if type(value) is str:
        for pattern, replacement in _MASKS:
            value = pattern.sub(replacement, value)
    return value
