"""A request to the API server and its answer, free of any HTTP library."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

if TYPE_CHECKING:
    from kubeloop.devcluster.api.deferred_work import Deferred
    from kubeloop.devcluster.api.request_info import RequestInfo

JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
KEY_SET_TYPE = "application/jwk-set+json"
_encode = msgspec.json.Encoder().encode


_BAD_PAIR = re.compile(r";|%(?![0-9a-fA-F]{2})")


def _query(text: str) -> dict[str, list[str]]:
    """The values by key; pairs that are not encoded well are left out, as by Go's url.ParseQuery."""
    if _BAD_PAIR.search(text):
        text = "&".join(pair for pair in text.split("&") if not _BAD_PAIR.search(pair))
    return parse_qs(text, keep_blank_values=True)


@dataclass(slots=True)
class Request:
    """`path` is decoded; `query` keeps every value of a key; header names are lower-case.

    warnings: what its sender is told of it, whether it succeeds or fails. user: its sender, as UserInfo, once known.
    route: the resource that it asks for, once known. deferred: what it has to wait for to be answered.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)
    user: dict[str, Any] = field(default_factory=dict)
    route: RequestInfo | None = None
    deferred: Deferred | None = None

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Request:
        """From a request target: path and query, percent-encoded."""
        path, _, query = target.partition("?")
        if "#" in target or "://" in path:
            split = urlsplit(target)
            path, query = split.path, split.query
        return cls(
            method=method,
            path=unquote(path) if "%" in path else path,
            query=_query(query) if query else {},
            headers={name.lower(): value for name, value in headers.items()} if headers else {},
            body=body,
        )

    def option(self, name: str) -> str:
        """The first value of a query parameter, "" if it is not there."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """A boolean parameter as kube-apiserver reads it: there and neither "false" nor "0"."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in ("false", "0")

    @property
    def user_agent(self) -> str:
        return self.headers.get("user-agent", "")


@dataclass(slots=True)
class Response:
    """`body` is all of it, or its chunks as they come; those are to be closed (aclose) when nobody reads on.

    caching: the Cache-Control of this answer, where it is another one than the server's usual.
    """

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON_TYPE
    headers: list[tuple[str, str]] = field(default_factory=list)
    caching: str = ""


def json_response(status: int, value: Any, headers: Sequence[tuple[str, str]] = ()) -> Response:
    return Response(status, _encode(value) + b"\n", headers=list(headers))


def text_response(status: int, text: str) -> Response:
    return Response(
        status,
        text.encode(),
        "text/plain; charset=utf-8",
        [("X-Content-Type-Options", "nosniff")] if status >= 400 else [],
    )


_WARNINGS_CHARACTERS, _WARNING_CHARACTERS = 4096, 256


def _cut(texts: list[str]) -> list[str]:
    """All up to the one that is too much, cut short; then more as long as there is room again."""
    totals = list(accumulate(map(len, texts)))
    first_too_much = next(i for i, total in enumerate(totals) if total > _WARNINGS_CHARACTERS)
    cut = [text[:_WARNING_CHARACTERS] for text in texts[: first_too_much + 1]]
    for text in texts[first_too_much + 1 :]:
        if sum(map(len, cut)) >= _WARNINGS_CHARACTERS:
            break
        cut.append(text[:_WARNING_CHARACTERS])
    return cut


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Warning headers, each text once. Those that no header can carry are left out; many long ones are cut.

    Source: apiserver endpoints/filters/warning.go and apimachinery util/net NewWarningHeader.
    """
    fit = [text for text in dict.fromkeys(texts) if not any(unicodedata.category(each) == "Cc" for each in text)]
    if sum(map(len, fit)) > _WARNINGS_CHARACTERS:
        fit = _cut(fit)
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in fit)
    return [("Warning", f'299 - "{text}"') for text in escaped]
