"""ControllerRevisions: hash, order, limit, and writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.runtime.revisions.controller_history import (
    REVISION_HASH_LABEL,
    ControllerHistory,
    data_text,
    equal_revisions,
    new_revision,
    next_revision_number,
    revision_hash,
    revision_name,
    sorted_revisions,
    surplus_revisions,
)
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import Conflict
from kubeloop.kube.objects.api_types import ControllerRevision, LabelSelector, ObjectMeta, ReplicaSet, convert
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, REPLICA_SETS
from kubeloop.kube.selectors.selectors import selector_from

pytestmark = pytest.mark.virtual_time

DATA: dict[str, Any] = {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "web"}}}}}


def revision(name: str, number: int, data: Any = None, created: str = "2026-01-01T00:00:00Z") -> ControllerRevision:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": created}
    return convert(ControllerRevision, {"metadata": metadata, "revision": number, "data": data})


def test_data_text_is_that_of_go():
    assert data_text({"b": "<&>\u2028", "a": [1, True]}) == b'{"a":[1,true],"b":"\\u003c\\u0026\\u003e\\u2028"}'


def test_hash_depends_on_data_and_collision_count_but_not_on_order_of_keys():
    assert revision_hash({"a": 1, "b": 2}, 0) == revision_hash({"b": 2, "a": 1}, 0)
    assert len({revision_hash(DATA, None), revision_hash(DATA, 0), revision_hash(DATA, 1), revision_hash({}, 0)}) == 4


def test_name_of_a_long_owner_is_truncated():
    assert revision_name("web", "abc") == "web-abc"
    assert revision_name("n" * 250, "abc") == "n" * 223 + "-abc"


def test_new_revision_has_labels_owner_and_hash():
    owner = ReplicaSet(
        api_version="apps/v1", kind="ReplicaSet", metadata=ObjectMeta(name="web", namespace="ns", uid="u")
    )
    created = new_revision(owner, {"app": "web"}, DATA, 3, 0)
    hash_ = revision_hash(DATA, 0)
    assert (created.metadata.name, created.revision, created.data) == (f"web-{hash_}", 3, DATA)
    assert created.metadata.labels == {"app": "web", REVISION_HASH_LABEL: hash_}
    assert (created.metadata.owner_references[0].uid, created.metadata.owner_references[0].controller) == ("u", True)


def test_revisions_are_sorted_by_number_then_time_then_name():
    order = [
        revision("d", 1),
        revision("c", 2),
        revision("a", 2, created="2026-01-02T00:00:00Z"),
        revision("b", 2, created="2026-01-02T00:00:00Z"),
    ]
    assert sorted_revisions(reversed(order)) == order
    assert next_revision_number(order) == 3
    assert next_revision_number([]) == 1


def test_equal_revisions_compares_data_only():
    one, two, three = revision("a", 1, {"x": 1}), revision("b", 2, {"x": 2}), revision("c", 3, {"x": 1})
    assert equal_revisions([one, two, three], revision("d", 9, {"x": 1})) == [one, three]


@pytest.mark.parametrize(
    ("limit", "limit_includes_live", "surplus"),
    [
        pytest.param(3, False, ["a"], id="live ones are not counted"),
        pytest.param(3, True, ["a", "b"], id="live ones are counted"),
        pytest.param(0, True, ["a", "b", "d", "e"], id="live ones are never surplus"),
        pytest.param(9, False, [], id="within the limit"),
    ],
)
def test_surplus_revisions(limit, limit_includes_live, surplus):
    revisions = [revision(name, number) for number, name in enumerate("abcde")]
    result = surplus_revisions(revisions, {"c"}, limit, limit_includes_live=limit_includes_live)
    assert [it.metadata.name for it in result] == surplus


@pytest.fixture
async def history(fake_apiserver, start) -> ControllerHistory:
    history = ControllerHistory(fake_apiserver.context)
    await start(fake_apiserver.informers)
    return history


@pytest.fixture
async def owner(fake_apiserver) -> ReplicaSet:
    return convert(ReplicaSet, fake_apiserver.add(REPLICA_SETS, "web"))


async def test_create_returns_an_equal_existing_revision(history, owner, fake_apiserver):
    created, count = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    again, same_count = await history.create(owner, new_revision(owner, {}, DATA, 2, 0), 0)
    assert (again, count, same_count) == (created, 0, 0)
    assert len(fake_apiserver.store.list(CONTROLLER_REVISIONS)) == 1


async def test_create_counts_collisions_of_names(history, owner, fake_apiserver):
    name = revision_name("web", revision_hash(DATA, 0))
    body = {"metadata": {"name": name}, "revision": 1, "data": {"other": 1}}
    fake_apiserver.api.create(CONTROLLER_REVISIONS.path("ns"), body)
    created, count = await history.create(owner, new_revision(owner, {}, DATA, 2, 0), 0)
    assert count == 1
    assert created.metadata.name == revision_name("web", revision_hash(DATA, 1))
    assert created.data == DATA


async def test_list_returns_owned_revisions_and_orphans(history, owner, start):
    other = replace(owner, metadata=replace(owner.metadata, name="other", uid="other"))
    mine, _ = await history.create(owner, new_revision(owner, {"app": "web"}, DATA, 1, 0), 0)
    await history.create(other, new_revision(other, {"app": "web"}, {"x": 1}, 1, 0), 0)
    await history.create(owner, new_revision(owner, {"app": "db"}, {"x": 2}, 1, 0), 0)
    orphan = replace(new_revision(owner, {"app": "web"}, {"x": 3}, 1, 0))
    orphan = replace(orphan, metadata=replace(orphan.metadata, owner_references=()))
    orphan, _ = await history.create(owner, orphan, 0)
    await start()
    selector = selector_from(LabelSelector(match_labels={"app": "web"}))
    assert {it.metadata.name for it in history.list(owner, selector)} == {mine.metadata.name, orphan.metadata.name}
    adopted = await history.adopt(owner, orphan)
    assert adopted.metadata.owner_references[0].uid == owner.metadata.uid


async def test_update_retries_conflicts_from_the_cache(history, owner, start):
    created, _ = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    updated = await history.update(created, 2)
    assert await history.update(updated, 2) is updated
    await start()
    assert (await history.update(created, 3)).revision == 3  # created is outdated, the cache is not


async def test_update_raises_the_conflict_after_four_tries(history, owner, fake_apiserver):
    created, _ = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    patches = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method != "PATCH":
            return None
        patches.append(path)
        return errors.conflict(CONTROLLER_REVISIONS, created.metadata.name, "changed")

    fake_apiserver.transport.reject = reject
    with pytest.raises(Conflict):
        await history.update(created, 4)
    assert len(patches) == 4


async def test_delete_removes_a_revision(history, owner, fake_apiserver):
    created, _ = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    await history.delete(created)
    assert fake_apiserver.store.list(CONTROLLER_REVISIONS) == []


async def test_delete_keeps_a_newer_revision_of_the_same_name(history, owner, fake_apiserver):
    created, _ = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    await history.delete(created)
    newer, _ = await history.create(owner, new_revision(owner, {}, DATA, 1, 0), 0)
    assert newer.metadata.name == created.metadata.name
    with pytest.raises(Conflict):
        await history.delete(created)
    assert len(fake_apiserver.store.list(CONTROLLER_REVISIONS)) == 1
