"""Storage and watches: revisions, snapshots, resuming, selections, slow watchers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import Store, Table, with_revision
from kubeloop.devcluster.storage.watch import Watcher, WatchStream
from kubeloop.kube.objects.resources import CONFIG_MAPS

JSON = dict[str, Any]


def config_map(name: str, namespace: str = "ns", **labels: str) -> JSON:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


class World:
    """A store whose clock stands still unless told."""

    def __init__(self, history: int = 100) -> None:
        self.now = 0.0
        self.store = Store(seconds=lambda: self.now, history=history, compaction_seconds=10.0)

    @property
    def table(self) -> Table:
        return self.store.table(CONFIG_MAPS)

    def write(self, name: str, namespace: str = "ns", **labels: str) -> JSON:
        obj = config_map(name, namespace, **labels)
        if self.store.get(CONFIG_MAPS, namespace, name) is None:
            return self.store.create(CONFIG_MAPS, obj)
        return self.store.update(CONFIG_MAPS, obj)


def names(table: Table, revision: int) -> list[str]:
    return [stored.key for stored in table.snapshot_at(revision)]


def test_a_list_is_in_the_order_of_etcds_keys_and_a_namespace_is_not_a_prefix_of_another():
    world = World()
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b"), ("ab", "c")):
        world.write(name, namespace)
    assert [stored.key for stored in world.table.list()] == ["a-b/a", "a/b", "a/z", "ab/c"]
    assert [stored.key for stored in world.table.list("a")] == ["a/b", "a/z"]


def test_an_update_with_a_stale_resource_version_conflicts():
    world = World()
    first = world.write("a")
    world.write("a", x="1")
    with pytest.raises(StatusError) as caught:
        world.store.update(CONFIG_MAPS, first)
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


def test_a_snapshot_shows_the_past_and_a_compacted_one_is_gone():
    world = World()
    world.write("a")
    world.write("b")
    then = world.store.revision
    world.store.delete(CONFIG_MAPS, "ns", "a")
    world.write("c")
    assert names(world.table, then) == ["ns/a", "ns/b"]
    assert names(world.table, world.store.revision) == ["ns/b", "ns/c"]
    world.store.compact()
    world.now = 11.0
    world.store.compact()
    with pytest.raises(StatusError) as caught:
        world.table.snapshot_at(then)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_a_watch_resumes_after_a_compaction_while_the_latest_changes_are_kept():
    world = World(history=1000)
    for name in ("a", "b", "c"):
        world.write(name)
    world.store.compact()
    world.now = 11.0
    world.store.compact()
    assert [change.now.key for change in world.table.changes_since(2)] == ["ns/b", "ns/c"]
    for number in range(200):
        world.write(f"d{number}")
    world.store.compact()
    world.now = 22.0
    world.store.compact()
    with pytest.raises(StatusError) as caught:
        world.table.changes_since(2)
    assert caught.value.code == 410
    assert len(world.table.changes_since(world.store.revision - 100)) == 100


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40))
def test_every_revision_can_be_read_back(writes: list[tuple[str, bool]]):
    world = World(history=1000)
    past: dict[int, list[str]] = {}
    for name, keep in writes:
        if keep:
            world.write(name)
        elif world.store.get(CONFIG_MAPS, "ns", name) is not None:
            world.store.delete(CONFIG_MAPS, "ns", name)
        past[world.store.revision] = [stored.key for stored in world.table.list()]
        world.table.check()
    for revision, expected in past.items():
        assert names(world.table, revision) == expected


def lines(chunk: bytes) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in chunk.splitlines()]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_objects_that_enter_or_leave_a_selection_are_added_and_deleted():
    world = World()
    watcher = Watcher(world.table, selection=lambda obj: obj["metadata"]["labels"].get("g") == "x")
    watcher.open([])
    world.write("a")
    world.write("a", g="x")
    world.write("a", g="x", other="1")
    world.write("a", g="y")
    last = watcher.take()
    assert lines(last) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    left = json.loads(last.splitlines()[2])["object"]["metadata"]
    assert left["labels"] == {"g": "x", "other": "1"}  # as it was when it last matched
    assert left["resourceVersion"] == str(world.store.revision)


def test_a_resumed_watch_misses_nothing_and_a_too_old_one_is_told_so():
    world = World(history=3)
    world.write("a")
    seen = world.store.revision
    for name in "bcd":
        world.write(name)
    watcher = Watcher(world.table)
    watcher.open(world.table.changes_since(seen))
    world.write("e")
    assert lines(watcher.take()) == [("ADDED", name) for name in "bcde"]
    with pytest.raises(StatusError, match="too old resource version"):
        world.table.changes_since(seen)


def test_a_watcher_of_one_namespace_sees_that_namespace():
    world = World()
    watcher = Watcher(world.table, namespace="a")
    watcher.open([])
    world.write("x", "a-b")
    world.write("y", "a")
    assert lines(watcher.take()) == [("ADDED", "y")]


def test_a_watcher_that_is_not_read_is_cut_off_when_its_buffer_is_full():
    world = World()
    watcher, closed = Watcher(world.table, buffer=2), []
    watcher.open([])
    watcher.when_closed(lambda: closed.append("once"))
    for name in "abcd":
        world.write(name)
    assert watcher.overflowed
    assert lines(watcher.take()) == [("ADDED", "a"), ("ADDED", "b")]
    watcher.close()
    assert closed == ["once"]
    watcher.when_closed(lambda: closed.append("at once"))
    assert closed == ["once", "at once"]


def bookmark(initial_events_end: bool) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"name":"%s"}}}\n' % (b"end" if initial_events_end else b"")


async def test_a_stream_sends_the_initial_events_their_end_and_what_follows_until_it_is_closed():
    world = World()
    world.write("a")
    watcher = Watcher(world.table)
    for stored in world.table.list():
        watcher.add(stored)
    watcher.open([])
    stream = WatchStream(watcher, timeout_seconds=60.0, bookmark=bookmark, initial_events_end=True)
    assert lines(await anext(stream)) == [("ADDED", "a"), ("BOOKMARK", "end")]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    world.write("b")
    assert lines(await waiting) == [("ADDED", "b")]
    watcher.cut()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    world.write("c")
    assert not watcher.take()


async def test_a_stream_ends_at_its_time_out():
    world = World()
    watcher = Watcher(world.table)
    watcher.open([])
    stream = WatchStream(watcher, timeout_seconds=0.01, bookmark=None, initial_events_end=False)
    assert [chunk async for chunk in stream] == []


def test_metadata_is_kept_in_the_order_in_which_go_writes_it():
    given = {"labels": {}, "name": "x", "managedFields": [], "uid": "u", "creationTimestamp": "t", "namespace": "n"}
    stamped = with_revision({"kind": "Pod", "metadata": given}, 5)
    assert list(stamped["metadata"]) == [
        "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "managedFields",
    ]  # fmt: skip
    assert stamped["metadata"] == {**given, "resourceVersion": "5"}
