"""In-tree volumes as the CSI volumes they stand for, where a node's kubelet has migrated their plugin.

Source: k8s.io/csi-translation-lib of v1.36, as far as scheduling reads the result: driver, handle and node affinity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeloop.kube.objects.api_types import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolume, VolumeNodeAffinity

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


class InTreePlugin(msgspec.Struct, frozen=True):
    """name: of the in-tree plugin; driver: its CSI driver. field: where a volume's spec has it.

    zone_key, region_key: labels by which the driver's volumes say where they are; "" if it has none of its own.
    limited: whether its in-line volumes and claims count for volume limits.
    """

    name: str
    driver: str
    field: str
    zone_key: str = ""
    region_key: str = ""
    limited: bool = True


_PLUGINS = (
    InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "topology.gke.io/zone"),
    InTreePlugin(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", "topology.ebs.csi.aws.com/zone"
    ),
    InTreePlugin(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "topology.cinder.csi.openstack.org/zone"
    ),
    InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk"),
    InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", limited=False),
    InTreePlugin(
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
        "vsphere_volume",
        "topology.csi.vmware.com/zone",
        "topology.csi.vmware.com/region",
        limited=False,
    ),
    InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume"),
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
    match plugin.field:
        case "gce_persistent_disk":
            name = source.get("pdName", "")
            if len(zones) > 1:
                return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{name}"
            zone = zones[0] if zones and zones[0] else _UNSPECIFIED
            return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{name}"
        case "aws_elastic_block_store":
            return _ebs_volume(source.get("volumeID", ""))
        case "azure_disk":
            kind = source.get("kind")
            if kind is not None and kind.lower() != "managed":
                raise TranslationError(f"kind({kind}) is not supported in csi migration")
            return str(source.get("diskURI", ""))
        case "vsphere_volume":
            return str(source.get("volumePath", ""))
        case "azure_file":
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
        found = " ".join(f"{region}:{{}}" for region in sorted(regions))  # as Go prints a set
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{found}]"
        )
    return regions.pop()


def _ebs_volume(name: str) -> str:
    """ "aws://zone/vol-1234" -> "vol-1234"; anything else is taken for the volume's own name."""
    if not name.startswith("aws://"):
        return name
    volume = urlsplit(name).path.strip("/")
    if not _AWS_VOLUME.fullmatch(volume):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({name})"
        )
    return volume


def translated(volume: PersistentVolume, plugin: InTreePlugin) -> tuple[str, VolumeNodeAffinity | None]:
    """(CSI volume handle, node affinity in the driver's topology) of an in-tree volume. Raises TranslationError."""
    labels = volume.metadata.labels
    # Here the older label wins, below the newer one: so they do in the source.
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(_BETWEEN_ZONES)
    source: dict[str, Any] = getattr(volume.spec, plugin.field)
    if plugin.field == "azure_file" and not _secret_namespace(volume, source):
        raise TranslationError("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
    return volume_handle(plugin, source, zones), _in_driver_topology(volume, plugin)


def _secret_namespace(volume: PersistentVolume, azure_file: dict[str, Any]) -> str:
    named: str | None = azure_file.get("secretNamespace")
    if named is not None:
        return named
    return volume.spec.claim_ref.namespace if volume.spec.claim_ref is not None else ""


def inline_handle(volume: Volume, plugin: InTreePlugin) -> str:
    """The CSI volume handle of a pod's in-line volume. Raises TranslationError."""
    return volume_handle(plugin, getattr(volume, plugin.field), [""])


def _in_driver_topology(volume: PersistentVolume, plugin: InTreePlugin) -> VolumeNodeAffinity | None:
    """Zone (and region) under the driver's keys; taken from the labels if the affinity says nothing of them."""
    affinity = volume.spec.node_affinity
    if not plugin.zone_key:
        return affinity
    labels = volume.metadata.labels
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    mentioned = {each.key for term in terms for each in term.match_expressions}
    said = next((keys for place in (mentioned, labels) for keys in _GENERATIONS if keys[0] in place), _GENERATIONS[0])
    zone, region = said
    if _has_values(terms, zone):
        terms = tuple(_renamed(term, zone, plugin.zone_key) for term in terms)
    else:
        terms = _with_places(terms, plugin.zone_key, _places(labels.get(zone, ""), split=not plugin.region_key))
    if plugin.region_key and _has_values(terms, region):
        terms = tuple(_renamed(term, region, plugin.region_key) for term in terms)
    elif plugin.region_key:
        terms = _with_places(terms, plugin.region_key, _places(labels.get(region, ""), split=False))
    elif region == BETA_REGION and _has_values(terms, region):
        terms = tuple(_renamed(term, region, REGION) for term in terms)
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else affinity


_GENERATIONS = ((ZONE, REGION), (BETA_ZONE, BETA_REGION))


def _has_values(terms: Sequence[NodeSelectorTerm], key: str) -> bool:
    return any(each.key == key and each.values for term in terms for each in term.match_expressions)


def _places(label: str, *, split: bool) -> tuple[str, ...]:
    names = label.split(_BETWEEN_ZONES) if split else [label]
    return tuple(sorted({name.strip() for name in names} - {""}))


def _with_places(
    terms: tuple[NodeSelectorTerm, ...], key: str, places: tuple[str, ...]
) -> tuple[NodeSelectorTerm, ...]:
    """Each term, or a first one, also asks for one of `places`; as they are, if there are none."""
    if not places:
        return terms
    requirement = NodeSelectorRequirement(key=key, operator="In", values=places)
    return tuple(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, requirement))
        for term in terms or (NodeSelectorTerm(),)
    )


def _renamed(term: NodeSelectorTerm, old: str, new: str) -> NodeSelectorTerm:
    expressions = tuple(
        msgspec.structs.replace(each, key=new if each.key == old else each.key) for each in term.match_expressions
    )
    return msgspec.structs.replace(term, match_expressions=expressions)
