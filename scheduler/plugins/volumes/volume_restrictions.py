"""VolumeRestrictions: filters nodes by disks that cannot be mounted twice, and pods by ReadWriteOncePod claims.

Source: plugins/volumerestrictions of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kubeloop.kube.objects.api_types import Pod, Volume
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult
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
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.volumes.volume_claims import ClaimNotFound, get_claim, references_claim

_STATE = "PreFilterVolumeRestrictions"
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class _PreFilterState:
    """read_write_once_pod: names of the pod's claims with that access mode. conflicts: number of uses by other pods."""

    __slots__ = ("conflicts", "read_write_once_pod")

    def __init__(self, read_write_once_pod: frozenset[str], conflicts: int) -> None:
        self.read_write_once_pod = read_write_once_pod
        self.conflicts = conflicts

    def clone(self) -> _PreFilterState:
        return _PreFilterState(self.read_write_once_pod, self.conflicts)

    def update(self, other: PodInfo, delta: int) -> None:
        for volume in other.pod.spec.volumes:
            claim = volume.persistent_volume_claim
            if claim is not None and claim.claim_name in self.read_write_once_pod:
                self.conflicts += delta


class VolumeRestrictions:
    name = "VolumeRestrictions"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        self._disk_conflict = unschedulable(self.name, "node(s) had no available disk")
        self._claim_conflict = unschedulable(
            self.name,
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod",
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        if not pod.pod.spec.volumes:
            return None, skip(self.name)
        read_write_once_pod = set()
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
                read_write_once_pod.add(name)
        conflicts = sum(snapshot.is_claim_used(f"{namespace}/{name}") for name in read_write_once_pod)
        if not conflicts and not any(map(_is_restricted, pod.pod.spec.volumes)):
            return None, skip(self.name)
        state.write(_STATE, _PreFilterState(frozenset(read_write_once_pod), conflicts))
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        claim_state: _PreFilterState = state.read(_STATE)
        claim_state.update(added, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        claim_state: _PreFilterState = state.read(_STATE)
        claim_state.update(removed, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if has_disk_conflict(pod.pod, (other.pod for other in node.pods.values())):
            return self._disk_conflict
        claim_state: _PreFilterState = state.read(_STATE)
        return self._claim_conflict if claim_state.conflicts > 0 else None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        claim_state: _PreFilterState = state.read(_STATE)
        passed = np.full(len(rows), claim_state.conflicts <= 0)
        if passed.any() and any(map(_is_restricted, pod.pod.spec.volumes)):
            infos = snapshot.node_infos
            for index, row in enumerate(rows.tolist()):
                passed[index] = not has_disk_conflict(pod.pod, (other.pod for other in infos[row].pods.values()))
        return explained_per_node(passed, rows, snapshot, self.filter, state, pod)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(POD, ActionType.DELETE, self._after_pod_delete),
            on_event(NODE, ActionType.ADD),
            on_event("PersistentVolumeClaim", ADD, self._after_claim_add),
        )

    def _after_pod_delete(self, pod: Pod, old: Pod | None, new: Any) -> Hint:
        """Return QUEUE if the deleted pod shared a restricted disk or, with any access mode, a claim with `pod`.

        As in kube-scheduler, only for pods of the same namespace, although disks are shared between namespaces.
        """
        if old is None or old.metadata.namespace != pod.metadata.namespace:
            return Hint.SKIP
        return Hint.QUEUE if has_disk_conflict(pod, (old,)) or _claims(pod) & _claims(old) else Hint.SKIP

    def _after_claim_add(self, pod: Pod, old: Any, new: PersistentVolumeClaim | None) -> Hint:
        return Hint.QUEUE if new is None or references_claim(pod, new) else Hint.SKIP


def _claims(pod: Pod) -> set[str]:
    return {volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes if volume.persistent_volume_claim}


def _is_restricted(volume: Volume) -> bool:
    """Return True for the disk types that pods can share read-only or not at all."""
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def has_disk_conflict(pod: Pod, others: Iterable[Pod]) -> bool:
    """Return True if `pod` uses a disk of one of `others` in a way that they cannot share."""
    restricted = [volume for volume in pod.spec.volumes if _is_restricted(volume)]
    if not restricted:
        return False
    return any(
        _volumes_conflict(ours, theirs) for other in others for theirs in other.spec.volumes for ours in restricted
    )


def _volumes_conflict(ours: Volume, theirs: Volume) -> bool:
    a, b = ours.gce_persistent_disk, theirs.gce_persistent_disk
    if a is not None and b is not None and a.get("pdName") == b.get("pdName") and not _both_read_only(a, b):
        return True
    a, b = ours.aws_elastic_block_store, theirs.aws_elastic_block_store
    if a is not None and b is not None and a.get("volumeID") == b.get("volumeID"):
        return True
    a, b = ours.iscsi, theirs.iscsi
    if a is not None and b is not None and a.get("iqn") == b.get("iqn") and not _both_read_only(a, b):
        return True
    a, b = ours.rbd, theirs.rbd
    return (
        a is not None
        and b is not None
        and bool(set(a.get("monitors", ())) & set(b.get("monitors", ())))
        and a.get("pool") == b.get("pool")
        and a.get("image") == b.get("image")
        and not _both_read_only(a, b)
    )


def _both_read_only(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return bool(a.get("readOnly") and b.get("readOnly"))
