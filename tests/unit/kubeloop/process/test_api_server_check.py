"""What is said about an API server that does not do as it should."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.transport import Response, TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import UserError
from kubeloop.process.api_server_check import check_api_server

URL = "https://10.0.0.1:6443"


class AnsweringTransport:
    """Answers every request in the same way."""

    server = URL

    def __init__(self, answer):
        self._answer = answer

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def lost(problem):
    return TransportError(f"{URL}: {problem}", request_sent=False)


def status(code, message):
    return Response(code, b'{"kind": "Status", "code": %d, "message": "%s"}' % (code, message))


@pytest.mark.parametrize(
    ("answer", "problem", "hint"),
    [
        pytest.param(
            lost("[Errno 111] Connection refused"),
            f"the API server {URL} does not respond: Connection refused",
            "check that it is running",
            id="nobody listens",
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
            Response(404, b"<html>\n<p>not found</p></html>"),
            f"{URL} is not a Kubernetes API server",
            "check the server",
            id="another server",
        ),
        pytest.param(
            status(418, b"a teapot"), f"the API server {URL} responds 418: a teapot", "try again", id="anything else"
        ),
    ],
)
async def test_failed_check_raises_one_line_error_with_hint(answer, problem, hint):
    client = Client(AnsweringTransport(answer), clock=SystemClock(), rng=random.Random(1))
    with pytest.raises(UserError) as told:
        await check_api_server(client, URL)
    assert str(told.value) == problem
    assert hint in told.value.hint


async def test_check_passes_for_a_reachable_server():
    client = Client(AnsweringTransport(Response(200, b"{}")), clock=SystemClock(), rng=random.Random(1))
    await check_api_server(client, URL)
