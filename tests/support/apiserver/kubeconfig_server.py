"""Handler and request for tests of credentials."""

from __future__ import annotations

from kubeloop.kube.client.transport import HttpRequest


async def require_token(request):
    """Respond with 200 if the token is "right", else with 401."""
    right = request.headers.get("authorization") == "Bearer right"
    await request.respond(200 if right else 401, request.headers.get("authorization", "").encode())


async def fetch_version(transport):
    try:
        return await transport.send(HttpRequest("GET", "/version", headers={}, timeout_seconds=5))
    finally:
        await transport.close()
