"""Requests to the API server and responses, independent of any HTTP library."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

if TYPE_CHECKING:
    from kubeloop.devcluster.api.audit_record import AuditRecord
    from kubeloop.devcluster.api.request_info import RequestInfo
    from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection

JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
KEY_SET_TYPE = "application/jwk-set+json"
_encode = msgspec.json.Encoder().encode


_BAD_PAIR = re.compile(r";|%(?![0-9a-fA-F]{2})")


@lru_cache(maxsize=256)
def _query(text: str) -> Mapping[str, Sequence[str]]:
    """Return the values by key without badly encoded pairs, as Go's url.ParseQuery."""
    if _BAD_PAIR.search(text):
        text = "&".join(pair for pair in text.split("&") if not _BAD_PAIR.search(pair))
    return parse_qs(text, keep_blank_values=True)


class ApiRequest(msgspec.Struct):
    """A request. `path` is decoded; `query` has all values of a key; header names are lower-case.

    warnings: Warning headers of the response, in case of success and failure. user: the authenticated user as UserInfo,
    once known. route: the requested resource, once known. certificates: those of the client, in DER, its own first, not
    yet verified; () without TLS. target: path and query as they were sent. client_address: of the connection, "" if
    there is none. audit: reports to the audit log, None if it does not log the request. annotations: of its events, set
    before the log knows whether it does.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    warnings: list[str] = []
    user: dict[str, Any] = {}
    route: RequestInfo | None = None
    certificates: tuple[bytes, ...] = ()
    target: str = ""
    client_address: str = ""
    audit: AuditRecord | None = None
    annotations: dict[str, str] | None = None

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> ApiRequest:
        """Create a request from a request target: path and query, percent-encoded."""
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
            target=target,
        )

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation of the request's audit events; the first value of a key remains."""
        if self.audit is not None:
            self.audit.annotate(key, value)
        else:
            self.annotations = {key: value, **(self.annotations or {})}

    @property
    def wants_websocket(self) -> bool:
        """True for a request that upgrades its connection to a WebSocket."""
        if self.headers.get("upgrade", "").lower() != "websocket":
            return False
        return "upgrade" in self.headers.get("connection", "").lower()

    def option(self, name: str) -> str:
        """Return the first value of a query parameter, or ""."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return a boolean parameter as kube-apiserver does: present and neither "false" nor "0"."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in ("false", "0")

    @property
    def user_agent(self) -> str:
        return self.headers.get("user-agent", "")


class Response(msgspec.Struct):
    """A response. `body` is complete, or an iterator of chunks, which must be closed (aclose) if it is not exhausted.

    caching: Cache-Control of this response, if it differs from the server's default. upgrade: serves the connection
    after this response, which has status 101.
    """

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON_TYPE
    headers: list[tuple[str, str]] = []
    caching: str = ""
    upgrade: Callable[[UpgradedConnection], Awaitable[None]] | None = None


PendingResponse = Callable[[], Awaitable[Response]]
"""Completes a response that has to wait; called once."""


def json_response(status: int, value: Any, headers: Sequence[tuple[str, str]] = ()) -> Response:
    return Response(status, _encode(value) + b"\n", headers=list(headers))


def text_response(status: int, text: str) -> Response:
    return Response(
        status,
        text.encode(),
        "text/plain; charset=utf-8",
        [("X-Content-Type-Options", "nosniff")] if status >= 400 else [],
    )


_MAX_TOTAL_WARNING_LENGTH, _MAX_WARNING_LENGTH = 4096, 256


def _truncate_warnings(warnings: list[str]) -> list[str]:
    """Truncate warnings: all up to the one that exceeds the total, then more while there is room."""
    totals = list(accumulate(map(len, warnings)))
    first_too_much = next(i for i, total in enumerate(totals) if total > _MAX_TOTAL_WARNING_LENGTH)
    cut = [text[:_MAX_WARNING_LENGTH] for text in warnings[: first_too_much + 1]]
    for text in warnings[first_too_much + 1 :]:
        if sum(map(len, cut)) >= _MAX_TOTAL_WARNING_LENGTH:
            break
        cut.append(text[:_MAX_WARNING_LENGTH])
    return cut


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Return Warning headers without duplicates and without warnings that no header can carry; long ones are truncated.

    Source: apiserver endpoints/filters/warning.go and apimachinery util/net NewWarningHeader.
    """
    valid = [text for text in dict.fromkeys(warnings) if not any(unicodedata.category(char) == "Cc" for char in text)]
    if sum(map(len, valid)) > _MAX_TOTAL_WARNING_LENGTH:
        valid = _truncate_warnings(valid)
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in valid)
    return [("Warning", f'299 - "{text}"') for text in escaped]
