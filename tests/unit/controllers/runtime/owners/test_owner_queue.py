"""Owners that an added or changed object enqueues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert

pytestmark = pytest.mark.virtual_time
LABELS = {"app": "web"}


def replica_set(name: str) -> ReplicaSet:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return convert(ReplicaSet, {"metadata": metadata, "spec": {"selector": {"matchLabels": LABELS}}})


def pod(owner: str = "", **labels: str) -> Pod:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": owner,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "labels": labels or LABELS}
    return convert(Pod, {"metadata": metadata | ({"ownerReferences": [reference]} if owner else {})})


class RecordedQueue(WorkQueue):
    """A queue that records what is added."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[str, str]] = []

    def add(self, key: str, reason: str = "") -> None:
        self.added.append((key, reason))


def owner_queue(queue: WorkQueue, **options: float) -> OwnerQueue[ReplicaSet]:
    """Return the OwnerQueue of the ReplicaSets "a" and "b"."""
    owners: Store[ReplicaSet] = Store()
    for name in ("a", "b"):
        owners.put(f"ns/{name}", replica_set(name))
    return OwnerQueue(owners, "ReplicaSet", queue, lambda rs: rs.spec.selector, **options)


OF_BOTH = [("ns/a", "orphaned pod changed"), ("ns/b", "orphaned pod changed")]


@pytest.mark.parametrize(
    ("old", "new", "enqueued"),
    [
        pytest.param(pod("a"), pod("a"), [("ns/a", "pod changed")], id="owned"),
        pytest.param(pod("a"), pod("b"), [("ns/a", "pod released"), ("ns/b", "pod changed")], id="other owner"),
        pytest.param(pod("a"), pod(), [("ns/a", "pod released"), *OF_BOTH], id="released"),
        pytest.param(pod(), pod("a"), [("ns/a", "pod changed")], id="adopted"),
        pytest.param(pod(), pod(), [], id="orphan"),
        pytest.param(pod(app="other"), pod(), OF_BOTH, id="orphan with new labels"),
        pytest.param(pod("gone"), pod("gone"), [], id="unknown owner"),
    ],
)
async def test_change_enqueues_owner_former_owner_and_possible_owners(old, new, enqueued):
    queue = RecordedQueue()
    owner = owner_queue(queue).add_after_change(old, new, "pod")
    assert queue.added == enqueued
    assert (owner is not None) == (enqueued[-1:] != [] and enqueued[-1][1] == "pod changed")


async def test_irrelevant_change_enqueues_only_with_a_new_owner():
    queue = RecordedQueue()
    owners = owner_queue(queue)
    assert owners.add_after_change(pod("a"), pod("a"), "pod", lambda owner: False) is None
    assert queue.added == []
    assert owners.add_after_change(pod(), pod("a"), "pod", lambda owner: False) is not None
    assert queue.added == [("ns/a", "pod changed")]


async def test_owner_is_enqueued_after_the_batch_period():
    queue = WorkQueue()
    owners = owner_queue(queue, batch_seconds=1.0)
    for _ in range(2):
        assert owners.add_owner(pod("a"), "pod added") is not None
    assert len(queue) == 0
    await asyncio.sleep(1.1)
    assert len(queue) == 1


async def test_owner_has_the_name_and_the_uid():
    owners = owner_queue(WorkQueue())
    owner = owners.owner(pod("a"))
    assert owner is not None
    assert owner.metadata.name == "a"
    assert owners.owner(pod("gone")) is None


@pytest.mark.parametrize(
    ("added", "enqueued"),
    [
        pytest.param(pod("a"), [("ns/a", "pod added")], id="owned"),
        pytest.param(pod(), [("ns/a", "orphaned pod added"), ("ns/b", "orphaned pod added")], id="orphan"),
        pytest.param(pod(app="other"), [], id="orphan with other labels"),
        pytest.param(pod("gone"), [], id="unknown owner"),
    ],
)
async def test_creation_enqueues_the_owner_or_possible_owners(added, enqueued):
    queue = RecordedQueue()
    owner = owner_queue(queue).add_after_creation(added, "pod")
    assert queue.added == enqueued
    assert (owner is not None) == (enqueued == [("ns/a", "pod added")])


async def test_events_of_an_owner_enqueue_it_and_forget_deleted_ones():
    queue, forgotten = RecordedQueue(), []
    owners = OwnerQueue[ReplicaSet](
        Store(), "ReplicaSet", queue, lambda rs: rs.spec.selector, lambda rs: forgotten.append(rs.metadata.uid)
    )
    rs = replica_set("a")
    replaced = convert(ReplicaSet, {"metadata": {"name": "a", "namespace": "ns", "uid": "new"}})
    owners.on_add(rs, True)
    owners.on_add(rs, False)
    owners.on_update(rs, rs)
    assert forgotten == []
    owners.on_update(rs, replaced)
    assert forgotten == ["uid-a"]
    owners.on_delete(replaced, False)
    assert forgotten == ["uid-a", "new"]
    assert queue.added == [
        ("ns/a", reason)
        for reason in (
            "initial list",
            "ReplicaSet added",
            "ReplicaSet changed",
            "ReplicaSet deleted",
            "ReplicaSet changed",
            "ReplicaSet deleted",
        )
    ]
