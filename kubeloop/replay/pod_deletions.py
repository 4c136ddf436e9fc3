"""Deletions by users of pods that a ReplicaSet, ReplicationController or StatefulSet replaces.

A recording does not show who deleted a pod. A controller deletes one if it has too many, or if the pod is not of the
update revision: a deletion without such a reason, and without the condition DisruptionTarget, is a user's. It is
decided SETTLE_SECONDS later, since changes of two resources may be recorded in another order than they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from kubeloop.recording.changes import RecordedChange
from kubeloop.replay.workloads import controller_of

SETTLE_SECONDS: Final = 2.0
_OWNERS: Final = frozenset(it.group_resource for it in (REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS))
_ENDED: Final = ("Succeeded", "Failed")


class PodDeletion(NamedTuple):
    """A pod whose deletion was requested. active: pods of its owner at that time, with this one."""

    seconds: float
    pod: JSON
    owner_uid: str
    active: int


class PodDeletions:
    """Finds the deletions of users in the changes of a recording."""

    def __init__(self) -> None:
        self._owners: dict[str, JSON] = {}  # by uid
        self._active: dict[str, set[str]] = {}  # uids of pods, by uid of their owner
        self._undecided: list[PodDeletion] = []

    def read(self, change: RecordedChange) -> None:
        """Record a change of a pod or of an owner."""
        obj = change.object
        if obj is None:
            return
        if change.resource == PODS.group_resource:
            self._read_pod(change, obj)
        elif change.resource in _OWNERS:
            uid = obj["metadata"].get("uid", "")
            if change.type == "DELETED":
                self._owners.pop(uid, None)
            else:
                self._owners[uid] = obj
            self._undecided = [
                deletion
                for deletion in self._undecided
                if deletion.owner_uid != uid or not _is_explained(deletion, self._owners.get(uid))
            ]

    def _read_pod(self, change: RecordedChange, pod: JSON) -> None:
        owner, metadata = controller_of(pod), pod["metadata"]
        if owner is None:
            return
        uid, active = metadata.get("uid", ""), self._active.setdefault(owner.get("uid", ""), set())
        is_ended = (pod.get("status") or {}).get("phase") in _ENDED
        if change.type != "DELETED" and not is_ended and "deletionTimestamp" not in metadata:
            active.add(uid)
            return
        if (
            uid in active
            and change.type == "MODIFIED"
            and not is_ended
            and condition_of(pod, "DisruptionTarget") is None
        ):
            deletion = PodDeletion(change.seconds, pod, owner.get("uid", ""), len(active))
            if not _is_explained(deletion, self._owners.get(deletion.owner_uid)):
                self._undecided.append(deletion)
        active.discard(uid)

    def decided(self, seconds: float) -> Iterator[PodDeletion]:
        """Yield the deletions of users that are decided at that time, once each."""
        while self._undecided and self._undecided[0].seconds <= seconds - SETTLE_SECONDS:
            yield self._undecided.pop(0)


def _is_explained(deletion: PodDeletion, owner: JSON | None) -> bool:
    """Return True if the owner, or the garbage collector, deletes the pod."""
    if owner is None or "deletionTimestamp" in owner["metadata"]:
        return True
    spec, metadata = owner.get("spec") or {}, deletion.pod["metadata"]
    replicas = spec.get("replicas", 1)
    if owner["kind"] != STATEFUL_SETS.kind:
        return bool(replicas < deletion.active)
    ordinal = metadata["name"].rpartition("-")[2]
    first = (spec.get("ordinals") or {}).get("start", 0)
    if not ordinal.isdecimal() or not first <= int(ordinal) < first + replicas:
        return True
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return False
    revision = (metadata.get("labels") or {}).get("controller-revision-hash")
    return revision != (owner.get("status") or {}).get("updateRevision")
