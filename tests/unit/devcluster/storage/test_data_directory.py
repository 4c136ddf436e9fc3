"""ObjectStore with a data directory: restarts restore objects, revision and history."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.devcluster.api.errors import NotDurable, StatusError
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS
from kubeloop.kube.user_error import UserError

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("write", "write", "write", "delete", "compact", "purge", "restart")),
        st.sampled_from((CONFIG_MAPS, PODS)),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


class StorePair:
    """A durable store and one in memory, which receive the same writes."""

    def __init__(self, folder: Path, *, history: int = 8) -> None:
        self.now = 0.0
        self.history = history
        self.folder = folder
        self.data_directory = DataDirectory(folder)
        self.durable = self._store(self.data_directory)
        self.memory = self._store(None)

    def _store(self, data_directory: DataDirectory | None) -> ObjectStore:
        return ObjectStore(
            seconds=lambda: self.now, max_changes=self.history, compaction_seconds=3.0, data_directory=data_directory
        )

    def restart(self) -> None:
        self.data_directory.close()
        self.data_directory = DataDirectory(self.folder)
        self.durable = self._store(self.data_directory)

    def rows(self) -> int:
        return sum(1 for _ in self.data_directory.rows())


def write(store: ObjectStore, resource: Any, name: str) -> None:
    obj: JSON = {"kind": resource.kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": "ns"}}
    before = store.get(resource, "ns", name)
    if before is None:
        store.create(resource, obj | {"data": {"n": "0"}})
    else:
        store.update(resource, obj | {"data": {"n": str(int(before["data"]["n"]) + 1)}})


def state(store: ObjectStore) -> Any:
    return store.revision, {
        resource.plural: [(stored.key, stored.object) for stored in store.table(resource).list()]
        for resource in (CONFIG_MAPS, PODS)
    }


def watch_events(store: ObjectStore, resource: Any, revision: int) -> list[Any] | str:
    """Return the events of a watch from `revision` on, or the reason of its error."""
    try:
        changes = store.table(resource).changes_since(revision)
    except StatusError as error:
        return error.reason
    return [(change.type, change.now.object, change.before and change.before.object) for change in changes]


@settings(max_examples=150)
@given(steps=STEPS)
def test_restart_restores_state_and_watches_resume_or_expire(steps, tmp_path_factory):
    stores = StorePair(tmp_path_factory.mktemp("journal"))
    restarted_at = 0
    try:
        for step, resource, name in steps:
            stores.now += 1
            if step == "restart":
                stores.restart()
                restarted_at = stores.durable.revision
            for store in (stores.durable, stores.memory):
                if step == "write":
                    write(store, resource, name)
                elif step == "delete" and store.get(resource, "ns", name) is not None:
                    store.delete(resource, "ns", name)
                elif step == "compact":
                    store.compact()
                elif step == "purge":
                    while store.purge(2):
                        pass
            assert state(stores.durable) == state(stores.memory)
            for revision in range(1, stores.memory.revision + 1):
                durable_history = watch_events(stores.durable, resource, revision)
                memory_history = watch_events(stores.memory, resource, revision)
                # a restart may restore more of the history than memory keeps, or less; never something else
                if memory_history == "Expired" or (durable_history == "Expired" and revision < restarted_at):
                    continue
                assert durable_history == memory_history
            stores.durable.table(resource).check()
    finally:
        stores.data_directory.close()


def test_watch_resumes_after_restart_from_a_kept_revision(tmp_path):
    stores = StorePair(tmp_path)
    for store in (stores.durable, stores.memory):
        for name in "abab":
            write(store, PODS, name)
        store.delete(PODS, "ns", "a")
    stores.restart()
    assert watch_events(stores.durable, PODS, 2) == watch_events(stores.memory, PODS, 2)
    stores.data_directory.close()


def test_purge_deletes_superseded_versions_only(tmp_path):
    stores = StorePair(tmp_path, history=1)
    for _ in range(20):
        write(stores.durable, PODS, "kept")
    write(stores.durable, PODS, "gone")
    stores.durable.delete(PODS, "ns", "gone")
    revision = stores.durable.revision
    while stores.durable.purge(3):
        stores.restart()  # between two batches, as after a crash
        assert [stored.key for stored in stores.durable.table(PODS).list()] == ["ns/kept"]
    stores.restart()
    assert stores.rows() == 3  # the object, the deletion that a watch may request, and the deleted version
    assert stores.durable.revision == revision
    assert watch_events(stores.durable, PODS, revision - 2) == "Expired"
    assert watch_events(stores.durable, PODS, revision) == []
    stores.data_directory.close()


@pytest.mark.parametrize("damage", ["garbage", "torn write"])
def test_crash_during_a_write_loses_at_most_that_write(tmp_path, damage):
    stores = StorePair(tmp_path / "data")
    for name in "abc":
        write(stores.durable, PODS, name)
    before = state(stores.durable)
    complete = (tmp_path / "data" / "store.db-wal").stat().st_size
    write(stores.durable, PODS, "unfinished")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as after the death of the process
    with (tmp_path / "copy" / "store.db-wal").open("r+b") as log:
        log.truncate(complete if damage == "garbage" else complete + 100)
        if damage == "garbage":
            log.seek(0, os.SEEK_END)
            log.write(random.Random(1).randbytes(10_000))
    restored = StorePair(tmp_path / "copy")
    assert state(restored.durable) == before
    write(restored.durable, PODS, "next")
    restored.restart()
    assert restored.durable.get(PODS, "ns", "next") is not None
    for pair in (stores, restored):
        pair.data_directory.close()


def test_failed_write_has_no_effect(tmp_path, monkeypatch):
    stores = StorePair(tmp_path)
    write(stores.durable, PODS, "a")
    before = state(stores.durable)
    changes_received: list[Any] = []
    stores.durable.subscribe(PODS, changes_received.append)
    stores.data_directory._db.execute("PRAGMA max_page_count = 1")  # "disk full" from here on
    for act in (
        lambda: stores.durable.create(PODS, {"metadata": {"name": "b", "namespace": "ns"}, "x": "y" * 20_000}),
        lambda: stores.durable.update(PODS, {"metadata": {"name": "a", "namespace": "ns"}, "x": "y" * 20_000}),
    ):
        with pytest.raises(NotDurable):
            act()
    assert state(stores.durable) == before
    assert changes_received == []
    stores.restart()
    assert state(stores.durable) == before
    write(stores.durable, PODS, "b")
    stores.data_directory.close()


def test_missing_version_is_reported_as_damage(tmp_path):
    stores = StorePair(tmp_path)
    write(stores.durable, PODS, "a")
    write(stores.durable, PODS, "a")
    stores.data_directory._db.execute("DELETE FROM versions WHERE type = 0")
    with pytest.raises(UserError, match="MODIFIED of pods ns/a at revision 3 does not follow"):
        stores.restart()
    stores.data_directory.close()
