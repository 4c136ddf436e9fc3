"""The store with a journal: what it was before, it is again, whatever was written, compacted and collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.devcluster.api.errors import NotDurable, StatusError
from kubeloop.devcluster.storage.sqlite import Journal
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS

JSON = dict[str, Any]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("write", "write", "write", "delete", "compact", "collect", "restart")),
        st.sampled_from((CONFIG_MAPS, PODS)),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


class World:
    """A store in a folder, and one in memory to which the same is done."""

    def __init__(self, folder: Path, *, history: int = 8) -> None:
        self.now = 0.0
        self.history = history
        self.folder = folder
        self.journal = Journal(folder)
        self.durable = self._store(self.journal)
        self.memory = self._store(None)

    def _store(self, journal: Journal | None) -> Store:
        return Store(seconds=lambda: self.now, history=self.history, compaction_seconds=3.0, journal=journal)

    def restart(self) -> None:
        self.journal.close()
        self.journal = Journal(self.folder)
        self.durable = self._store(self.journal)

    def rows(self) -> int:
        return sum(1 for _ in self.journal.rows())


def write(store: Store, resource: Any, name: str) -> None:
    obj: JSON = {"kind": resource.kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": "ns"}}
    before = store.get(resource, "ns", name)
    if before is None:
        store.create(resource, obj | {"data": {"n": "0"}})
    else:
        store.update(resource, obj | {"data": {"n": str(int(before["data"]["n"]) + 1)}})


def state(store: Store) -> Any:
    return store.revision, {
        resource.plural: [(each.key, each.object) for each in store.table(resource).list()]
        for resource in (CONFIG_MAPS, PODS)
    }


def history(store: Store, resource: Any, revision: int) -> list[Any] | str:
    """What a watch from `revision` on would be told."""
    try:
        changes = store.table(resource).changes_since(revision)
    except StatusError as error:
        return error.reason
    return [(change.type, change.now.object, change.before and change.before.object) for change in changes]


@settings(max_examples=150)
@given(steps=STEPS)
def test_after_a_restart_state_and_revision_are_the_same_and_watches_go_on_or_are_told_to_begin_again(
    steps, tmp_path_factory
):
    world = World(tmp_path_factory.mktemp("journal"))
    try:
        for step, resource, name in steps:
            world.now += 1
            if step == "restart":
                world.restart()
            for store in (world.durable, world.memory):
                if step == "write":
                    write(store, resource, name)
                elif step == "delete" and store.get(resource, "ns", name) is not None:
                    store.delete(resource, "ns", name)
                elif step == "compact":
                    store.compact()
                elif step == "collect":
                    while store.collect(2):
                        pass
            assert state(world.durable) == state(world.memory)
            for revision in range(1, world.memory.revision + 1):
                told = history(world.durable, resource, revision)
                known = history(world.memory, resource, revision)
                # a restart may remember more than memory did, or less of a long history; never something else
                assert told in ("Expired", known) or known == "Expired"
            world.durable.table(resource).check()
    finally:
        world.journal.close()


def test_a_watch_goes_on_over_a_restart_while_its_revision_is_kept(tmp_path):
    world = World(tmp_path)
    for store in (world.durable, world.memory):
        for name in "abab":
            write(store, PODS, name)
        store.delete(PODS, "ns", "a")
    world.restart()
    assert history(world.durable, PODS, 2) == history(world.memory, PODS, 2)
    world.journal.close()


def test_versions_that_nobody_can_ask_for_leave_the_file_and_deleted_objects_do_not_come_back(tmp_path):
    world = World(tmp_path, history=1)
    for _ in range(20):
        write(world.durable, PODS, "kept")
    write(world.durable, PODS, "gone")
    world.durable.delete(PODS, "ns", "gone")
    revision = world.durable.revision
    while world.durable.collect(3):
        world.restart()  # between two portions, as a crash would
        assert [stored.key for stored in world.durable.table(PODS).list()] == ["ns/kept"]
    world.restart()
    assert world.rows() == 3  # the object; the deletion, which a watch may still ask for, and what it deleted
    assert world.durable.revision == revision
    assert history(world.durable, PODS, revision - 2) == "Expired"
    assert history(world.durable, PODS, revision) == []
    world.journal.close()


def test_a_write_that_is_not_durable_has_not_taken_place(tmp_path, monkeypatch):
    world = World(tmp_path)
    write(world.durable, PODS, "a")
    before = state(world.durable)
    seen: list[Any] = []
    world.durable.subscribe(PODS, seen.append)
    world.journal._db.execute("PRAGMA max_page_count = 1")  # "disk full" from here on
    for act in (
        lambda: world.durable.create(PODS, {"metadata": {"name": "b", "namespace": "ns"}, "x": "y" * 20_000}),
        lambda: world.durable.update(PODS, {"metadata": {"name": "a", "namespace": "ns"}, "x": "y" * 20_000}),
    ):
        with pytest.raises(NotDurable):
            act()
    assert state(world.durable) == before
    assert seen == []
    world.restart()
    assert state(world.durable) == before
    write(world.durable, PODS, "b")
    world.journal.close()


def test_a_history_with_a_hole_is_damage_and_not_guessed_at(tmp_path):
    world = World(tmp_path)
    write(world.durable, PODS, "a")
    write(world.durable, PODS, "a")
    world.journal._db.execute("DELETE FROM versions WHERE type = 0")
    with pytest.raises(UserError, match="MODIFIED of pods ns/a at revision 3 does not follow"):
        world.restart()
    world.journal.close()
