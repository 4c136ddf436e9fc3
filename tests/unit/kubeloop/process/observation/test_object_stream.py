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
        self.lacks_objects = False
        self._began_ns = clock.time_ns()

    def _seconds(self, ns):
        return round((ns - self._began_ns) / 1e9, 1) if ns else None

    def observed(self, obj, arrival_ns, late_since_ns, *, initial):
        name = "initial" if initial else "observed"
        self.calls.append((name, obj, self._seconds(arrival_ns), self._seconds(late_since_ns)))

    def deleted(self, obj, arrival_ns, late_since_ns):
        self.calls.append(("deleted", obj, self._seconds(arrival_ns), self._seconds(late_since_ns)))

    def interrupted(self, since_ns, until_ns):
        self.calls.append(("interrupted", self._seconds(since_ns), self._seconds(until_ns)))

    def list_started(self):
        self.calls.append("list")

    def list_has(self, uid):
        self.calls.append(("has", uid))

    def list_lost(self, uid):
        self.calls.append(("lost", uid))

    def list_lacks_objects(self):
        return self.lacks_objects

    def listed(self, arrival_ns, resource_version):
        assert resource_version == "7"
        self.calls.append(("listed", self._seconds(arrival_ns)))

    def taken(self):
        calls, self.calls = self.calls, []
        return calls


class Stream:
    """A stream, and how a reflector uses it."""

    def __init__(self, clock, **options):
        self.clock = clock
        self.receiver = Recorder(clock)
        self.stream = ObjectStream(self.receiver, clock, **options)

    async def list(self, *objects):
        listing = self.stream.start_list(same_history=False)
        for obj in objects:
            listing.put(f"ns/{obj}", obj)
        await listing.finish("7")
        return self.receiver.taken()

    async def list_and_watch(self, *objects):
        """List and watch for ten seconds."""
        await self.list(*objects)
        self.stream.connected()
        await asyncio.sleep(10)
        self.apply("MODIFIED", "a")

    def disconnect(self, received_until_ns=None):
        self.stream.disconnected(self.clock.time_ns() if received_until_ns is None else received_until_ns)

    def apply(self, event_type, obj):
        self.stream.apply(event_type, obj, self.clock.time_ns())
        return self.receiver.taken()


@pytest.fixture
async def stream(clock):
    return Stream(clock)


async def test_first_list_is_initial_and_later_ones_are_not(stream):
    assert await stream.list("a", "b") == ["list", ("initial", "a", 0, 0), ("initial", "b", 0, 0), ("listed", 0)]
    await stream.list_and_watch("a", "b")
    stream.disconnect()
    await asyncio.sleep(2)
    assert await stream.list("a") == [("interrupted", 10, 12), "list", ("observed", "a", 12, 12), ("listed", 12)]


async def test_list_without_objects_reports_the_gap(stream):
    await stream.list_and_watch("a")
    stream.disconnect()
    assert await stream.list() == [("interrupted", 10, 10), "list", ("listed", 10)]


async def test_failed_first_list_is_followed_by_another_initial_one(stream):
    stream.stream.start_list(same_history=False).put("ns/a", "a")
    stream.disconnect(0)
    assert stream.receiver.taken() == ["list", ("initial", "a", 0, 0)]
    assert await stream.list("a") == ["list", ("initial", "a", 0, 0), ("listed", 0)]


async def test_events_are_passed_on_with_their_arrival(stream):
    await stream.list_and_watch()
    assert stream.apply("ADDED", "a") == [("observed", "a", 10, None)]
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 10, None)]
    assert stream.apply("DELETED", "a") == [("deleted", "a", 10, None)]


async def test_events_after_a_slow_list_are_as_old_as_its_start(stream):
    listing = stream.stream.start_list(same_history=False)
    await asyncio.sleep(4)
    listing.put("ns/a", "a")
    await listing.finish("7")
    stream.stream.connected()
    assert stream.receiver.taken() == ["list", ("initial", "a", 4, 0), ("listed", 4)]
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 4, 0)]
    await asyncio.sleep(2.1)
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 6.1, None)]


async def test_events_of_a_resumed_watch_are_late_until_it_has_caught_up(stream):
    await stream.list_and_watch("a")
    stream.disconnect()
    await asyncio.sleep(8)
    stream.stream.connected()
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 18, 10)]
    await asyncio.sleep(2.9)  # of 1 s and a quarter of 8 s
    assert stream.apply("DELETED", "a") == [("deleted", "a", 20.9, 10)]
    await asyncio.sleep(0.2)
    assert stream.apply("ADDED", "b") == [("observed", "b", 21.1, None)]


async def test_watch_that_breaks_while_it_catches_up_is_late_since_the_first_break(stream):
    await stream.list_and_watch("a")
    for _ in range(2):
        stream.disconnect()
        await asyncio.sleep(1)
        stream.stream.connected()
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 12, 10)]
    await asyncio.sleep(9)
    stream.disconnect()  # had caught up
    await asyncio.sleep(1)
    assert (await stream.list("a"))[0] == ("interrupted", 21, 22)


async def test_gap_of_a_silent_watch_starts_at_the_last_event(stream):
    await stream.list_and_watch("a")
    await asyncio.sleep(120)
    stream.disconnect(0)
    await asyncio.sleep(1)
    stream.disconnect(0)  # by the next attempt
    assert (await stream.list("a"))[0] == ("interrupted", 10, 131)


async def test_unreadable_and_removed_objects_of_a_list_are_reported_by_uid(stream):
    listing = stream.stream.start_list(same_history=False)
    listing.remove("ns/b", "uid-b")
    listing.put_unreadable(UnreadableObject("ns/a", "uid-a", "1", "problem"))
    listing.restart()
    await listing.finish("7")
    assert stream.receiver.taken() == ["list", ("lost", "uid-b"), ("has", "uid-a"), "list", ("listed", 0)]


async def test_list_of_an_expired_quiet_watch_reports_no_gap(stream):
    await stream.list_and_watch("a")
    await asyncio.sleep(120)
    stream.disconnect(0)
    listing = stream.stream.start_list(same_history=True)
    listing.put("ns/a", "a")
    await listing.finish("7")
    assert stream.receiver.taken() == ["list", ("observed", "a", 130, 130), ("listed", 130)]


async def test_missed_change_of_an_expired_watch_is_reported_once_before_it(stream):
    await stream.list_and_watch("a")
    await asyncio.sleep(120)
    stream.disconnect(0)
    listing = stream.stream.start_list(same_history=True)
    listing.put("ns/a", "a")
    for name in ("b", "c"):
        listing.missed()
        listing.put(f"ns/{name}", name)
    assert stream.receiver.taken() == [
        "list",
        ("observed", "a", 130, 130),
        ("interrupted", 10, 130),
        ("observed", "b", 130, 130),
        ("observed", "c", 130, 130),
    ]


async def test_time_without_changes_counts_as_observed(stream):
    await stream.list_and_watch("a")
    await asyncio.sleep(240)
    stream.disconnect(0)
    stream.stream.unchanged(stream.clock.time_ns())
    await asyncio.sleep(3)
    stream.stream.connected()
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 253, 250)]
    await asyncio.sleep(2)  # of 1 s and a quarter of 3 s
    assert stream.apply("MODIFIED", "a") == [("observed", "a", 255, None)]


async def test_deletion_that_an_expired_watch_missed_is_a_gap(stream):
    await stream.list_and_watch("a")
    stream.disconnect()
    await asyncio.sleep(5)
    stream.receiver.lacks_objects = True
    await stream.stream.start_list(same_history=True).finish("7")
    assert stream.receiver.taken() == ["list", ("interrupted", 10, 15), ("listed", 15)]


async def test_stream_that_assumes_gaps_reports_each_expired_watch(clock):
    stream = Stream(clock, assumes_gaps=True)
    await stream.list_and_watch("a")
    stream.disconnect()
    await asyncio.sleep(5)
    listing = stream.stream.start_list(same_history=True)
    listing.put("ns/a", "a")
    await listing.finish("7")
    assert stream.receiver.taken() == [("interrupted", 10, 15), "list", ("observed", "a", 15, 15), ("listed", 15)]
