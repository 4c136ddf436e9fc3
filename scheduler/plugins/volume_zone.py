"""VolumeZone: bound volumes whose labels name zones or regions keep the pod there.

Source: plugins/volumezone of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterResult, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import explain_as, on_event, skip, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.columns import ABSENT
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from kubeloop.scheduler.plugins.volume_claims import (
    WAIT_FOR_FIRST_CONSUMER,
    ClaimError,
    claim_class,
    get_claim,
    names_claim,
)

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_STATE = "PreFilterVolumeZone"
_KEYS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class _Place(msgspec.Struct, frozen=True):
    """A node must have one of `values` under `key` (or under its newer name)."""

    key: str
    values: frozenset[str]

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None:
            value = labels.get(_GA.get(self.key, self.key))
        return value is not None and value in self.values


def places_of(volume: PersistentVolume) -> list[_Place]:
    """What the labels of a volume say of its place; several zones are joined by "__", malformed ones are ignored."""
    places = []
    for key in _KEYS:
        value = volume.metadata.labels.get(key)
        if value is None:
            continue
        zones = [zone.strip() for zone in value.split("__")]
        if all(zones):
            places.append(_Place(key, frozenset(zones)))
    return places


class VolumeZone:
    name = "VolumeZone"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        self._rejection = unresolvable(self.name, "node(s) had no available volume zone")

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.pod.spec.volumes:
            return None, skip(self.name)
        try:
            places = self._places(pod.pod)
        except ClaimError as error:
            return None, unresolvable(self.name, str(error))
        if not places:
            return None, skip(self.name)
        state.write(_STATE, places)
        return None, None

    def _places(self, pod: Pod) -> tuple[_Place, ...]:
        """Raises ClaimError."""
        listers = self._handle.listers
        places: list[_Place] = []
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            if not name:
                raise ClaimError("PersistentVolumeClaim had no name")
            claim = get_claim(pod, name, listers)
            volume_name = claim.spec.volume_name
            if not volume_name:
                self._check_unbound(claim)
                continue
            bound = listers.persistent_volumes.get(volume_name)
            if bound is None:
                raise ClaimError(f'persistentvolume "{volume_name}" not found')
            places += places_of(bound)
        return tuple(places)

    def _check_unbound(self, claim: PersistentVolumeClaim) -> None:
        """Only claims that wait for their first pod may be unbound. Raises ClaimError."""
        name = claim_class(claim)
        if not name:
            raise ClaimError("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = self._handle.listers.storage_classes.get(name)
        if storage_class is None:
            raise ClaimError(f'storageclass.storage.k8s.io "{name}" not found')
        if storage_class.volume_binding_mode is None:
            raise ClaimError(f'VolumeBindingMode not set for StorageClass "{name}"')
        if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            raise ClaimError("PersistentVolume had no name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        places: tuple[_Place, ...] = state.read(_STATE)
        labels = node.node.metadata.labels if node.node is not None else {}
        if not any(key in labels for key in _KEYS):
            return None  # a cluster of one zone, whose nodes need not say so
        return None if all(place.holds(labels) for place in places) else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        places: tuple[_Place, ...] = state.read(_STATE)
        columns = snapshot.columns
        zoned = np.zeros(len(snapshot), np.bool_)  # [N]
        for key in _KEYS:
            zoned |= columns.labels(key).codes != ABSENT
        passed = np.ones(len(snapshot), np.bool_)
        for place in places:
            own, newer = columns.labels(place.key), columns.labels(_GA.get(place.key, place.key))
            holds = []
            for column in (own, newer):
                # one verdict per value, and a last one for nodes without the label
                verdicts = np.array([value in place.values for value in column.values] + [False])
                holds.append(verdicts[column.codes])
            passed &= np.where(own.codes != ABSENT, holds[0], holds[1])
        return RowFilterResult((passed | ~zoned)[rows], explain_as(self._rejection))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event("storage.k8s.io/StorageClass", ADD, self._after_class_add),
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            on_event("PersistentVolumeClaim", ADD | UPDATE, self._after_claim_change),
            on_event("PersistentVolume", ADD | UPDATE, self._after_volume_change),
        )

    def _after_class_add(self, pod: Pod, old: Any, new: StorageClass) -> Hint:
        return Hint.QUEUE if new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else Hint.SKIP

    def _after_claim_change(self, pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
        return Hint.QUEUE if names_claim(pod, new) else Hint.SKIP

    def _after_volume_change(self, pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> Hint:
        return Hint.QUEUE if old is None or places_of(old) != places_of(new) else Hint.SKIP
