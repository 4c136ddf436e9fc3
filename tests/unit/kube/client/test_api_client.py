"""Verbs, errors and retries of the client, over a transport with scripted responses. Time is virtual."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube import errors
from kubeloop.kube.client.api_client import ApiClient, LineSplitter, PatchType, UnreadableObject
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.client.transport import HttpResponse, StreamedResponse, TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES, PODS
from kubeloop.tracing.spans.traceparent import TraceContext

pytestmark = pytest.mark.virtual_time

POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}}
LOST = TransportError("lost", request_sent=True)
NOT_SENT = TransportError("refused", request_sent=False)


def status(code: int, reason: str, **more: Any) -> HttpResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, **more}
    return HttpResponse(code, json.dumps(body).encode())


def ok(value: Any, code: int = 200) -> HttpResponse:
    return HttpResponse(code, json.dumps(value).encode())


@dataclass
class ScriptedTransport:
    """A Transport that returns the next of `responses`, then the last one again."""

    responses: list[Any]
    sent: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    takes_seconds: float = 0.0
    chunks: list[bytes | Exception] = field(default_factory=list)

    async def send(self, request):
        self.sent.append(
            {"method": request.method, "target": request.target, "headers": dict(request.headers), "body": request.body}
        )
        self.times.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.takes_seconds)
        finally:
            self.under_way -= 1
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        return response

    @asynccontextmanager
    async def stream(self, request):
        self.sent.append(
            {"method": request.method, "target": request.target, "headers": dict(request.headers), "body": request.body}
        )
        response = self.responses[0]
        if isinstance(response, Exception):
            raise response
        yield StreamedResponse(response.status, response.headers, self._chunks(response))

    async def _chunks(self, response: HttpResponse) -> AsyncIterator[bytes]:
        for chunk in self.chunks or [response.body]:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def close(self) -> None:
        pass


def client_of(*responses: Any, **options: Any) -> tuple[ApiClient, ScriptedTransport]:
    transport = ScriptedTransport(list(responses), takes_seconds=options.pop("takes_seconds", 0.0))
    return ApiClient(transport, clock=SystemClock(), rng=random.Random(1), **options), transport


async def test_verbs_send_their_requests():
    client, transport = client_of(ok(POD))
    patch = {"metadata": {"labels": {"a": "b"}}}
    await client.get(PODS, "a", "n", resource_version="0")
    await client.get_raw(PODS, "a b", "n", subresource="scale")
    await client.create(PODS, POD, "n", query={"fieldValidation": "Strict"})
    await client.create_raw(PODS, b'{"a":1}', "n", name="a", subresource="binding")
    await client.update(NODES, "x", {"a": 1}, subresource="status")
    await client.patch(PODS, "a", patch, PatchType.STRATEGIC, "n")
    await client.patch(PODS, "a", POD, PatchType.APPLY, "n", query={"fieldManager": "me", "force": "true"})
    await client.delete(PODS, "a", "n")
    await client.delete(PODS, "a", "n", grace_period_seconds=0, propagation_policy="Orphan", precondition_uid="u")
    await client.delete_collection(PODS, "n", label_selector="a in (b,c)")
    sent = [(request["method"], request["target"]) for request in transport.sent]
    assert sent == [
        ("GET", "/api/v1/namespaces/n/pods/a?resourceVersion=0"),
        ("GET", "/api/v1/namespaces/n/pods/a%20b/scale"),
        ("POST", "/api/v1/namespaces/n/pods?fieldValidation=Strict"),
        ("POST", "/api/v1/namespaces/n/pods/a/binding"),
        ("PUT", "/api/v1/nodes/x/status"),
        ("PATCH", "/api/v1/namespaces/n/pods/a"),
        ("PATCH", "/api/v1/namespaces/n/pods/a?fieldManager=me&force=true"),
        ("DELETE", "/api/v1/namespaces/n/pods/a"),
        ("DELETE", "/api/v1/namespaces/n/pods/a"),
        ("DELETE", "/api/v1/namespaces/n/pods?labelSelector=a%20in%20%28b%2Cc%29"),
    ]
    headers = [request["headers"] for request in transport.sent]
    assert headers[0] == {"accept": "application/json", "user-agent": "kubeloop"}
    assert headers[2]["content-type"] == "application/json"
    assert headers[5]["content-type"] == "application/strategic-merge-patch+json"
    assert headers[6]["content-type"] == "application/apply-patch+yaml"
    bodies = [request["body"] for request in transport.sent]
    assert bodies[3] == b'{"a":1}'
    assert json.loads(bodies[5]) == patch
    assert bodies[7] == b""
    assert json.loads(bodies[8]) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u"},
    }


async def test_requests_have_the_trace_context_of_the_running_task_if_traced():
    untraced, transport = client_of(ok(POD))
    context = TraceContext("1" * 32, "2" * 16, True)
    current_span.set(context)
    await untraced.get(PODS, "a", "n")
    assert "traceparent" not in transport.sent[0]["headers"]
    client, transport = client_of(ok(POD), trace_requests=True)
    await client.get(PODS, "a", "n")
    await client.create(PODS, POD, "n")
    await client.raw("GET", "/api", headers={"accept": "text/html"})
    async with client.watch(PODS):
        current_span.set(None)
    await client.get(PODS, "a", "n")
    headers = [request["headers"] for request in transport.sent]
    assert [sent.get("traceparent") for sent in headers] == [*[context.traceparent] * 3, None, None]
    assert headers[2]["accept"] == "text/html"


async def test_responses_are_decoded_to_resource_type():
    client, _ = client_of(ok(POD))
    pod = await client.get(PODS, "a", "n")
    assert isinstance(pod, api_types.Pod)
    assert pod.key == "n/a"
    assert await client.get(CONFIG_MAPS, "a", "n") == POD


@pytest.mark.parametrize(
    ("response", "type_"),
    [
        (status(404, "NotFound"), errors.NotFound),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(409, "Conflict"), errors.Conflict),
        (status(410, "Expired"), errors.Gone),
        (status(422, "Invalid"), errors.Invalid),
        (status(403, "SomethingNew"), errors.Forbidden),
        (status(418, "Teapot"), errors.ApiError),
        (HttpResponse(400, b"<html>no</html>"), errors.BadRequest),
        (HttpResponse(404, b""), errors.NotFound),
    ],
    ids=str,
)
async def test_error_status_raises_typed_error_without_retry(response, type_):
    client, transport = client_of(response)
    with pytest.raises(errors.ApiError) as raised:
        await client.create(PODS, POD, "n")
    assert type(raised.value) is type_
    assert raised.value.code == response.status
    assert len(transport.sent) == 1


async def test_non_api_response_is_unreadable_response():
    client, _ = client_of(HttpResponse(200, b"<html>"))
    with pytest.raises(errors.UnreadableResponse) as unreadable:
        await client.create(PODS, POD, "n")
    assert unreadable.value.maybe_applied


async def test_throttled_request_waits_for_retry_after():
    throttled = HttpResponse(429, b"busy", {"retry-after": "3"})
    client, transport = client_of(throttled, throttled, ok(POD))
    await client.create(PODS, POD, "n")
    assert len(transport.sent) == 3
    assert transport.times[1] - transport.times[0] >= 3.0
    assert transport.times[2] - transport.times[1] >= 3.0


async def test_retries_of_throttled_requests_are_spread():
    throttled = HttpResponse(429, b"busy", {"retry-after": "4"})
    client, transport = client_of(*[throttled] * 8, *[ok(POD)] * 8)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(client.create(PODS, POD, "n"))
    retry_times = transport.times[8:]
    assert all(4.0 <= at - transport.times[0] <= 6.0 for at in retry_times)
    assert max(retry_times) - min(retry_times) > 0.5


async def test_throttled_retries_are_limited():
    client, transport = client_of(HttpResponse(429, b"busy", {"retry-after": "1"}))
    with pytest.raises(errors.TooManyRequests) as raised:
        await client.get(PODS, "a", "n")
    assert raised.value.retry_after_seconds == 1
    assert len(transport.sent) == 11


async def test_rejected_eviction_is_not_retried():
    details = {"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10}
    client, transport = client_of(status(429, "TooManyRequests", details=details))
    with pytest.raises(errors.TooManyRequests):
        await client.create_raw(PODS, {}, "n", name="a", subresource="eviction")
    assert len(transport.sent) == 1


PINNED = {"metadata": {"resourceVersion": "7"}}
MERGE = PatchType.MERGE
VERBS = [
    pytest.param(lambda c: c.get(PODS, "a", "n"), True, id="get"),
    pytest.param(lambda c: c.list(PODS), True, id="list"),
    pytest.param(lambda c: c.create(PODS, POD, "n"), False, id="create"),
    pytest.param(lambda c: c.update(PODS, "a", POD, "n"), True, id="update with resourceVersion"),
    pytest.param(lambda c: c.update(PODS, "a", {"a": 1}, "n"), False, id="update without"),
    pytest.param(lambda c: c.patch(PODS, "a", PINNED, MERGE, "n"), True, id="patch with resourceVersion"),
    pytest.param(lambda c: c.patch(PODS, "a", {"a": 1}, MERGE, "n"), False, id="patch without"),
    pytest.param(lambda c: c.patch(PODS, "a", {"a": 1}, PatchType.APPLY, "n"), True, id="apply"),
    pytest.param(
        lambda c: c.patch(
            PODS, "a", [{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}], PatchType.JSON, "n"
        ),
        True,
        id="JSON patch that tests the resourceVersion",
    ),
    pytest.param(lambda c: c.delete(PODS, "a", "n", precondition_uid="u"), True, id="delete of one uid"),
    pytest.param(lambda c: c.delete(PODS, "a", "n"), False, id="delete by name"),
    pytest.param(lambda c: c.delete_collection(PODS, "n"), False, id="delete of many"),
]


@pytest.mark.parametrize(("call", "retried"), VERBS)
async def test_lost_response_and_5xx_are_retried_by_verb(call, retried):
    for failure in (LOST, status(500, "InternalError"), status(503, "ServiceUnavailable")):
        client, transport = client_of(failure, failure, ok({**POD, "items": []}))
        if retried:
            await call(client)
            assert len(transport.sent) == 3
            continue
        with pytest.raises((errors.ServerUnreachable, errors.ApiError)) as failed:
            await call(client)
        assert len(transport.sent) == 1
        if isinstance(failed.value, errors.ServerUnreachable):
            assert failed.value.maybe_applied


@pytest.mark.parametrize(("call", "_again"), VERBS)
async def test_unsent_request_is_retried_for_every_verb(call, _again):
    client, transport = client_of(NOT_SENT, NOT_SENT, ok({**POD, "items": []}))
    await call(client)
    assert len(transport.sent) == 3


async def test_tries_are_limited_with_backoff():
    client, transport = client_of(NOT_SENT, retries=RetryPolicy(tries=6, base_seconds=1.0, cap_seconds=4.0))
    with pytest.raises(errors.ServerUnreachable) as unreachable:
        await client.create(PODS, POD, "n")
    assert not unreachable.value.maybe_applied
    waits = [later - earlier for earlier, later in zip(transport.times, transport.times[1:], strict=False)]
    assert len(waits) == 5
    for wait, middle in zip(waits, (1.0, 2.0, 4.0, 4.0, 4.0), strict=True):
        assert 0.5 * middle <= wait <= 1.5 * middle


async def test_not_found_after_lost_delete_is_success():
    client, _ = client_of(LOST, status(404, "NotFound"))
    assert (await client.delete(PODS, "a", "n", precondition_uid="u"))["status"] == "Success"
    client, _ = client_of(NOT_SENT, status(404, "NotFound"))
    with pytest.raises(errors.NotFound):
        await client.delete(PODS, "a", "n", precondition_uid="u")


async def test_lanes_do_not_block_each_other():
    client, transport = client_of(ok(POD), takes_seconds=10.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(client.get(PODS, "a", "n", lane="events"))
        await asyncio.sleep(1.0)
        assert transport.under_way == 8
        binding = group.create_task(client.create_raw(PODS, {}, "n", name="a", subresource="binding"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.sent[-1]["target"].endswith("/binding")
        await asyncio.sleep(10.5)
        assert binding.done()


async def test_rate_limit_applies_per_lane():
    client, transport = client_of(ok(POD), qps=10.0, burst=5)
    await asyncio.gather(*(client.get(PODS, "a", "n") for _ in range(25)))
    start = transport.times[0]
    assert [time - start for time in transport.times[:5]] == [0.0] * 5
    assert transport.times[-1] - start == pytest.approx(2.0)
    await client.create_raw(PODS, {}, "n", name="a", subresource="binding")
    assert transport.times[-1] - start == pytest.approx(2.0)


def page(names: str, continue_: str = "", version: str = "9") -> HttpResponse:
    items = [{"metadata": {"name": name}} for name in names]
    return ok({"metadata": {"resourceVersion": version, "continue": continue_}, "items": items})


async def test_list_all_follows_continue_tokens():
    client, transport = client_of(page("ab", "t/1"), page("c"))
    merged = await client.list_all(PODS, "n", limit=2, label_selector="x=y", resource_version="5")
    assert [pod.metadata.name for pod in merged.items] == ["a", "b", "c"]
    assert merged.metadata.resource_version == "9"
    assert [request["target"].partition("?")[2] for request in transport.sent] == [
        "labelSelector=x%3Dy&limit=2&resourceVersion=5",
        "labelSelector=x%3Dy&limit=2&continue=t%2F1",
    ]


async def test_expired_continue_token_restarts_list():
    client, transport = client_of(page("ab", "t"), status(410, "Expired"), page("bcd", version="12"))
    pages = [page async for page in client.pages(PODS, limit=2)]
    assert [page.restarted for page in pages] == [False, True]
    assert transport.sent[2]["target"] == "/api/v1/pods"
    client, _ = client_of(page("ab", "t"), status(410, "Expired"), page("bcd", version="12"))
    merged = await client.list_all(PODS, limit=2)
    assert [pod.metadata.name for pod in merged.items] == ["b", "c", "d"]
    assert merged.metadata.resource_version == "12"


async def test_list_without_items_is_empty():
    client, _ = client_of(ok({"kind": "PodList", "metadata": {}, "items": None}))
    assert (await client.list(PODS)).items == []


def event(type_: str, object_: Any) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


async def test_watch_yields_events_for_any_chunks():
    end = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    data = event("ADDED", POD) + b"\n" + event("BOOKMARK", end) + event("DELETED", POD) + event("ERROR", gone)
    for size in (1, 7, len(data)):
        client, transport = client_of(HttpResponse(200, b""))
        transport.chunks = [data[at : at + size] for at in range(0, len(data), size)]
        async with client.watch(PODS, resource_version="5", timeout_seconds=60, send_initial_events=True) as events:
            received = [event async for event in events]
        assert [event.type for event in received] == ["ADDED", "BOOKMARK", "DELETED", "ERROR"]
        assert [event.initial_events_end for event in received] == [False, True, False, False]
        assert received[0].object.key == "n/a"
        assert isinstance(received[3].object, api_types.ApiStatus)
        assert received[3].object.code == 410
    assert transport.sent[0]["target"].partition("?")[2].split("&") == [
        "watch=1",
        "resourceVersion=5",
        "timeoutSeconds=60",
        "allowWatchBookmarks=true",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
    ]


async def test_watch_of_plain_json_decodes_errors():
    client, transport = client_of(HttpResponse(200, b""))
    transport.chunks = [event("ADDED", POD), event("ERROR", {"kind": "Status", "code": 410})]
    async with client.watch(CONFIG_MAPS) as events:
        received = [event async for event in events]
    assert received[0].object == POD
    assert isinstance(received[1].object, api_types.ApiStatus)


async def test_watch_reads_null_lists():
    client, transport = client_of(HttpResponse(200, b""))
    transport.chunks = [event("ADDED", {**POD, "spec": {"containers": None}})]
    async with client.watch(PODS) as events:
        assert (await anext(events)).object.spec.containers == ()


async def test_tolerant_watch_continues_after_unreadable_object():
    client, transport = client_of(HttpResponse(200, b""))
    transport.chunks = [event("ADDED", {**POD, "spec": {"containers": 3}}), event("ADDED", POD)]
    async with client.watch(PODS, tolerant=True) as events:
        received = [event.object async for event in events]
    assert isinstance(received[0], UnreadableObject)
    assert received[1].key == "n/a"


async def test_rejected_or_broken_watch_raises():
    client, transport = client_of(status(410, "Expired"))
    with pytest.raises(errors.Gone):
        async with client.watch(PODS):
            pass
    client, transport = client_of(LOST)
    with pytest.raises(errors.ServerUnreachable):
        async with client.watch(PODS):
            pass
    client, transport = client_of(HttpResponse(200, b""))
    transport.chunks = [event("ADDED", POD), LOST]
    received = []

    async def read() -> None:
        async with client.watch(PODS) as events:
            async for event in events:
                received.append(event)  # noqa: PERF401, events before the break are kept

    with pytest.raises(errors.ServerUnreachable):
        await read()
    assert len(received) == 1


async def test_invalid_watch_line_is_unreadable_response():
    client, transport = client_of(HttpResponse(200, b""))
    transport.chunks = [b"<html>\n"]
    async with client.watch(PODS) as events:
        with pytest.raises(errors.UnreadableResponse):
            await anext(events)


@given(
    lines=st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), cuts=st.lists(st.integers(0, 300))
)
def test_line_splitter_is_independent_of_chunks(lines, cuts):
    data = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    splitter = LineSplitter()
    split = [line for at, end in pairwise(edges) for line in splitter.feed(data[at:end])]
    assert split == lines


def test_line_splitter_holds_incomplete_line():
    splitter = LineSplitter()
    assert [splitter.feed(chunk) for chunk in (b"a", b"b\nc\n", b"", b"d", b"\n\ne")] == [
        [],
        [b"ab", b"c"],
        [],
        [],
        [b"d", b""],
    ]
