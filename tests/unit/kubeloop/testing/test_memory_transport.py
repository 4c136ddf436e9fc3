"""Transport to an API server in the same process."""

import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.testing.memory_transport import MemoryTransport


async def chunks():
    yield b"one "
    yield b"two"


async def handle(request: ApiRequest) -> Response:
    if request.path == "/lost":
        raise AnswerLost
    body = chunks() if request.path == "/watch" else request.body.upper()
    return Response(200, body, headers=(("Retry-After", "1"),))


@pytest.mark.parametrize(("path", "content"), [("/echo", b"BODY"), ("/watch", b"one two")])
async def test_request_returns_the_complete_body(path, content):
    response = await MemoryTransport(handle).send(HttpRequest("POST", path, headers={}, body=b"body"))
    assert (response.status, response.body) == (200, content)
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(("path", "content"), [("/echo", [b"BODY"]), ("/watch", [b"one ", b"two"])])
async def test_stream_yields_the_chunks(path, content):
    async with MemoryTransport(handle).stream(HttpRequest("POST", path, headers={}, body=b"body")) as response:
        assert [chunk async for chunk in response.chunks] == content


async def test_lost_response_is_a_transport_error_after_sending():
    with pytest.raises(TransportError, match="without a response") as raised:
        await MemoryTransport(handle).send(HttpRequest("GET", "/lost", headers={}))
    assert raised.value.request_sent
