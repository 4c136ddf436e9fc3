"""Errors of an API server that is unreachable, denies access or is another server."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpResponse, TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError
from kubeloop.process.api_server_check import check_api_server

URL = "https://10.0.0.1:6443"


class StubTransport:
    """Returns or raises the same for every request whose target contains a text; others succeed."""

    server = URL

    def __init__(self, response, of=""):
        self._response = response
        self._of = of

    async def send(self, request):
        if self._of not in request.target:
            return HttpResponse(200, b"{}")
        if isinstance(self._response, Exception):
            raise self._response
        return self._response


def lost(problem):
    return TransportError(f"{URL}: {problem}", request_sent=False)


def status(code, message):
    return HttpResponse(code, b'{"kind": "Status", "code": %d, "message": "%s"}' % (code, message))


@pytest.mark.parametrize(
    ("response", "problem", "hint"),
    [
        pytest.param(
            lost("[Errno 111] Connection refused"),
            f"the API server {URL} does not respond: Connection refused",
            "check that it is running",
            id="connection refused",
        ),
        pytest.param(
            lost("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"),
            f"the certificate of the API server {URL} is not trusted: self-signed certificate",
            "certificate-authority",
            id="certificate",
        ),
        pytest.param(
            status(401, b"Unauthorized"),
            f"the API server {URL} denies access: Unauthorized",
            "check the user",
            id="unknown user",
        ),
        pytest.param(
            status(403, b"nodes is forbidden"),
            f"the API server {URL} denies access: nodes is forbidden",
            "permissions",
            id="forbidden",
        ),
        pytest.param(
            HttpResponse(404, b"<html>\n<p>not found</p></html>"),
            f"{URL} is not a Kubernetes API server",
            "check the server",
            id="another server",
        ),
        pytest.param(
            status(418, b"a teapot"), f"the API server {URL} responds 418: a teapot", "try again", id="anything else"
        ),
    ],
)
async def test_failed_check_raises_one_line_error_with_hint(response, problem, hint):
    client = ApiClient(StubTransport(response), clock=SystemClock(), rng=random.Random(1))
    with pytest.raises(UserError) as raised:
        await check_api_server(client, URL)
    assert str(raised.value) == problem
    assert hint in raised.value.hint


async def test_check_passes_for_a_reachable_server():
    client = ApiClient(StubTransport(HttpResponse(200, b"{}")), clock=SystemClock(), rng=random.Random(1))
    await check_api_server(client, URL)


async def test_nodes_are_not_listed_for_a_process_without_them():
    transport = StubTransport(status(403, b"nodes is forbidden"), of="nodes")
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random(1))
    with pytest.raises(UserError):
        await check_api_server(client, URL)
    await check_api_server(client, URL, lists_nodes=False)
