"""In-tree volumes as the CSI volumes they stand for, where a node's kubelet has migrated their plugin.

Source: k8s.io/csi-translation-lib of v1.36, as far as scheduling reads the result: driver, handle and node affinity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeloop.kube.objects import (
    CSINode,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    Volume,
    VolumeNodeAffinity,
)

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_BETWEEN_ZONES = "__"
_UNSPECIFIED = "UNSPECIFIED"
_AWS_VOLUME = re.compile(r"vol-[^/]*")


class TranslationError(Exception):
    """The in-tree volume cannot be expressed as a CSI volume."""


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """name: of the in-tree plugin; driver: its CSI driver; topology_key: "" if the driver has none of its own.

    field: where a volume's spec has it. limited: whether its inline volumes and claims count for volume limits.
    """

    name: str
    driver: str
    field: str
    topology_key: str
    limited: bool = True


_PLUGINS = (
    InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "topology.gke.io/zone"),
    InTreePlugin(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", "topology.ebs.csi.aws.com/zone"
    ),
    InTreePlugin(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "topology.cinder.csi.openstack.org/zone"
    ),
    InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", "topology.disk.csi.azure.com/zone"),
    InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", "", limited=False),
    InTreePlugin("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere_volume", "", limited=False),
    InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", ""),
)
_BY_NAME = {plugin.name: plugin for plugin in _PLUGINS}


def in_tree_plugin(source: Any) -> InTreePlugin | None:
    """The plugin of a PersistentVolumeSpec or of a pod's Volume; None if it is not an in-tree one that migrates."""
    for plugin in _PLUGINS:
        if getattr(source, plugin.field, None) is not None:
            return plugin
    return None


def in_tree_plugin_named(name: str) -> InTreePlugin | None:
    """By the provisioner of a StorageClass."""
    return _BY_NAME.get(name)


def migrated_plugins(csi_node: CSINode) -> frozenset[str]:
    """In-tree plugins whose volumes the node's kubelet runs by CSI."""
    return frozenset(csi_node.metadata.annotations.get(_MIGRATED_PLUGINS, "").split(","))


def is_migrated(plugin: InTreePlugin, csi_node: CSINode | None) -> bool:
    """Does the node say that it runs this plugin's volumes by CSI?"""
    return csi_node is not None and plugin.name in migrated_plugins(csi_node)


def volume_handle(plugin: InTreePlugin, source: dict[str, Any], zones: Sequence[str]) -> str:
    """The CSI volume handle. `zones` are those of the PersistentVolume's labels. Raises TranslationError."""
    if plugin.field == "gce_persistent_disk":
        name = source.get("pdName", "")
        if len(zones) > 1:
            return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{name}"
        zone = zones[0] if zones and zones[0] else _UNSPECIFIED
        return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{name}"
    if plugin.field == "aws_elastic_block_store":
        return _ebs_volume(source.get("volumeID", ""))
    if plugin.field == "azure_disk":
        return str(source.get("diskURI", ""))
    if plugin.field == "vsphere_volume":
        return str(source.get("volumePath", ""))
    if plugin.field == "azure_file":
        return f"#{source.get('secretName', '')}#{source.get('shareName', '')}"
    return str(source.get("volumeID", ""))


def _gce_region(zones: Sequence[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: [{' '.join(regions)}]"
        )
    return regions.pop()


def _ebs_volume(name: str) -> str:
    """ "aws://zone/vol-1234" or a bare "vol-1234" -> "vol-1234"."""
    url = name if name.startswith("aws://") else f"aws:///{name}"
    volume = urlsplit(url).path.strip("/")
    if not _AWS_VOLUME.fullmatch(volume):
        raise TranslationError(f"invalid format for AWS volume ({url})")
    return volume


def translated(volume: PersistentVolume, plugin: InTreePlugin) -> tuple[str, VolumeNodeAffinity | None]:
    """(CSI volume handle, node affinity in the driver's topology) of an in-tree volume. Raises TranslationError."""
    labels = volume.metadata.labels
    zones = (labels.get(ZONE) or labels.get(BETA_ZONE) or "").split(_BETWEEN_ZONES)
    source: dict[str, Any] = getattr(volume.spec, plugin.field)
    handle = volume_handle(plugin, source, zones)
    affinity = volume.spec.node_affinity
    if plugin.topology_key:
        affinity = _with_driver_topology(volume, plugin.topology_key)
    return handle, affinity


def inline_handle(volume: Volume, plugin: InTreePlugin) -> str:
    """The CSI volume handle of a pod's in-line volume. Raises TranslationError."""
    return volume_handle(plugin, getattr(volume, plugin.field), [""])


def _with_driver_topology(volume: PersistentVolume, topology_key: str) -> VolumeNodeAffinity | None:
    """The zone requirement under the driver's key; taken from the labels if the affinity does not mention zones."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    labels = volume.metadata.labels
    mentioned = {each.key for term in terms for each in term.match_expressions}
    zone_key = next((key for key in (ZONE, BETA_ZONE) if key in mentioned), None)
    if zone_key is not None:
        renamed = {zone_key: topology_key, BETA_REGION: REGION}
        return _affinity(tuple(_renamed(term, renamed) for term in terms))
    label = next((labels[key] for key in (ZONE, BETA_ZONE) if key in labels), None)
    zones = tuple(sorted({zone.strip() for zone in (label or "").split(_BETWEEN_ZONES)} - {""}))
    if not zones:
        return affinity
    requirement = NodeSelectorRequirement(key=topology_key, operator="In", values=zones)
    return _affinity(
        tuple(
            msgspec.structs.replace(term, match_expressions=(*term.match_expressions, requirement))
            for term in terms or (NodeSelectorTerm(),)
        )
    )


def _affinity(terms: tuple[NodeSelectorTerm, ...]) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def _renamed(term: NodeSelectorTerm, names: dict[str, str]) -> NodeSelectorTerm:
    expressions = tuple(
        msgspec.structs.replace(each, key=names.get(each.key, each.key)) for each in term.match_expressions
    )
    return msgspec.structs.replace(term, match_expressions=expressions)
