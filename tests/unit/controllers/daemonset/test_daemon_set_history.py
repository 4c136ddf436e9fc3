"""Revisions of a DaemonSet: which is current, which are deleted, collisions and duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.controllers.daemonset.daemon_set_history import revision_data, revisions_to_delete, split_revisions
from kubeloop.kube.objects.api_types import ControllerRevision, convert
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, PODS
from support.objects.daemon_sets import LABELS, daemon_set, daemon_set_body
from support.simulation.daemon_set_simulation import DaemonSetSimulation

pytestmark = pytest.mark.virtual_time


def revision(name: str, number: int, data: Any = None) -> ControllerRevision:
    metadata = {"name": name, "labels": {"controller-revision-hash": name}}
    return convert(ControllerRevision, {"metadata": metadata, "revision": number, "data": data})


@pytest.fixture
async def cluster() -> AsyncIterator[DaemonSetSimulation]:
    """One node with a DaemonSet, after its first sync."""
    cluster = DaemonSetSimulation()
    cluster.add_node("node-0")
    cluster.start()
    cluster.apply(daemon_set_body())
    await asyncio.sleep(10)
    yield cluster
    await cluster.stop()


def test_revisions_are_split_by_the_template():
    ds = daemon_set()
    revisions = [revision("c", 3, {}), revision("b", 2, revision_data(ds)), revision("a", 1, {})]
    split = split_revisions(ds, revisions)
    assert [each.metadata.name for each in split.current] == ["b"]
    assert [each.metadata.name for each in split.old] == ["a", "c"]
    assert split.next_number == 4
    assert split_revisions(ds, []).next_number == 1


def test_oldest_revisions_without_pods_are_deleted():
    old = [revision(name, number) for number, name in enumerate("abcd")]
    surplus = revisions_to_delete(daemon_set(revisionHistoryLimit=2), old, {"a"})
    assert [each.metadata.name for each in surplus] == ["b", "c"]


async def test_collision_of_names_raises_the_collision_count(cluster):
    (first,) = cluster.store.list(CONTROLLER_REVISIONS)
    cluster.store.delete(CONTROLLER_REVISIONS, "ns", first["metadata"]["name"])
    metadata = {"name": first["metadata"]["name"], "namespace": "ns"}
    cluster.store.create(CONTROLLER_REVISIONS, {**first, "metadata": metadata, "data": {"spec": {}}})
    await asyncio.sleep(10)
    assert cluster.status()["collisionCount"] == 1
    assert sorted(cluster.revisions().values()) == [1, 1]
    assert cluster.status()["updatedNumberScheduled"] == 1


async def test_duplicates_are_deleted_after_pods_got_the_other_label(cluster):
    (first,) = cluster.store.list(CONTROLLER_REVISIONS)
    metadata = first["metadata"]
    labels = {**LABELS, "controller-revision-hash": "copy"}
    created = {key: metadata[key] for key in ("namespace", "ownerReferences")} | {"name": "copy", "labels": labels}
    cluster.store.create(CONTROLLER_REVISIONS, {**first, "metadata": created, "revision": 5})
    await asyncio.sleep(1)  # a revision that is owned does not enqueue its owner
    cluster.controller.queue.add("ns/agent")
    await asyncio.sleep(10)
    assert cluster.revisions() == {"copy": 5}
    (pod,) = cluster.store.list(PODS)
    assert pod["metadata"]["labels"]["controller-revision-hash"] == "copy"


async def test_orphan_without_hash_label_is_adopted_and_labeled(cluster):
    (first,) = cluster.store.list(CONTROLLER_REVISIONS)
    name = first["metadata"]["name"]
    metadata = {"name": "orphan", "namespace": "ns", "labels": LABELS}
    cluster.store.create(CONTROLLER_REVISIONS, {**first, "metadata": metadata, "data": {"spec": {}}, "revision": 7})
    await asyncio.sleep(10)
    orphan = cluster.store.get(CONTROLLER_REVISIONS, "ns", "orphan")
    assert orphan["metadata"]["labels"]["controller-revision-hash"] == "orphan"
    assert orphan["metadata"]["ownerReferences"][0]["name"] == "agent"
    assert cluster.revisions() == {name: 8, "orphan": 7}
