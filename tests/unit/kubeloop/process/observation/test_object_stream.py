"""Streams pass lists and events on with their times, and report changes that were missed."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.api_client import UnreadableObject
from kubeloop.process.observation.object_stream import ObjectStream

pytestmark = pytest.mark.virtual_time


class Recorder:
    """Receiver that records its calls, with times in seconds since its creation."""

    def __init__(self, clock):
        self.calls = []
        self._began_ns = clock.time_ns()

    def _seconds(self, ns):
        return round((ns - self._began_ns) / 1e9)

    def observed(self, obj, arrival_ns, *, initial):
        self.calls.append(("observed", obj, self._seconds(arrival_ns), initial))

    def deleted(self, obj, arrival_ns):
        self.calls.append(("deleted", obj, self._seconds(arrival_ns)))

    def interrupted(self, since_ns, until_ns):
        self.calls.append(("interrupted", self._seconds(since_ns), self._seconds(until_ns)))

    def list_started(self):
        self.calls.append("list")

    def list_has(self, uid):
        self.calls.append(("has", uid))

    def list_lost(self, uid):
        self.calls.append(("lost", uid))

    def listed(self, arrival_ns):
        self.calls.append(("listed", self._seconds(arrival_ns)))

    def taken(self):
        calls, self.calls = self.calls, []
        return calls


class Stream:
    """A stream that has received its first list, of the object "a"."""

    def __init__(self, clock):
        self.clock = clock
        self.receiver = Recorder(clock)
        self.stream = ObjectStream(self.receiver, clock)

    async def list(self, *objects):
        listing = self.stream.start_list()
        for obj in objects:
            listing.put(f"ns/{obj}", obj)
        await listing.finish()
        return self.receiver.taken()

    def apply(self, event_type, obj):
        self.stream.apply(event_type, obj, self.clock.time_ns())
        return self.receiver.taken()


@pytest.fixture
async def stream(clock):
    return Stream(clock)


async def test_first_list_is_initial_and_later_ones_are_not(stream):
    assert await stream.list("a", "b") == [
        "list",
        ("observed", "a", 0, True),
        ("observed", "b", 0, True),
        ("listed", 0),
    ]
    await asyncio.sleep(5)
    stream.stream.disconnected(silent=False)
    await asyncio.sleep(2)
    assert await stream.list("a") == [("interrupted", 5, 7), "list", ("observed", "a", 7, False), ("listed", 7)]


async def test_list_without_objects_reports_the_gap(stream):
    await stream.list("a")
    await asyncio.sleep(1)
    assert await stream.list() == [("interrupted", 1, 1), "list", ("listed", 1)]


async def test_failed_first_list_is_followed_by_another_initial_one(stream):
    stream.stream.start_list().put("ns/a", "a")
    stream.stream.disconnected(silent=False)
    assert stream.receiver.taken() == ["list", ("observed", "a", 0, True)]
    assert await stream.list("a") == ["list", ("observed", "a", 0, True), ("listed", 0)]


async def test_events_are_passed_on_with_their_arrival(stream):
    await stream.list()
    await asyncio.sleep(1)
    assert stream.apply("ADDED", "a") == [("observed", "a", 1, False)]
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 1, False)]
    assert stream.apply("DELETED", "a") == [("deleted", "a", 1)]


async def test_resumed_watch_has_missed_nothing(stream):
    await stream.list("a")
    stream.stream.disconnected(silent=False)
    await asyncio.sleep(1)
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 1, False)]
    await asyncio.sleep(1)
    stream.stream.disconnected(silent=False)
    await asyncio.sleep(1)
    assert (await stream.list("a"))[0] == ("interrupted", 2, 3)


async def test_gap_of_a_silent_watch_starts_at_the_last_event(stream):
    await stream.list("a")
    await asyncio.sleep(10)
    stream.apply("MODIFIED", "a")
    await asyncio.sleep(120)
    stream.stream.disconnected(silent=True)
    await asyncio.sleep(1)
    stream.stream.disconnected(silent=False)  # by the next attempt
    assert (await stream.list("a"))[0] == ("interrupted", 10, 131)


async def test_unreadable_and_removed_objects_of_a_list_are_reported_by_uid(stream):
    listing = stream.stream.start_list()
    listing.remove("ns/b", "uid-b")
    listing.put_unreadable(UnreadableObject("ns/a", "uid-a", "1", "problem"))
    listing.restart()
    await listing.finish()
    assert stream.receiver.taken() == ["list", ("lost", "uid-b"), ("has", "uid-a"), "list", ("listed", 0)]
