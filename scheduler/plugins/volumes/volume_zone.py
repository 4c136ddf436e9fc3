"""VolumeZone: filters nodes by the zone and region labels of the pod's bound volumes.

Source: plugins/volumezone of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import explain_as, on_event, skip, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.columns import ABSENT
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.plugins.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from kubeloop.scheduler.plugins.volumes.volume_claims import (
    WAIT_FOR_FIRST_CONSUMER,
    ClaimError,
    claim_class,
    get_claim,
    references_claim,
)

_STATE = "PreFilterVolumeZone"
_TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA_LABEL = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class _VolumeTopology(msgspec.Struct, frozen=True):
    """A topology label of a volume: a node must have one of `values` under `key`, or under the GA name of `key`."""

    key: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None:
            value = labels.get(_GA_LABEL.get(self.key, self.key))
        return value is not None and value in self.values


def volume_topologies(volume: PersistentVolume) -> list[_VolumeTopology]:
    """Return the topology labels of a volume. Several zones are joined by "__"; malformed labels are ignored."""
    topologies = []
    for key in _TOPOLOGY_LABELS:
        value = volume.metadata.labels.get(key)
        if value is None:
            continue
        zones = [zone.strip() for zone in value.split("__")]
        if all(zones):
            topologies.append(_VolumeTopology(key, frozenset(zones)))
    return topologies


class VolumeZone:
    name = "VolumeZone"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        self._rejection = unresolvable(self.name, "node(s) had no available volume zone")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        if not pod.pod.spec.volumes:
            return None, skip(self.name)
        try:
            topologies = self._pod_topologies(pod.pod)
        except ClaimError as error:
            return None, unresolvable(self.name, str(error))
        if not topologies:
            return None, skip(self.name)
        state.write(_STATE, topologies)
        return None, None

    def _pod_topologies(self, pod: Pod) -> tuple[_VolumeTopology, ...]:
        """Return the topology labels of all bound volumes of the pod. Raises ClaimError."""
        listers = self._handle.listers
        topologies: list[_VolumeTopology] = []
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
            topologies += volume_topologies(bound)
        return tuple(topologies)

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
        topologies: tuple[_VolumeTopology, ...] = state.read(_STATE)
        labels = node.node.metadata.labels if node.node is not None else {}
        if not any(key in labels for key in _TOPOLOGY_LABELS):
            return None  # nodes without topology labels: a cluster of one zone
        return None if all(topology.matches(labels) for topology in topologies) else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        topologies: tuple[_VolumeTopology, ...] = state.read(_STATE)
        columns = snapshot.columns
        zoned = np.zeros(len(snapshot), np.bool_)  # [N]
        for key in _TOPOLOGY_LABELS:
            zoned |= columns.labels(key).codes != ABSENT
        passed = np.ones(len(snapshot), np.bool_)
        for topology in topologies:
            primary, ga = columns.labels(topology.key), columns.labels(_GA_LABEL.get(topology.key, topology.key))
            matches = []
            for column in (primary, ga):
                # one entry per value, and a last one for nodes without the label
                values_match = np.array([value in topology.values for value in column.values] + [False])
                matches.append(values_match[column.codes])
            passed &= np.where(primary.codes != ABSENT, matches[0], matches[1])
        return RowFilterResult((passed | ~zoned)[rows], explain_as(self._rejection))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event("storage.k8s.io/StorageClass", ADD, self._after_class_add),
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            on_event("PersistentVolumeClaim", ADD | UPDATE, self._after_claim_change),
            on_event("PersistentVolume", ADD | UPDATE, self._after_volume_change),
        )

    def _after_class_add(self, pod: Pod, old: Any, new: StorageClass | None) -> Hint:
        return Hint.QUEUE if new is None or new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else Hint.SKIP

    def _after_claim_change(self, pod: Pod, old: Any, new: PersistentVolumeClaim | None) -> Hint:
        return Hint.QUEUE if new is None or references_claim(pod, new) else Hint.SKIP

    def _after_volume_change(self, pod: Pod, old: PersistentVolume | None, new: PersistentVolume | None) -> Hint:
        if old is None or new is None:
            return Hint.QUEUE
        return Hint.QUEUE if volume_topologies(old) != volume_topologies(new) else Hint.SKIP
