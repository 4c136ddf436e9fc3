"""NodeVolumeLimits: limits the number of volumes of a CSI driver per node.

Source: plugins/nodevolumelimits/csi.go of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Pod, Volume
from kubeloop.kube.objects.in_tree_plugins import InTreePlugin, in_tree_plugin, in_tree_plugin_by_name
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolumeClaim, VolumeAttachment
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, DELETE, POD, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.results import (
    failed,
    is_bound_or_nominated,
    on_event,
    select_rows,
    skip,
    unresolvable,
    unschedulable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs
from kubeloop.scheduler.framework.versioned_cache import VersionedCache
from kubeloop.scheduler.plugins.volumes.csi_migration import (
    MigrationGroups,
    TranslationError,
    inline_volume_handle,
    translate_volume,
)
from kubeloop.scheduler.plugins.volumes.volume_claims import (
    ClaimError,
    ClaimNotFound,
    check_owned_by,
    claim_class,
    claim_use,
    get_claim,
    uses_claim,
)

_MAX_DRIVERS = 64  # whose limits are cached


class NodeVolumeLimits:
    name = "NodeVolumeLimits"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        handle.listers.volume_attachments.add_index("attached_to", _node_name_index)
        self._rejection = unschedulable(self.name, "node(s) exceed max volume count")
        self._node_counts = NodeVolumeCounts(handle.listers)
        self._groups = MigrationGroups(handle.listers)
        self._requires_drivers = handle.feature_gates.enabled("VolumeLimitScaling")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        return None, None if any(map(_is_limited, pod.pod.spec.volumes)) else skip(self.name)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if not pod.pod.spec.volumes:
            return None
        csi_node = self._handle.listers.csi_nodes.get(node.name)
        return self.filter_by_limits(pod, node, csi_node, volume_limits(csi_node), self._rejection)

    def filter_by_limits(
        self,
        pod: PodInfo,
        node: NodeInfo,
        csi_node: CSINode | None,
        limits: Mapping[str, int],
        rejection: Status,
    ) -> Status | None:
        """Return `rejection` if a driver's volumes with those of the pod exceed its limit; limits: by driver."""
        try:
            requested = self._csi_volumes(pod.pod, csi_node, incoming=True)
            if self._requires_drivers:
                installed = {driver.name for driver in csi_node.spec.drivers} if csi_node is not None else set()
                for driver in requested.values():
                    if driver not in installed and self._prevents_scheduling_if_missing(driver):
                        return unschedulable(self.name, f"{driver} CSI driver is not installed on the node")
            if not requested or not limits:
                return None
            attached: dict[str, str] = {}
            for other in node.pods.values():
                if other.pod.spec.volumes:
                    attached |= self._csi_volumes(other.pod, csi_node, incoming=False)
        except ClaimNotFound as error:
            return unresolvable(self.name, str(error))
        except ClaimError as error:
            return failed(self.name, error)
        added = Counter(driver for volume, driver in requested.items() if volume not in attached)
        attached |= self._attachments(node.name)
        counts = Counter(attached.values())
        for driver, count in added.items():
            if driver in limits and counts[driver] + count > limits[driver]:
                return rejection
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        """Accept nodes whose upper bound of volumes is within the limit, and run `filter` for the others.

        The bound assumes that all volumes named by the node's pods are different and of one driver; most nodes are far
        below their limits. Raises ClaimError.
        """
        passed = np.zeros(len(rows), np.bool_)
        if self._is_translated_by_group(pod.pod):
            numbers, csi_nodes = self._groups.of(snapshot)
            numbers = select_rows(numbers, rows, snapshot)  # [K]
            bounds = select_rows(self._node_counts.volume_upper_bounds(snapshot), rows, snapshot)  # [K]
            for number, csi_node in enumerate(csi_nodes):
                within = numbers == number
                if not within.any():
                    continue
                requested = self._csi_volumes(pod.pod, csi_node, incoming=True)
                if self._requires_drivers and any(map(self._prevents_scheduling_if_missing, requested.values())):
                    continue
                if requested:
                    within &= bounds >= 0
                for driver, count in Counter(requested.values()).items():
                    limits = select_rows(self._node_counts.limits(snapshot, driver), rows, snapshot)
                    within &= (limits == NO_LIMIT) | (bounds + count <= limits)
                passed |= within
        statuses: dict[int, Status] = {}
        infos = snapshot.node_infos
        for index in np.flatnonzero(~passed).tolist():
            status = self.filter(state, pod, infos[rows[index]])
            if status is None:
                passed[index] = True
                continue
            if status.error is not None:
                raise status.error
            statuses[index] = status
        return RowFilterResult(passed, statuses.__getitem__)

    def _prevents_scheduling_if_missing(self, driver: str) -> bool:
        csi_driver = self._handle.listers.csi_drivers.get(driver)
        return csi_driver is not None and bool(csi_driver.spec.prevent_pod_scheduling_if_missing)

    def _is_translated_by_group(self, pod: Pod) -> bool:
        """Return False if a claim is missing or ephemeral, whose errors filter() reports."""
        claims = self._handle.listers.persistent_volume_claims
        uses = [use for volume in pod.spec.volumes if (use := claim_use(pod, volume)) is not None]
        return all(
            not use.ephemeral and claims.get(f"{pod.metadata.namespace}/{use.claim_name}") is not None for use in uses
        )

    def _csi_volumes(self, pod: Pod, csi_node: CSINode | None, *, incoming: bool) -> dict[str, str]:
        """Return the pod's CSI volumes, "driver/handle" -> driver.

        Raises ClaimError for an incoming pod with missing claims; those of existing pods are skipped.
        """
        volumes: dict[str, str] = {}
        for volume in pod.spec.volumes:
            use = claim_use(pod, volume)
            if use is None:
                volumes |= self._inline(volume, csi_node)
                continue
            try:
                claim = get_claim(pod, use.claim_name, self._handle.listers)
            except ClaimNotFound as error:
                if incoming:
                    raise ClaimNotFound(f"looking up PVC {pod.metadata.namespace}/{use.claim_name}: {error}") from error
                continue
            if use.ephemeral:
                check_owned_by(pod, claim)
            driver, handle = self._driver_and_handle(csi_node, claim)
            if driver and handle:
                volumes[f"{driver}/{handle}"] = driver
        return volumes

    @staticmethod
    def _inline(volume: Volume, csi_node: CSINode | None) -> dict[str, str]:
        plugin = in_tree_plugin(volume)
        if plugin is None or not _counts_as_csi(plugin, csi_node):
            return {}
        try:
            return {f"{plugin.driver}/{inline_volume_handle(volume, plugin)}": plugin.driver}
        except TranslationError as error:
            raise ClaimError(f"converting volume({volume.name}) from inline to csi: {error}") from error

    def _driver_and_handle(self, csi_node: CSINode | None, claim: PersistentVolumeClaim) -> tuple[str, str]:
        """Return the CSI driver and volume handle of a claim; ("", "") if its volume does not count."""
        listers = self._handle.listers
        volume = listers.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            return self._driver_of_class(csi_node, claim)
        csi = volume.spec.csi
        if csi is not None:
            return csi.get("driver", ""), csi.get("volumeHandle", "")
        plugin = in_tree_plugin(volume.spec)
        if plugin is None or not _counts_as_csi(plugin, csi_node):
            return "", ""
        try:
            return plugin.driver, translate_volume(volume, plugin)[0]
        except TranslationError:
            return "", ""

    def _driver_of_class(self, csi_node: CSINode | None, claim: PersistentVolumeClaim) -> tuple[str, str]:
        """Return the driver of an unbound claim's StorageClass, and a handle made from the claim's name."""
        storage_class = self._handle.listers.storage_classes.get(claim_class(claim))
        if storage_class is None:
            return "", ""
        handle = f"not yet bound: {claim.key}"
        plugin = in_tree_plugin_by_name(storage_class.provisioner)
        if plugin is None:
            return storage_class.provisioner, handle
        return (plugin.driver, handle) if _counts_as_csi(plugin, csi_node) else ("", "")

    def _attachments(self, node_name: str) -> dict[str, str]:
        """Return the CSI volumes attached to the node, including those that no pod uses any more."""
        listers = self._handle.listers
        attached: dict[str, str] = {}
        for attachment in listers.volume_attachments.by_index("attached_to", node_name):
            spec = attachment.spec
            name = spec.source.persistent_volume_name
            volume = listers.persistent_volumes.get(name) if name else None
            if spec.attacher and volume is not None and volume.spec.csi is not None:
                attached[f"{spec.attacher}/{volume.spec.csi.get('volumeHandle', '')}"] = spec.attacher
        return attached

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        csi_node = "storage.k8s.io/CSINode"
        return (
            on_event(csi_node, ADD),
            on_event(csi_node, UPDATE, self._after_csi_node_update),
            on_event(POD, ActionType.DELETE, self._after_pod_delete),
            on_event("PersistentVolumeClaim", ADD, self._after_claim_add),
            on_event("storage.k8s.io/VolumeAttachment", DELETE, self._after_attachment_delete),
        )

    def _after_csi_node_update(self, pod: Pod, old: CSINode | None, new: CSINode | None) -> Hint:
        before, after = volume_limits(old), volume_limits(new)
        grown = any(limit > before.get(driver, 0) for driver, limit in after.items())
        return Hint.QUEUE if grown else Hint.SKIP

    def _after_pod_delete(self, pod: Pod, old: Pod | None, new: Any) -> Hint:
        if old is None or not is_bound_or_nominated(old):
            return Hint.SKIP
        return Hint.QUEUE if any(map(_is_limited, old.spec.volumes)) else Hint.SKIP

    def _after_claim_add(self, pod: Pod, old: Any, new: PersistentVolumeClaim | None) -> Hint:
        return Hint.QUEUE if new is None or uses_claim(pod, new) else Hint.SKIP

    def _after_attachment_delete(self, pod: Pod, old: VolumeAttachment | None, new: Any) -> Hint:
        """Return QUEUE if `pod` has a claim, or an inline volume that is migrated to the attachment's driver."""
        attacher = old.spec.attacher if old is not None else ""
        return Hint.QUEUE if any(_may_be_attached_by(attacher, volume) for volume in pod.spec.volumes) else Hint.SKIP


NO_LIMIT = -1


class NodeVolumeCounts:
    """Volume limits, and upper bounds of the volumes in use, per node: arrays [N], updated incrementally."""

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._stamp: tuple[int, object] = (-1, None)
        self._generation = -1
        self._claim_counts = np.zeros(0, np.int64)  # claims named by the node's pods; -1: other volumes may count
        self._attachment_counts = np.zeros(0, np.int64)
        self._limits: VersionedCache[str, npt.NDArray[np.int64]] = VersionedCache(_MAX_DRIVERS)

    def volume_upper_bounds(self, snapshot: Snapshot) -> npt.NDArray[np.int64]:
        """Return an upper bound of the volumes on each node: int64 [N], -1 if unknown. Read only."""
        attachments = self._listers.volume_attachments
        stamp = (snapshot.layout, attachments.version)
        infos = snapshot.node_infos
        if stamp != self._stamp:
            self._attachment_counts = np.zeros(len(infos), np.int64)
            for attachment in attachments.list():
                row = snapshot.row_of.get(attachment.spec.node_name)
                if row is not None:
                    self._attachment_counts[row] += 1
            if stamp[0] != self._stamp[0]:
                self._generation = -1
                self._claim_counts = np.zeros(len(infos), np.int64)
            self._stamp = stamp
        changed = snapshot.changed_since(self._generation)
        for row in changed.tolist():
            self._claim_counts[row] = _count_claims(infos[row])
        self._generation = snapshot.generation
        return np.where(self._claim_counts < 0, -1, self._claim_counts + self._attachment_counts)

    def limits(self, snapshot: Snapshot, driver: str) -> npt.NDArray[np.int64]:
        """Return the limit of each node: int64 [N], NO_LIMIT if the node has none for the driver. Read only."""
        version = (snapshot.layout, self._listers.csi_nodes.version)
        return self._limits.get(driver, version, lambda: self._read_limits(snapshot, driver))

    def _read_limits(self, snapshot: Snapshot, driver: str) -> npt.NDArray[np.int64]:
        limits = np.full(len(snapshot), NO_LIMIT, np.int64)
        for csi_node in self._listers.csi_nodes.list():
            row = snapshot.row_of.get(csi_node.metadata.name)
            if row is not None:
                limits[row] = volume_limits(csi_node).get(driver, NO_LIMIT)
        return limits


def _count_claims(node: NodeInfo) -> int:
    """Return how many claims the pods of the node name; -1 if they have other kinds of volumes that may count."""
    count = 0
    for info in node.pods.values():
        for volume in info.pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                count += 1
            elif _is_limited(volume):
                return -1
    return count


def _counts_as_csi(plugin: InTreePlugin, csi_node: CSINode | None) -> bool:
    """Return True if the in-tree volumes count as CSI volumes: on all nodes with a CSINode, migrated or not."""
    return plugin.limited and csi_node is not None


def _node_name_index(attachment: VolumeAttachment) -> tuple[str, ...]:
    return (attachment.spec.node_name,)


def _may_be_attached_by(attacher: str, volume: Volume) -> bool:
    if volume.persistent_volume_claim is not None:
        return True
    plugin = in_tree_plugin(volume)
    if plugin is None:
        return False
    try:
        inline_volume_handle(volume, plugin)
    except TranslationError:
        return True  # kube-scheduler queues a pod when its hint fails
    return plugin.driver == attacher


def _is_limited(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None or volume.ephemeral is not None or in_tree_plugin(volume) is not None
    )


def volume_limits(csi_node: CSINode | None) -> Mapping[str, int]:
    """Return the volume limit of each CSI driver on the node."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
