"""A request to the API server and its answer, free of any HTTP library."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

JSON_TYPE = "application/json"
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Request:
    """`path` is decoded; `query` keeps every value of a key; header names are lower-case."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

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
            query=parse_qs(query, keep_blank_values=True) if query else {},
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
    """`body` is all of it, or its chunks as they come; those are to be closed (aclose) when nobody reads on."""

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON_TYPE
    headers: list[tuple[str, str]] = field(default_factory=list)


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


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Warning headers, each text once. Those that no header can carry are left out; many long ones are cut.

    Source: apiserver endpoints/filters/warning.go and apimachinery util/net NewWarningHeader.
    """
    fit = [text for text in dict.fromkeys(texts) if not any(unicodedata.category(each) == "Cc" for each in text)]
    if sum(map(len, fit)) > _WARNINGS_CHARACTERS:
        fit = [text[:_WARNING_CHARACTERS] for text in fit][: _WARNINGS_CHARACTERS // _WARNING_CHARACTERS]
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in fit)
    return [("Warning", f'299 - "{text}"') for text in escaped]
