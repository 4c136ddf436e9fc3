"""The client's verbs, errors and retries, over a transport that answers as told. Time is virtual."""

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
from kubeloop.kube.client.api_client import Client, LineSplitter, PatchType, UnreadableObject
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.client.transport import Response, StreamedResponse, TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES, PODS

pytestmark = pytest.mark.virtual_time

POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}}
LOST = TransportError("lost", request_sent=True)
NOT_SENT = TransportError("refused", request_sent=False)


def status(code: int, reason: str, **more: Any) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, **more}
    return Response(code, json.dumps(body).encode())


def ok(value: Any, code: int = 200) -> Response:
    return Response(code, json.dumps(value).encode())


@dataclass
class Answers:
    """A Transport that gives the next of `answers`, the last one forever."""

    answers: list[Any]
    sent: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    takes_seconds: float = 0.0
    chunks: list[bytes | Exception] = field(default_factory=list)

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None):
        self.sent.append({"method": method, "target": target, "headers": dict(headers), "body": body})
        self.times.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.takes_seconds)
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, method, target, *, headers, body=b""):
        self.sent.append({"method": method, "target": target, "headers": dict(headers), "body": body})
        answer = self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        yield StreamedResponse(answer.status, answer.headers, self._chunks(answer))

    async def _chunks(self, answer: Response) -> AsyncIterator[bytes]:
        for chunk in self.chunks or [answer.body]:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def close(self) -> None:
        pass


def client_of(*answers: Any, **options: Any) -> tuple[Client, Answers]:
    transport = Answers(list(answers), takes_seconds=options.pop("takes_seconds", 0.0))
    return Client(transport, clock=SystemClock(), rng=random.Random(1), **options), transport


async def test_each_verb_sends_its_request():
    client, transport = client_of(ok(POD))
    patch = {"metadata": {"labels": {"a": "b"}}}
    await client.get(PODS, "a", "n", resource_version="0", headers={"traceparent": "00-1"})
    await client.get_raw(PODS, "a b", "n", subresource="scale")
    await client.create(PODS, POD, "n", query={"fieldValidation": "Strict"})
    await client.create_raw(PODS, b'{"a":1}', "n", name="a", subresource="binding", lane="binding")
    await client.update(NODES, "x", {"a": 1}, subresource="status", lane="status")
    await client.patch(PODS, "a", patch, PatchType.STRATEGIC, "n")
    await client.patch(PODS, "a", POD, PatchType.APPLY, "n", field_manager="me", force=True)
    await client.delete(PODS, "a", "n")
    await client.delete(PODS, "a", "n", grace_period_seconds=0, propagation_policy="Orphan", precondition_uid="u")
    await client.delete_collection(PODS, "n", label_selector="a in (b,c)")
    sent = [(each["method"], each["target"]) for each in transport.sent]
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
    headers = [each["headers"] for each in transport.sent]
    assert headers[0] == {"accept": "application/json", "user-agent": "kubeloop", "traceparent": "00-1"}
    assert headers[2]["content-type"] == "application/json"
    assert headers[5]["content-type"] == "application/strategic-merge-patch+json"
    assert headers[6]["content-type"] == "application/apply-patch+yaml"
    bodies = [each["body"] for each in transport.sent]
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


async def test_answers_become_objects_of_the_resources_type():
    client, _ = client_of(ok(POD))
    pod = await client.get(PODS, "a", "n")
    assert isinstance(pod, api_types.Pod)
    assert pod.key == "n/a"
    assert await client.get(CONFIG_MAPS, "a", "n") == POD


@pytest.mark.parametrize(
    ("answer", "type_"),
    [
        (status(404, "NotFound"), errors.NotFound),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(409, "Conflict"), errors.Conflict),
        (status(410, "Expired"), errors.Gone),
        (status(422, "Invalid"), errors.Invalid),
        (status(403, "SomethingNew"), errors.Forbidden),
        (status(418, "Teapot"), errors.ApiError),
        (Response(400, b"<html>no</html>"), errors.BadRequest),
        (Response(404, b""), errors.NotFound),
    ],
    ids=str,
)
async def test_a_refusal_is_an_error_of_its_kind_and_is_not_sent_again(answer, type_):
    client, transport = client_of(answer)
    with pytest.raises(errors.ApiError) as refused:
        await client.create(PODS, POD, "n")
    assert type(refused.value) is type_
    assert refused.value.code == answer.status
    assert len(transport.sent) == 1


async def test_an_answer_that_is_not_of_the_api_is_an_error_of_its_own():
    client, _ = client_of(Response(200, b"<html>"))
    with pytest.raises(errors.UnreadableResponse) as unreadable:
        await client.create(PODS, POD, "n")
    assert unreadable.value.maybe_applied


async def test_a_throttled_request_of_any_verb_waits_as_long_as_it_is_told():
    throttled = Response(429, b"busy", {"retry-after": "3"})
    client, transport = client_of(throttled, throttled, ok(POD))
    await client.create(PODS, POD, "n")
    assert len(transport.sent) == 3
    assert transport.times[1] - transport.times[0] >= 3.0
    assert transport.times[2] - transport.times[1] >= 3.0


async def test_requests_that_were_throttled_together_do_not_come_back_together():
    throttled = Response(429, b"busy", {"retry-after": "4"})
    client, transport = client_of(*[throttled] * 8, *[ok(POD)] * 8)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(client.create(PODS, POD, "n"))
    again = transport.times[8:]
    assert all(4.0 <= at - transport.times[0] <= 6.0 for at in again)
    assert max(again) - min(again) > 0.5


async def test_throttling_without_end_is_given_up():
    client, transport = client_of(Response(429, b"busy", {"retry-after": "1"}))
    with pytest.raises(errors.TooManyRequests) as refused:
        await client.get(PODS, "a", "n")
    assert refused.value.retry_after_seconds == 1
    assert len(transport.sent) == 11


async def test_a_disruption_budgets_refusal_is_an_answer_and_no_throttling():
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


@pytest.mark.parametrize(("call", "again"), VERBS)
async def test_a_lost_answer_or_a_5xx_is_tried_again_where_the_verb_allows_it(call, again):
    for failure in (LOST, status(500, "InternalError"), status(503, "ServiceUnavailable")):
        client, transport = client_of(failure, failure, ok({**POD, "items": []}))
        if again:
            await call(client)
            assert len(transport.sent) == 3
            continue
        with pytest.raises((errors.ServerUnreachable, errors.ApiError)) as failed:
            await call(client)
        assert len(transport.sent) == 1
        if isinstance(failed.value, errors.ServerUnreachable):
            assert failed.value.maybe_applied


@pytest.mark.parametrize(("call", "_again"), VERBS)
async def test_what_was_not_sent_is_tried_again_whatever_the_verb(call, _again):
    client, transport = client_of(NOT_SENT, NOT_SENT, ok({**POD, "items": []}))
    await call(client)
    assert len(transport.sent) == 3


async def test_tries_are_bounded_and_further_and_further_apart():
    client, transport = client_of(NOT_SENT, retries=RetryPolicy(tries=6, base_seconds=1.0, cap_seconds=4.0))
    with pytest.raises(errors.ServerUnreachable) as unreachable:
        await client.create(PODS, POD, "n")
    assert not unreachable.value.maybe_applied
    waits = [later - earlier for earlier, later in zip(transport.times, transport.times[1:], strict=False)]
    assert len(waits) == 5
    for wait, middle in zip(waits, (1.0, 2.0, 4.0, 4.0, 4.0), strict=True):
        assert 0.5 * middle <= wait <= 1.5 * middle


async def test_a_delete_whose_answer_was_lost_is_done_when_the_object_is_gone():
    client, _ = client_of(LOST, status(404, "NotFound"))
    assert (await client.delete(PODS, "a", "n", precondition_uid="u"))["status"] == "Success"
    client, _ = client_of(NOT_SENT, status(404, "NotFound"))
    with pytest.raises(errors.NotFound):
        await client.delete(PODS, "a", "n", precondition_uid="u")


async def test_bindings_do_not_wait_behind_other_lanes():
    client, transport = client_of(ok(POD), takes_seconds=10.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(client.get(PODS, "a", "n", lane="events"))
        await asyncio.sleep(1.0)
        assert transport.under_way == 8
        binding = group.create_task(client.create_raw(PODS, {}, "n", name="a", subresource="binding", lane="binding"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.sent[-1]["target"].endswith("/binding")
        await asyncio.sleep(10.5)
        assert binding.done()


async def test_each_lane_keeps_to_the_rate_limit():
    client, transport = client_of(ok(POD), qps=10.0, burst=5)
    await asyncio.gather(*(client.get(PODS, "a", "n") for _ in range(25)))
    start = transport.times[0]
    assert [time - start for time in transport.times[:5]] == [0.0] * 5
    assert transport.times[-1] - start == pytest.approx(2.0)
    await client.create_raw(PODS, {}, "n", lane="binding")
    assert transport.times[-1] - start == pytest.approx(2.0)


def page(names: str, continue_: str = "", version: str = "9") -> Response:
    items = [{"metadata": {"name": name}} for name in names]
    return ok({"metadata": {"resourceVersion": version, "continue": continue_}, "items": items})


async def test_pages_follow_each_other_and_selectors_stay():
    client, transport = client_of(page("ab", "t/1"), page("c"))
    whole = await client.list_all(PODS, "n", limit=2, label_selector="x=y", resource_version="5")
    assert [pod.metadata.name for pod in whole.items] == ["a", "b", "c"]
    assert whole.metadata.resource_version == "9"
    assert [each["target"].partition("?")[2] for each in transport.sent] == [
        "labelSelector=x%3Dy&limit=2&resourceVersion=5",
        "labelSelector=x%3Dy&limit=2&continue=t%2F1",
    ]


async def test_a_list_whose_token_expires_begins_anew_and_whole():
    client, transport = client_of(page("ab", "t"), status(410, "Expired"), page("bcd", version="12"))
    pages = [each async for each in client.pages(PODS, limit=2)]
    assert [each.restarted for each in pages] == [False, True]
    assert transport.sent[2]["target"] == "/api/v1/pods"
    client, _ = client_of(page("ab", "t"), status(410, "Expired"), page("bcd", version="12"))
    whole = await client.list_all(PODS, limit=2)
    assert [pod.metadata.name for pod in whole.items] == ["b", "c", "d"]
    assert whole.metadata.resource_version == "12"


async def test_a_list_without_items_is_empty():
    client, _ = client_of(ok({"kind": "PodList", "metadata": {}, "items": None}))
    assert (await client.list(PODS)).items == []


def event(type_: str, object_: Any) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


async def test_a_watch_yields_events_however_the_stream_is_cut():
    end = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    data = event("ADDED", POD) + b"\n" + event("BOOKMARK", end) + event("DELETED", POD) + event("ERROR", gone)
    for size in (1, 7, len(data)):
        client, transport = client_of(Response(200, b""))
        transport.chunks = [data[at : at + size] for at in range(0, len(data), size)]
        async with client.watch(PODS, resource_version="5", timeout_seconds=60, send_initial_events=True) as events:
            got = [each async for each in events]
        assert [each.type for each in got] == ["ADDED", "BOOKMARK", "DELETED", "ERROR"]
        assert [each.initial_events_end for each in got] == [False, True, False, False]
        assert got[0].object.key == "n/a"
        assert isinstance(got[3].object, api_types.Status)
        assert got[3].object.code == 410
    assert transport.sent[0]["target"].partition("?")[2].split("&") == [
        "watch=1",
        "resourceVersion=5",
        "timeoutSeconds=60",
        "allowWatchBookmarks=true",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
    ]


async def test_a_watch_of_plain_json_knows_errors_too():
    client, transport = client_of(Response(200, b""))
    transport.chunks = [event("ADDED", POD), event("ERROR", {"kind": "Status", "code": 410})]
    async with client.watch(CONFIG_MAPS) as events:
        got = [each async for each in events]
    assert got[0].object == POD
    assert isinstance(got[1].object, api_types.Status)


async def test_a_watch_reads_nulls_where_there_should_be_lists():
    client, transport = client_of(Response(200, b""))
    transport.chunks = [event("ADDED", {**POD, "spec": {"containers": None}})]
    async with client.watch(PODS) as events:
        assert (await anext(events)).object.spec.containers == ()


async def test_a_tolerant_watch_goes_on_past_an_object_it_cannot_read():
    client, transport = client_of(Response(200, b""))
    transport.chunks = [event("ADDED", {**POD, "spec": {"containers": 3}}), event("ADDED", POD)]
    async with client.watch(PODS, tolerant=True) as events:
        got = [each.object async for each in events]
    assert isinstance(got[0], UnreadableObject)
    assert got[1].key == "n/a"


async def test_a_watch_that_is_refused_or_breaks_raises():
    client, transport = client_of(status(410, "Expired"))
    with pytest.raises(errors.Gone):
        async with client.watch(PODS):
            pass
    client, transport = client_of(LOST)
    with pytest.raises(errors.ServerUnreachable):
        async with client.watch(PODS):
            pass
    client, transport = client_of(Response(200, b""))
    transport.chunks = [event("ADDED", POD), LOST]
    got = []

    async def read() -> None:
        async with client.watch(PODS) as events:
            async for each in events:
                got.append(each)  # noqa: PERF401, what came before the break counts

    with pytest.raises(errors.ServerUnreachable):
        await read()
    assert len(got) == 1


async def test_a_line_that_is_no_event_is_an_unreadable_answer():
    client, transport = client_of(Response(200, b""))
    transport.chunks = [b"<html>\n"]
    async with client.watch(PODS) as events:
        with pytest.raises(errors.UnreadableResponse):
            await anext(events)


@given(
    lines=st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), cuts=st.lists(st.integers(0, 300))
)
def test_lines_are_the_same_however_the_stream_is_cut(lines, cuts):
    data = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    splitter = LineSplitter()
    got = [line for at, end in pairwise(edges) for line in splitter.feed(data[at:end])]
    assert got == lines


def test_lines_are_joined_from_any_pieces_and_an_unfinished_one_is_kept_back():
    splitter = LineSplitter()
    assert [splitter.feed(chunk) for chunk in (b"a", b"b\nc\n", b"", b"d", b"\n\ne")] == [
        [],
        [b"ab", b"c"],
        [],
        [],
        [b"d", b""],
    ]
