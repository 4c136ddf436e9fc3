"""MaxEBSVolumeCount and its like: limits of one cloud's disks per node, for Policy documents.

Where the node's CSINode has a limit for the cloud's CSI driver, the volumes count as CSI volumes (NodeVolumeLimits).
Elsewhere the limit is the configured one (KUBE_MAX_PD_VOLS on the command line), the node's allocatable
`attachable-volumes-*`, or that of the cloud.
Source: v1.20, pkg/scheduler/framework/plugins/nodevolumelimits/non_csi.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from kubeloop.kube.objects.api_types import Node, Pod, Volume
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin_by_name
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint
from kubeloop.scheduler.api.extension_points import PreFilterReturn
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import on_event, skip, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs, VolumeCountArgs
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.plugins.volumes.csi_migration import is_migrated
from kubeloop.scheduler.plugins.volumes.node_volume_limits import NodeVolumeLimits, volume_limits
from kubeloop.scheduler.plugins.volumes.volume_claims import claim_class

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_BETA_INSTANCE_TYPE = "beta.kubernetes.io/instance-type"
_NITRO_INSTANCES = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT = 25


class _VolumeCount:
    """plugin_name: of the in-tree volume plugin. id_field: the field of its volumes that identifies a disk."""

    name = ""
    plugin_name = ""
    id_field = "volumeID"
    allocatable = ""
    limit: int

    def __init__(self, args: VolumeCountArgs, handle: Handle) -> None:
        self._listers = handle.listers
        plugin = in_tree_plugin_by_name(self.plugin_name)
        assert plugin is not None
        self._plugin = plugin
        self._csi = NodeVolumeLimits(NoArgs(), handle)
        self._rejection = unschedulable(self.name, "node(s) exceed max volume count")
        self._configured_limit = args.max_volumes

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        return None, None if any(map(self._may_count, pod.pod.spec.volumes)) else skip(self.name)

    def _may_count(self, volume: Volume) -> bool:
        claims = (volume.persistent_volume_claim, volume.ephemeral)
        return getattr(volume, self._plugin.field) is not None or any(claim is not None for claim in claims)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.node is None:
            return None
        csi_node = self._listers.csi_nodes.get(node.name)
        csi_limit = volume_limits(csi_node).get(self._plugin.driver)
        if csi_limit is not None:
            return self._csi.filter_by_limits(pod, node, csi_node, {self._plugin.driver: csi_limit}, self._rejection)
        if is_migrated(self._plugin, csi_node):
            return None
        added = self._disks(pod.pod)
        if not added:
            return None
        attached = set[str]().union(*(self._disks(other.pod) for other in node.pods.values()))
        return self._rejection if len(attached | added) > self._limit(node, node.node) else None

    def _limit(self, info: NodeInfo, node: Node) -> int:
        allocatable = info.allocatable.get(self.allocatable)
        if allocatable is not None:
            return allocatable
        return self._configured_limit if self._configured_limit is not None else self.limit_of(node)

    def limit_of(self, node: Node) -> int:
        """Return the limit of the cloud for this node."""
        return self.limit

    def _disks(self, pod: Pod) -> set[str]:
        """Return the disks of the pod's volumes; a claim that is not bound counts if its class is of this cloud."""
        disks = set()
        for volume in pod.spec.volumes:
            source = getattr(volume, self._plugin.field)
            if source is not None:
                disks.add(source.get(self.id_field, ""))
            elif volume.persistent_volume_claim is not None:
                disk = self._disk_of_claim(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
                if disk is not None:
                    disks.add(disk)
        return disks

    def _disk_of_claim(self, key: str) -> str | None:
        claim = self._listers.persistent_volume_claims.get(key)
        if claim is None:
            return None
        volume = self._listers.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            storage_class = self._listers.storage_classes.get(claim_class(claim))
            of_this_cloud = storage_class is not None and storage_class.provisioner == self.plugin_name
            return f"not bound: {key}" if of_this_cloud else None
        source = getattr(volume.spec, self._plugin.field)
        return None if source is None else str(source.get(self.id_field, ""))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node_changes = ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE | ActionType.UPDATE_NODE_LABEL
        return (*self._csi.events_to_register(), on_event(NODE, node_changes))


class MaxEBSVolumeCount(_VolumeCount):
    name = "MaxEBSVolumeCount"
    plugin_name = "kubernetes.io/aws-ebs"
    allocatable = "attachable-volumes-aws-ebs"
    limit = 39

    def limit_of(self, node: Node) -> int:
        labels = node.metadata.labels
        instance_type = labels.get(_INSTANCE_TYPE) or labels.get(_BETA_INSTANCE_TYPE, "")
        return _NITRO_LIMIT if _NITRO_INSTANCES.search(instance_type) else self.limit


class MaxGCEPDVolumeCount(_VolumeCount):
    name = "MaxGCEPDVolumeCount"
    plugin_name = "kubernetes.io/gce-pd"
    id_field = "pdName"
    allocatable = "attachable-volumes-gce-pd"
    limit = 16


class MaxAzureDiskVolumeCount(_VolumeCount):
    name = "MaxAzureDiskVolumeCount"
    plugin_name = "kubernetes.io/azure-disk"
    id_field = "diskName"
    allocatable = "attachable-volumes-azure-disk"
    limit = 16


class MaxCinderVolumeCount(_VolumeCount):
    name = "MaxCinderVolumeCount"
    plugin_name = "kubernetes.io/cinder"
    allocatable = "attachable-volumes-cinder"
    limit = 256


VOLUME_COUNT_PLUGINS = (MaxEBSVolumeCount, MaxGCEPDVolumeCount, MaxAzureDiskVolumeCount, MaxCinderVolumeCount)


def with_max_volumes(config: SchedulerConfiguration, text: str) -> SchedulerConfiguration:
    """Return the configuration with the limit of KUBE_MAX_PD_VOLS in every profile; a text that is no limit is ignored.

    Limits in the configuration itself have precedence.
    """
    if not text.isdecimal() or int(text) <= 0:
        return config
    args = {plugin.name: VolumeCountArgs(max_volumes=int(text)) for plugin in VOLUME_COUNT_PLUGINS}
    profiles = tuple(replace(profile, args={**args, **profile.args}) for profile in config.profiles)
    return replace(config, profiles=profiles)
