"""Event recorder: counting, aggregation, spam filter and drops, without delaying the caller. Time is virtual."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import asynccontextmanager

import pytest

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpResponse, TransportError
from kubeloop.kube.clock import rfc3339, rfc3339_micro
from kubeloop.kube.events import event_recorder
from kubeloop.kube.events.event_aggregation import event_note
from kubeloop.kube.events.event_recorder import EventBroadcaster, reference_to
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.resources import REPLICA_SETS

pytestmark = pytest.mark.virtual_time

METADATA = api_types.ObjectMeta(name="web", namespace="n", uid="u", resource_version="3")
RS = api_types.ReplicaSet(metadata=METADATA)


class Events:
    """A Transport to a server that stores events; `failures` are raised first, one per request."""

    def __init__(self) -> None:
        self.events = {}
        self.requests = []
        self.failures = []
        self.takes_seconds = 0.001
        self.in_flight = self.most_in_flight = 0

    async def send(self, request):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(self.takes_seconds)
        self.in_flight -= 1
        value = json.loads(request.body)
        self.requests.append((request.method, request.target, value))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        if request.method == "POST":
            name = value["metadata"]["name"]
            if name in self.events:
                return HttpResponse(409, b'{"kind":"Status","reason":"AlreadyExists","code":409}')
            self.events[name] = value
        else:
            name = request.target.rpartition("/")[2]
            if name not in self.events:
                return HttpResponse(404, b'{"kind":"Status","reason":"NotFound","code":404}')
            self.events[name].update(value)
        return HttpResponse(200, json.dumps(self.events[name]).encode())


@pytest.fixture
def server():
    return Events()


@pytest.fixture
def recording(server, clock, rng):
    """`async with recording(**options) as recorder`: an EventBroadcaster that runs; leaving it flushes."""

    @asynccontextmanager
    async def run(**options):
        client = ApiClient(server, clock=clock, rng=rng)
        recorder = EventBroadcaster(client, clock=clock, rng=random.Random(3), **options)
        task = asyncio.ensure_future(recorder.run())
        await asyncio.sleep(0)
        try:
            yield recorder
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    return run


async def test_event_has_fields_of_client_go(server, recording, clock):
    async with recording() as recorder:
        now, nanoseconds = clock.now(), clock.time_ns()
        recorder.for_component("replicaset-controller").event(RS, "Normal", "SuccessfulCreate", "Created pod: web-1")
    ((method, target, body),) = server.requests
    assert (method, target) == ("POST", "/api/v1/namespaces/n/events")
    assert body == {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"web.{nanoseconds:x}", "namespace": "n"},
        "involvedObject": {
            "kind": "ReplicaSet",
            "namespace": "n",
            "name": "web",
            "uid": "u",
            "apiVersion": "apps/v1",
            "resourceVersion": "3",
        },
        "reason": "SuccessfulCreate",
        "message": "Created pod: web-1",
        "source": {"component": "replicaset-controller"},
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "count": 1,
        "type": "Normal",
        "eventTime": None,
        "reportingComponent": "replicaset-controller",
        "reportingInstance": "",
    }


async def test_event_states_the_action_of_the_component(server, recording):
    async with recording() as recorder:
        recorder.for_component("default-scheduler").event(RS, "Normal", "Scheduled", "bound", action="Binding")
    assert server.requests[0][2]["action"] == "Binding"


async def test_event_with_a_related_object_has_the_form_of_the_events_api(server, recording, clock):
    """Events of kube-scheduler have a time instead of a count, and are not aggregated."""
    async with recording() as recorder:
        now = rfc3339_micro(clock.now())
        for _ in range(2):
            recorder.for_component("default-scheduler").event(
                RS, "Normal", "Preempted", "by a pod", action="Preempting", related=RS
            )
    bodies = [body for _, _, body in server.requests]
    assert [method for method, _, _ in server.requests] == ["POST", "POST"]
    assert not bodies[0].keys() & {"count", "firstTimestamp", "lastTimestamp"}
    assert bodies[0]["eventTime"] == now
    assert bodies[0]["related"] == bodies[0]["involvedObject"]
    assert bodies[0]["reportingInstance"].startswith("default-scheduler-")


async def test_cluster_scoped_events_are_in_default_namespace(server, recording):
    async with recording() as recorder:
        recorder.record("kubeloop", api_types.Node(metadata=api_types.ObjectMeta(name="node-1")), "Normal", "R", "m")
    assert server.requests[0][1] == "/api/v1/namespaces/default/events"
    assert server.requests[0][2]["involvedObject"]["kind"] == "Node"


async def test_repeated_event_is_patched_with_count(server, recording):
    async with recording() as recorder:
        for _ in range(3):
            recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
            await asyncio.sleep(60)
    assert [method for method, _, _ in server.requests] == ["POST", "PATCH", "PATCH"]
    (event,) = server.events.values()
    assert event["count"] == 3
    assert event["firstTimestamp"] < event["lastTimestamp"]
    assert set(server.requests[2][2]) == {"count", "lastTimestamp", "message"}


async def test_expired_event_is_recreated_with_count(server, recording):
    async with recording() as recorder:
        recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
        await asyncio.sleep(1)
        server.events.clear()
        recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
    assert [method for method, _, _ in server.requests] == ["POST", "PATCH", "POST"]
    (event,) = server.events.values()
    assert event["count"] == 2


async def test_similar_events_are_aggregated(server, recording):
    async with recording() as recorder:
        for number in range(15):
            recorder.record("kubeloop", RS, "Normal", "SuccessfulCreate", f"Created pod: web-{number}")
            await asyncio.sleep(1)
    messages = [event["message"] for event in server.events.values()]
    assert messages[:9] == [f"Created pod: web-{number}" for number in range(9)]
    assert messages[9:] == ["(combined from similar events): Created pod: web-14"]
    assert list(server.events.values())[9]["count"] == 6


async def test_similar_events_after_interval_are_separate(server, recording):
    async with recording() as recorder:
        for number in range(15):
            recorder.record("kubeloop", RS, "Normal", "SuccessfulCreate", f"Created pod: web-{number}")
            await asyncio.sleep(601)
    assert len(server.events) == 15
    assert not any("combined" in event["message"] for event in server.events.values())


async def test_spam_filter_limits_events_per_object(server, recording):
    other = api_types.ReplicaSet(metadata=api_types.ObjectMeta(name="other", namespace="n", uid="v"))
    async with recording() as recorder:
        for _ in range(100):
            recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
        recorder.record("kubeloop", other, "Warning", "FailedCreate", "quota")
        await asyncio.sleep(10)
        assert len(server.requests) == 25 + 1
        await asyncio.sleep(300)
        recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
        recorder.record("kubeloop", RS, "Warning", "FailedCreate", "quota")
    assert len(server.requests) == 25 + 1 + 1
    assert server.requests[-1][2]["count"] == 101


async def test_full_queue_drops_and_counts_events(server, recording, caplog, monkeypatch):
    monkeypatch.setattr(event_recorder, "_QUEUE_LIMIT", 50)
    server.takes_seconds = 10.0
    async with recording() as recorder:
        for number in range(60):
            about = api_types.ObjectReference(kind="Pod", namespace="n", name=f"p{number}", uid=str(number))
            recorder.record("kubeloop", about, "Normal", "R", "m")
        assert recorder.dropped == 10
        await asyncio.sleep(1000)
    assert len(server.events) == 50
    assert "too many events" in caplog.text


async def test_events_of_other_reasons_are_not_recorded(server, recording):
    async with recording(reasons=frozenset({"Preempted"})) as recorder:
        for reason in ("Scheduled", "Preempted"):
            about = api_types.ObjectReference(kind="Pod", namespace="n", name="p", uid="1")
            recorder.record("kubeloop", about, "Normal", reason, "m")
        await asyncio.sleep(10)
    assert [event["reason"] for event in server.events.values()] == ["Preempted"]


async def test_unreachable_server_is_retried_in_order(server, recording):
    server.failures = [TransportError("down", request_sent=False)] * 15
    async with recording() as recorder:
        recorder.record("kubeloop", RS, "Normal", "A", "first")
        recorder.record("kubeloop", RS, "Normal", "B", "second")
        await asyncio.sleep(60)
    assert [event["message"] for event in server.events.values()] == ["first", "second"]
    assert recorder.rejected == 0


async def test_lost_create_response_does_not_duplicate_event(server, recording):
    async with recording() as recorder:
        recorder.record("kubeloop", RS, "Normal", "A", "first")
        await asyncio.sleep(1)
        stored = dict(server.events)
        server.failures = [TransportError("lost", request_sent=True)]
        recorder.record("kubeloop", RS, "Normal", "B", "second")
        await asyncio.sleep(0.5)
        server.events[server.requests[-1][2]["metadata"]["name"]] = server.requests[-1][2]  # stored, response lost
        await asyncio.sleep(60)
    assert len(server.events) == len(stored) + 1
    assert recorder.rejected == 0


async def test_event_is_dropped_after_twelve_tries(server, recording, caplog):
    server.failures = [TransportError("lost", request_sent=True)] * 12
    async with recording() as recorder:
        recorder.record("kubeloop", RS, "Normal", "A", "first")
        await asyncio.sleep(200)
        assert recorder.rejected == 1
        recorder.record("kubeloop", RS, "Normal", "B", "second")
    assert [event["message"] for event in server.events.values()] == ["second"]
    assert "event not written" in caplog.text


@pytest.mark.parametrize(("causes", "logged"), [([], True), ([{"reason": "NamespaceTerminating"}], False)])
async def test_rejected_event_is_logged_unless_namespace_terminates(server, recording, caplog, causes, logged):
    body = {"kind": "Status", "reason": "Forbidden", "code": 403, "details": {"causes": causes}}
    server.failures = [HttpResponse(403, json.dumps(body).encode())]
    with caplog.at_level(logging.WARNING):
        async with recording() as recorder:
            recorder.record("kubeloop", RS, "Normal", "A", "first")
            await asyncio.sleep(1)
            assert recorder.rejected == 1
    assert len(server.requests) == 1
    assert ("event not written" in caplog.text) is logged


async def test_stopping_flushes_queue_within_time_limit(server, recording, caplog):
    async with recording() as recorder:
        for number in range(20):
            recorder.record("kubeloop", RS, "Normal", f"R{number}", "m")
    assert len(server.events) == 20
    server.takes_seconds = 1e6
    loop = asyncio.get_running_loop()
    async with recording() as recorder:
        recorder.record("kubeloop", RS, "Normal", "R", "m")
        stopped_at = loop.time()
    assert loop.time() - stopped_at <= 3.1
    assert "stopped before all events were sent" in caplog.text


def record_for_objects(recorder, count):
    for number in range(count):
        metadata = api_types.ObjectMeta(name=f"web-{number}", namespace="n")
        recorder.record("kubeloop", api_types.Pod(metadata=metadata), "Normal", "R", "m")


@pytest.mark.parametrize(
    ("is_binding", "is_busy", "most"), [(False, False, 16), (False, True, 16), (True, False, 4), (True, True, 2)]
)
async def test_few_events_are_sent_at_a_time_while_pods_are_bound(server, recording, is_binding, is_busy, most):
    async with recording(is_binding=lambda: is_binding, server_is_busy=lambda: is_busy) as recorder:
        record_for_objects(recorder, 100)
        await asyncio.sleep(0.2)
        assert len(server.events) == 100
    assert server.most_in_flight == most


async def test_more_events_are_sent_at_a_time_when_no_more_pods_are_bound(server, recording):
    is_binding = True
    async with recording(is_binding=lambda: is_binding) as recorder:
        record_for_objects(recorder, 100)
        await asyncio.sleep(0.0045)
        assert server.most_in_flight == 4
        is_binding = False
        await asyncio.sleep(0.001)
        assert server.in_flight == 16


async def test_events_do_not_wait_while_half_of_the_queue_is_full(server, recording, monkeypatch):
    monkeypatch.setattr(event_recorder, "_QUEUE_LIMIT", 100)
    async with recording(is_binding=lambda: True) as recorder:
        record_for_objects(recorder, 100)
        await asyncio.sleep(0.002)
        assert server.in_flight == 16
        await asyncio.sleep(0.2)
        assert len(server.events) == 100


async def test_events_do_not_wait_when_the_process_ends(server, recording):
    server.takes_seconds = 0.1
    loop = asyncio.get_running_loop()
    async with recording(is_binding=lambda: True) as recorder:
        record_for_objects(recorder, 100)
        await asyncio.sleep(0.05)
        assert server.in_flight == 4
        stopped_at = loop.time()
    assert len(server.events) == 100
    assert loop.time() - stopped_at < 1.5  # 2.5 s with four at a time


async def test_events_that_wait_when_the_process_stops_to_lead_are_sent_when_it_leads_again(
    server, clock, rng, monkeypatch
):
    monkeypatch.setattr(event_recorder, "_FLUSH_SECONDS", 0.0)
    server.takes_seconds = 0.1
    recorder = EventBroadcaster(ApiClient(server, clock=clock, rng=rng), clock=clock, rng=rng, is_binding=lambda: True)
    record_for_objects(recorder, 100)
    for seconds in (0.25, 10.0):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recorder.run(), seconds)
    assert len(server.events) == 100


async def test_event_name_for_long_object_name(server, clock, rng):
    recorder = EventBroadcaster(ApiClient(server, clock=clock, rng=rng), clock=clock, rng=rng)
    recorder.record(
        "kubeloop", api_types.ObjectReference(kind="Pod", namespace="n", name="x" * 250), "Normal", "R", "m"
    )
    (pending_event,) = (event for queue in recorder._queues for event in queue)
    assert len(pending_event.name) == 36


async def test_kind_of_listed_object_comes_from_type():
    assert reference_to(RS).kind == REPLICA_SETS.kind
    assert reference_to(RS).api_version == "apps/v1"


async def test_event_note_is_cut_by_bytes():
    assert event_note("a" * 1024) == "a" * 1024
    assert event_note("a" * 1025) == "a" * 1020 + " ..."
    assert event_note("a\udc80b") == "a?b"
    assert event_note("ü" * 600).endswith(" ...")
    assert len(event_note("aü" * 600).encode()) <= 1024 + 2
