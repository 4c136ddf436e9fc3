"""VolumeRestrictions: disks that cannot be mounted twice, and claims that only one pod may use.

Source: plugins/volumerestrictions of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kubeloop.kube.objects.api_types import Pod, Volume
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterResult, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    explained_per_node,
    on_event,
    skip,
    unresolvable,
    unschedulable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.volume_claims import ClaimNotFound, get_claim, names_claim

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_STATE = "PreFilterVolumeRestrictions"
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class _State:
    """single: names of the pod's claims that one pod alone may use; in_use: how many uses by others there are."""

    __slots__ = ("in_use", "single")

    def __init__(self, single: frozenset[str], in_use: int) -> None:
        self.single = single
        self.in_use = in_use

    def clone(self) -> _State:
        return _State(self.single, self.in_use)

    def update(self, other: PodInfo, number: int) -> None:
        for volume in other.pod.spec.volumes:
            claim = volume.persistent_volume_claim
            if claim is not None and claim.claim_name in self.single:
                self.in_use += number


class VolumeRestrictions:
    name = "VolumeRestrictions"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        self._disk_conflict = unschedulable(self.name, "node(s) had no available disk")
        self._in_use = unschedulable(
            self.name,
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod",
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.pod.spec.volumes:
            return None, skip(self.name)
        single = set()
        namespace = pod.pod.metadata.namespace
        for volume in pod.pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            try:
                claim = get_claim(pod.pod, name, self._handle.listers)
            except ClaimNotFound as error:
                return None, unresolvable(self.name, str(error))
            if _READ_WRITE_ONCE_POD in claim.spec.access_modes:
                single.add(name)
        in_use = sum(snapshot.is_claim_used(f"{namespace}/{name}") for name in single)
        if not in_use and not any(map(_is_restricted, pod.pod.spec.volumes)):
            return None, skip(self.name)
        state.write(_STATE, _State(frozenset(single), in_use))
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        of_pod: _State = state.read(_STATE)
        of_pod.update(added, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        of_pod: _State = state.read(_STATE)
        of_pod.update(removed, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if in_conflict(pod.pod, (other.pod for other in node.pods.values())):
            return self._disk_conflict
        of_pod: _State = state.read(_STATE)
        return self._in_use if of_pod.in_use > 0 else None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        of_pod: _State = state.read(_STATE)
        passed = np.full(len(rows), of_pod.in_use <= 0)
        if passed.any() and any(map(_is_restricted, pod.pod.spec.volumes)):
            infos = snapshot.node_infos
            for index, row in enumerate(rows.tolist()):
                passed[index] = not in_conflict(pod.pod, (other.pod for other in infos[row].pods.values()))
        return explained_per_node(passed, rows, snapshot, self.filter, state, pod)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(POD, ActionType.DELETE, self._after_pod_delete),
            on_event(NODE, ActionType.ADD),
            on_event("PersistentVolumeClaim", ADD, self._after_claim_add),
        )

    def _after_pod_delete(self, pod: Pod, old: Pod | None, new: Any) -> Hint:
        """Helps if the deleted pod had a disk or a claim in common, whatever its access mode."""
        if old is None:
            return Hint.SKIP
        if in_conflict(pod, (old,)):
            return Hint.QUEUE
        shared = _claims(pod) & _claims(old)
        return Hint.QUEUE if shared and old.metadata.namespace == pod.metadata.namespace else Hint.SKIP

    def _after_claim_add(self, pod: Pod, old: Any, new: PersistentVolumeClaim) -> Hint:
        return Hint.QUEUE if names_claim(pod, new) else Hint.SKIP


def _claims(pod: Pod) -> set[str]:
    return {each.persistent_volume_claim.claim_name for each in pod.spec.volumes if each.persistent_volume_claim}


def _is_restricted(volume: Volume) -> bool:
    """A kind of disk that only readers may share, or nobody."""
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def in_conflict(pod: Pod, others: Iterable[Pod]) -> bool:
    """Does `pod` want a disk that one of `others` has, in a way that they cannot share?"""
    wanted = [volume for volume in pod.spec.volumes if _is_restricted(volume)]
    if not wanted:
        return False
    return any(_collide(ours, theirs) for other in others for theirs in other.spec.volumes for ours in wanted)


def _collide(ours: Volume, theirs: Volume) -> bool:
    a, b = ours.gce_persistent_disk, theirs.gce_persistent_disk
    if a is not None and b is not None and a.get("pdName") == b.get("pdName") and not _only_read(a, b):
        return True
    a, b = ours.aws_elastic_block_store, theirs.aws_elastic_block_store
    if a is not None and b is not None and a.get("volumeID") == b.get("volumeID"):
        return True
    a, b = ours.iscsi, theirs.iscsi
    if a is not None and b is not None and a.get("iqn") == b.get("iqn") and not _only_read(a, b):
        return True
    a, b = ours.rbd, theirs.rbd
    return (
        a is not None
        and b is not None
        and bool(set(a.get("monitors", ())) & set(b.get("monitors", ())))
        and a.get("pool") == b.get("pool")
        and a.get("image") == b.get("image")
        and not _only_read(a, b)
    )


def _only_read(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return bool(a.get("readOnly") and b.get("readOnly"))
