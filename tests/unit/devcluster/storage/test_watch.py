"""Watches: selections, resuming, slow watchers, and the response stream."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.watch import Watcher, WatchStream
from support.apiserver.config_map_store import ConfigMapStore


def lines(chunk: bytes) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in chunk.splitlines()]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_selection_changes_become_added_and_deleted_events():
    config_maps = ConfigMapStore()
    watcher = Watcher(config_maps.table, selection=lambda obj: obj["metadata"]["labels"].get("g") == "x")
    watcher.open([])
    config_maps.write("a")
    config_maps.write("a", g="x")
    config_maps.write("a", g="x", other="1")
    config_maps.write("a", g="y")
    events = watcher.take()
    assert lines(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    deleted = json.loads(events.splitlines()[2])["object"]["metadata"]
    assert deleted["labels"] == {"g": "x", "other": "1"}  # the last matching state
    assert deleted["resourceVersion"] == str(config_maps.store.revision)


def test_watch_resumes_without_gaps_until_compaction():
    config_maps = ConfigMapStore(max_changes=3)
    config_maps.write("a")
    revision = config_maps.store.revision
    for name in "bcd":
        config_maps.write(name)
    watcher = Watcher(config_maps.table)
    watcher.open(config_maps.table.changes_since(revision))
    config_maps.write("e")
    assert lines(watcher.take()) == [("ADDED", name) for name in "bcde"]
    with pytest.raises(StatusError, match="too old resource version"):
        config_maps.table.changes_since(revision)


def test_watch_of_a_namespace_excludes_others():
    config_maps = ConfigMapStore()
    watcher = Watcher(config_maps.table, namespace="a")
    watcher.open([])
    config_maps.write("x", "a-b")
    config_maps.write("y", "a")
    assert lines(watcher.take()) == [("ADDED", "y")]


def test_unread_watch_is_cut_off_when_its_buffer_is_full():
    config_maps = ConfigMapStore()
    watcher, closed = Watcher(config_maps.table, buffer=2), []
    watcher.open([])
    watcher.when_closed(lambda: closed.append("once"))
    for name in "abcd":
        config_maps.write(name)
    assert watcher.overflowed
    assert lines(watcher.take()) == [("ADDED", "a"), ("ADDED", "b")]
    watcher.close()
    assert closed == ["once"]
    watcher.when_closed(lambda: closed.append("at once"))
    assert closed == ["once", "at once"]


def bookmark(initial_events_end: bool) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"name":"%s"}}}\n' % (b"end" if initial_events_end else b"")


async def test_stream_sends_initial_events_bookmark_and_changes():
    config_maps = ConfigMapStore()
    config_maps.write("a")
    watcher = Watcher(config_maps.table)
    for stored in config_maps.table.list():
        watcher.add(stored)
    watcher.open([])
    stream = WatchStream(watcher, timeout_seconds=60.0, bookmark=bookmark, initial_events_end=True)
    assert lines(await anext(stream)) == [("ADDED", "a"), ("BOOKMARK", "end")]
    next_chunk = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    config_maps.write("b")
    assert lines(await next_chunk) == [("ADDED", "b")]
    watcher.cut()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    config_maps.write("c")
    assert not watcher.take()


async def test_stream_ends_at_its_timeout():
    config_maps = ConfigMapStore()
    watcher = Watcher(config_maps.table)
    watcher.open([])
    stream = WatchStream(watcher, timeout_seconds=0.01, bookmark=None, initial_events_end=False)
    assert [chunk async for chunk in stream] == []


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("timeout_seconds", "bookmarks"),
    [
        pytest.param(30.0, [28.0], id="shorter than the interval"),
        pytest.param(90.0, [60.0, 88.0], id="longer than the interval"),
        pytest.param(1.0, [], id="too short for one"),
    ],
)
async def test_last_bookmark_is_sent_two_seconds_before_the_end(timeout_seconds: float, bookmarks: list[float]):
    loop, watcher = asyncio.get_running_loop(), Watcher(ConfigMapStore().table)
    watcher.open([])
    start = loop.time()
    stream = WatchStream(watcher, timeout_seconds=timeout_seconds, bookmark=bookmark, initial_events_end=False)
    sent = [(round(loop.time() - start, 3), lines(chunk)) async for chunk in stream]
    assert sent == [(at, [("BOOKMARK", "")]) for at in bookmarks]
    assert loop.time() - start == pytest.approx(timeout_seconds)
