"""ObjectStore: revisions, snapshots, compaction, order of keys and metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage import store as store_module
from kubeloop.devcluster.storage.store import InitialObjects, ObjectStore, Table, with_revision
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.config_map_store import ConfigMapStore


def names(table: Table, revision: int) -> list[str]:
    return [stored.key for stored in table.snapshot_at(revision)]


def test_list_is_in_etcd_key_order_per_namespace():
    config_maps = ConfigMapStore()
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b"), ("ab", "c")):
        config_maps.write(name, namespace)
    assert [stored.key for stored in config_maps.table.list()] == ["a-b/a", "a/b", "a/z", "ab/c"]
    assert [stored.key for stored in config_maps.table.list("a")] == ["a/b", "a/z"]


def test_follower_gets_changes_without_creating_the_initial_objects():
    store, changes = ObjectStore(seconds=lambda: 0.0), []
    initial = {"metadata": {"name": "initial", "namespace": "ns"}}
    store.follow(CONFIG_MAPS, lambda change: changes.append(change.now.key))
    store.add_initial_objects({CONFIG_MAPS: InitialObjects(1, lambda: [initial])})
    store.follow(CONFIG_MAPS, lambda change: changes.append(f"later {change.now.key}"))
    assert not store.initial_objects_created(CONFIG_MAPS)
    store.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "ns"}})
    store.follow(CONFIG_MAPS, lambda change: changes.append(f"last {change.type}"))
    store.delete(CONFIG_MAPS, "ns", "a")
    assert changes == ["ns/a", "later ns/a", "ns/a", "later ns/a", "last DELETED"]
    assert [stored.key for stored in store.table(CONFIG_MAPS).list()] == ["ns/initial"]


def test_update_with_stale_resource_version_conflicts():
    config_maps = ConfigMapStore()
    first = config_maps.write("a")
    config_maps.write("a", x="1")
    with pytest.raises(StatusError) as raised:
        config_maps.store.update(CONFIG_MAPS, first)
    assert (raised.value.code, raised.value.reason) == (409, "Conflict")


def test_snapshot_of_a_compacted_revision_expires():
    config_maps = ConfigMapStore()
    config_maps.write("a")
    config_maps.write("b")
    then = config_maps.store.revision
    config_maps.store.delete(CONFIG_MAPS, "ns", "a")
    config_maps.write("c")
    assert names(config_maps.table, then) == ["ns/a", "ns/b"]
    assert names(config_maps.table, config_maps.store.revision) == ["ns/b", "ns/c"]
    config_maps.store.compact()
    config_maps.now = 11.0
    config_maps.store.compact()
    with pytest.raises(StatusError) as raised:
        config_maps.table.snapshot_at(then)
    assert (raised.value.code, raised.value.reason) == (410, "Expired")


def test_compaction_keeps_the_latest_changes_for_watches():
    config_maps = ConfigMapStore(max_changes=1000)
    for name in ("a", "b", "c"):
        config_maps.write(name)
    config_maps.store.compact()
    config_maps.now = 11.0
    config_maps.store.compact()
    assert [change.now.key for change in config_maps.table.changes_since(2)] == ["ns/b", "ns/c"]
    for number in range(200):
        config_maps.write(f"d{number}")
    config_maps.store.compact()
    config_maps.now = 22.0
    config_maps.store.compact()
    with pytest.raises(StatusError) as raised:
        config_maps.table.changes_since(2)
    assert raised.value.code == 410
    assert len(config_maps.table.changes_since(config_maps.store.revision - 100)) == 100


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40))
def test_snapshot_of_every_revision(writes: list[tuple[str, bool]]):
    config_maps = ConfigMapStore(max_changes=1000)
    past: dict[int, list[str]] = {}
    for name, exists in writes:
        if exists:
            config_maps.write(name)
        elif config_maps.store.get(CONFIG_MAPS, "ns", name) is not None:
            config_maps.store.delete(CONFIG_MAPS, "ns", name)
        past[config_maps.store.revision] = [stored.key for stored in config_maps.table.list()]
        config_maps.table.check()
    for revision, expected in past.items():
        assert names(config_maps.table, revision) == expected


def test_encodings_of_old_versions_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "_ENCODED_CHANGES", 2)
    config_maps = ConfigMapStore()
    config_maps.write("a", x="1")
    config_maps.write("a", x="2")
    created, updated = config_maps.table.changes_since(0)
    events = [created.json_event(), updated.json_event()]
    config_maps.write("b")  # the update is now the second last change
    assert (created._json_event, created.now._json, updated._json_event) == (events[0], None, None)
    assert updated.now._json is not None, "it is the current version"
    config_maps.store.delete(CONFIG_MAPS, "ns", "a")
    config_maps.write("c")
    assert (updated.now._json, config_maps.table.changes_since(0)[-2].now._json) == (None, None)
    assert [created.json_event(), updated.json_event()] == events


def test_with_revision_orders_metadata_like_go():
    metadata = {"labels": {}, "name": "x", "managedFields": [], "uid": "u", "creationTimestamp": "t", "namespace": "n"}
    stamped = with_revision({"kind": "Pod", "metadata": metadata}, 5)
    assert list(stamped["metadata"]) == [
        "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "managedFields",
    ]  # fmt: skip
    assert stamped["metadata"] == {**metadata, "resourceVersion": "5"}
