"""Calls of webhooks: HTTPS requests to a URL or to a Service, with the errors of kube-apiserver's client.

Source: apiserver pkg/util/webhook/client.go, client-go rest/request.go.
"""

from __future__ import annotations

import asyncio
import math
import os
import posixpath
import ssl
from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec
from msgspec.structs import replace

from kubeloop.devcluster.outgoing.service_addresses import Address, ServiceAddresses, UnresolvedService
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.tls_verification import client_context, verification_message
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, TransportError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.kube.validation.field_errors import quoted

if TYPE_CHECKING:
    from kubeloop.devcluster.outgoing.webhook_credentials import WebhookCredentials, WebhookUser
    from kubeloop.kube.client.asyncio_transport import AsyncioTransport

_MAX_CLIENTS = 200
_MAX_REDIRECTS = 10
_MAX_MESSAGE_BYTES = 2048
_HEADERS = {
    "accept": "application/json, */*",
    "content-type": "application/json",
    "user-agent": "kube-apiserver-admission",
}


class CallFailed(Exception):
    """A webhook has not responded, or with an error. The text is Go's; code: of the error, as metrics show it."""

    def __init__(self, message: str, code: int = 503) -> None:
        super().__init__(message)
        self.code = code


class WebhookClient:
    """Connections to the webhooks of one server. Used on one event loop.

    credentials: for the webhooks of each type of call ("admit", "validating").
    """

    def __init__(
        self, addresses: ServiceAddresses, credentials: Mapping[str, WebhookCredentials] = MappingProxyType({})
    ) -> None:
        self._addresses = addresses
        self._credentials = credentials
        self._transports: dict[tuple[Endpoint, str, str], AsyncioTransport] = {}  # least recently used first

    async def post(self, config: JSON, body: bytes, seconds: float, call_type: str = "") -> bytes:
        """Return the body of the response to a POST; redirects are followed. config: a WebhookClientConfig.

        call_type: selects the credentials. seconds: time limit of the call, which the webhook gets as its parameter
        `timeout`. Raises CallFailed.
        """
        call = _Call("POST", f"{_url(config)}?timeout={math.ceil(seconds)}s", body)
        user = self._user(call, call_type)
        try:
            async with asyncio.timeout(seconds):
                response = await self._send(call, config, user, seconds)
                while (redirected := call.redirected(response)) is not None:
                    call = redirected
                    response = await self._send(call, config, user, seconds)
        except TimeoutError:
            raise CallFailed(f"{call.error_prefix}: context deadline exceeded") from None
        if not 200 <= response.status <= 206:
            raise _failure(response)
        if not response.body:
            kind = response.headers.get("content-type", "")
            raise CallFailed(f"0-length response with status code: {response.status} and content type: {kind}")
        return response.body

    def _user(self, call: _Call, call_type: str) -> WebhookUser | None:
        credentials = self._credentials.get(call_type)
        return None if credentials is None else credentials.user(*_host_and_port(urlsplit(call.url)))

    async def _send(self, call: _Call, config: JSON, user: WebhookUser | None, seconds: float) -> HttpResponse:
        """Send one request. Raises CallFailed, TimeoutError."""
        parts = urlsplit(call.url)
        host, port = _host_and_port(parts)
        service = config.get("service")
        tls_name = _service_host(service) if service else host  # of a Service, also after a redirect
        try:
            if service and (host, port) == (tls_name, service.get("port") or 443):
                address = self._addresses.of_service(service["namespace"], service["name"], port)
            else:
                address = self._addresses.of_host(host, port)
            name = tls_name if parts.scheme == "https" else ""
            transport = await self._transport(
                Endpoint(host, port, tls_name=name, address=address), config.get("caBundle") or "", user
            )
            target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            headers = _HEADERS if user is None else _HEADERS | user.headers()
            return await transport.send(HttpRequest(call.method, target, headers, call.body, seconds))
        except (UnresolvedService, UserError) as error:
            raise CallFailed(f"{call.error_prefix}: {error}") from None
        except ssl.SSLError as error:
            raise CallFailed(f"unable to load root certificates: {error}", 500) from None
        except TransportError as error:
            raise CallFailed(f"{call.error_prefix}: {go_message(error, address)}") from None

    async def _transport(self, endpoint: Endpoint, ca: str, user: WebhookUser | None) -> AsyncioTransport:
        """Return the connections to an endpoint, created on first use: with TLS if it has a TLS name.

        Raises SSLError for an invalid bundle, UserError for an invalid client certificate.
        """
        from kubeloop.kube.client.asyncio_transport import AsyncioTransport  # few clusters have webhooks

        key = (endpoint, ca, "" if user is None else user.name)
        transport = self._transports.pop(key, None)
        if transport is None:
            tls = client_context(b64decode(ca).decode(errors="replace")) if endpoint.tls_name else None
            if tls is not None and user is not None:
                user.load_certificate(tls)
            transport = AsyncioTransport(replace(endpoint, tls=tls), http2=False)
            if len(self._transports) >= _MAX_CLIENTS:
                await self._transports.pop(next(iter(self._transports))).close()
        self._transports[key] = transport
        return transport

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()


def _host_and_port(parts: SplitResult) -> tuple[str, int]:
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


class _Call(NamedTuple):
    """One request of a call. redirects: number of responses that led to it."""

    method: str
    url: str
    body: bytes
    redirects: int = 0

    @property
    def error_prefix(self) -> str:
        return f"Post {quoted(self.url)}"

    def redirected(self, response: HttpResponse) -> _Call | None:
        """Return the request to which a response redirects, None for other responses. Raises CallFailed.

        Source: the client of net/http.
        """
        location = response.headers.get("location", "")
        if response.status not in (301, 302, 303, 307, 308) or not location:
            return None
        if self.redirects >= _MAX_REDIRECTS - 1:
            raise CallFailed(f"Post {quoted(location)}: stopped after {_MAX_REDIRECTS} redirects")
        is_repeated = response.status in (307, 308)
        method, body = (self.method, self.body) if is_repeated else ("GET", b"")
        return _Call(method, urljoin(self.url, location), body, self.redirects + 1)


def _service_host(service: JSON) -> str:
    return f"{service['name']}.{service['namespace']}.svc"


def _url(config: JSON) -> str:
    """Return the URL of a webhook without its query."""
    if service := config.get("service"):
        return f"https://{_service_host(service)}:{service.get('port') or 443}{_path(service.get('path') or '')}"
    parts = urlsplit(config["url"])
    return f"{parts.scheme}://{parts.netloc}{_path(parts.path)}"


def _path(path: str) -> str:
    """Return a cleaned path, as client-go does."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


# --- errors -----------------------------------------------------------------------------------------------------------


def go_message(error: TransportError, address: Address) -> str:
    """Return Go's text for a request without a response."""
    cause: BaseException | None = error
    while isinstance(cause, TransportError):
        cause = cause.__cause__
    match cause:
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: {verification_message(cause)}"
        case ssl.SSLError() if cause.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return "http: server gave HTTP response to HTTPS client"
        case ssl.SSLError():
            return f"remote error: tls: {(cause.reason or str(cause)).lower().replace('_', ' ')}"
        case TimeoutError():
            return "context deadline exceeded"
        case ConnectionResetError() | BrokenPipeError():
            return "EOF"
        case OSError() if cause.errno is not None and cause.errno > 0:
            host = "127.0.0.1" if address[0] == "localhost" else address[0]
            host = f"[{host}]" if ":" in host else host
            return f"dial tcp {host}:{address[1]}: connect: {os.strerror(cause.errno).lower()}"
        case OSError() | UnicodeError():
            return f"dial tcp: lookup {address[0]}: no such host"
    return "context deadline exceeded" if "timed out" in str(error) else "EOF"


_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


def _failure(response: HttpResponse) -> CallFailed:
    """Return the error of a response with an error status. Source: apimachinery's NewGenericServerResponse."""
    if (status := _failure_status(response.body)) is not None:
        return CallFailed(str(status.get("message", "")), int(status.get("code") or 0))
    code, text = response.status, _text(response.headers, response.body)
    if code in (403, 415) or (code == 406 and text not in ("", "unknown")):
        message = text
    elif code == 406:
        message = "the server was unable to respond with a content type that the client supports"
    elif code in _MESSAGES:
        message = _MESSAGES[code]
    elif code >= 500:
        message = f"an error on the server ({quoted(text)}) has prevented the request from succeeding"
    else:
        message = f"the server responded with the status code {code} but did not return more information"
    return CallFailed(message, code)


def _failure_status(body: bytes) -> JSON | None:
    """Return the body if it is a metav1.Status of a failure."""
    try:
        status: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    is_status = isinstance(status, dict) and status.get("kind") == "Status" and status.get("status") == "Failure"
    return status if is_status else None


def _text(headers: Mapping[str, str], body: bytes) -> str:
    if not headers.get("content-type", "text/plain").startswith("text/"):
        return "unknown"
    return body[:_MAX_MESSAGE_BYTES].decode(errors="replace").strip()
