"""CSI migration: translates in-tree volumes to CSI volumes, for nodes whose kubelet has migrated their plugin.

Source: k8s.io/csi-translation-lib of v1.36, limited to what scheduling reads: driver, volume handle and node affinity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubeloop.kube.objects.in_tree_plugins import InTreePlugin
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolume, VolumeNodeAffinity
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.versioned_cache import VersionedCache

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONE_SEPARATOR = "__"
_UNSPECIFIED = "UNSPECIFIED"
_AWS_VOLUME = re.compile(r"vol-[^/]*")


class TranslationError(Exception):
    """The in-tree volume cannot be expressed as a CSI volume."""


def migrated_plugins(csi_node: CSINode) -> frozenset[str]:
    """Return the in-tree plugins that the node's kubelet has migrated to CSI."""
    return frozenset(csi_node.metadata.annotations.get(_MIGRATED_PLUGINS, "").split(","))


def is_migrated(plugin: InTreePlugin, csi_node: CSINode | None) -> bool:
    """Return True if the node's annotations list the plugin as migrated."""
    return csi_node is not None and plugin.name in migrated_plugins(csi_node)


class MigrationGroups:
    """Groups of nodes that translate in-tree volumes alike: those whose kubelets have migrated the same plugins."""

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._groups: VersionedCache[None, tuple[npt.NDArray[np.intp], list[CSINode | None]]] = VersionedCache(1)

    def of(self, snapshot: Snapshot) -> tuple[npt.NDArray[np.intp], list[CSINode | None]]:
        """Return (number of the group of each node [N], a CSINode of each group; None for nodes without one)."""
        version = (snapshot.layout, self._listers.csi_nodes.version)
        return self._groups.get(None, version, lambda: self._compute(snapshot))

    def _compute(self, snapshot: Snapshot) -> tuple[npt.NDArray[np.intp], list[CSINode | None]]:
        number_of: dict[str | None, int] = {}
        csi_nodes: list[CSINode | None] = []
        numbers = np.zeros(len(snapshot), np.intp)
        for row, name in enumerate(snapshot.row_of):
            csi_node = self._listers.csi_nodes.get(name)
            key = None if csi_node is None else csi_node.metadata.annotations.get(_MIGRATED_PLUGINS, "")
            if key not in number_of:
                number_of[key] = len(csi_nodes)
                csi_nodes.append(csi_node)
            numbers[row] = number_of[key]
        return numbers, csi_nodes


def volume_handle(plugin: InTreePlugin, source: dict[str, Any], zones: Sequence[str]) -> str:
    """Return the CSI volume handle. `zones`: from the PersistentVolume's labels. Raises TranslationError."""
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
        region_set = " ".join(f"{region}:{{}}" for region in sorted(regions))  # as Go prints a set
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{region_set}]"
        )
    return regions.pop()


def _ebs_volume(name: str) -> str:
    """Return the volume name of "aws://zone/vol-1234"; other values are returned unchanged. Raises TranslationError."""
    if not name.startswith("aws://"):
        return name
    volume = urlsplit(name).path.strip("/")
    if not _AWS_VOLUME.fullmatch(volume):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({name})"
        )
    return volume


def translate_volume(volume: PersistentVolume, plugin: InTreePlugin) -> tuple[str, VolumeNodeAffinity | None]:
    """Return (CSI volume handle, node affinity in the driver's topology). Raises TranslationError."""
    labels = volume.metadata.labels
    # The beta label takes precedence here, the GA label in _translate_topology, as in csi-translation-lib.
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(_ZONE_SEPARATOR)
    source: dict[str, Any] = getattr(volume.spec, plugin.field)
    if plugin.field == "azure_file" and not _secret_namespace(volume, source):
        raise TranslationError("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
    return volume_handle(plugin, source, zones), _translate_topology(volume, plugin)


def _secret_namespace(volume: PersistentVolume, azure_file: dict[str, Any]) -> str:
    namespace: str | None = azure_file.get("secretNamespace")
    if namespace is not None:
        return namespace
    return volume.spec.claim_ref.namespace if volume.spec.claim_ref is not None else ""


def inline_volume_handle(volume: Volume, plugin: InTreePlugin) -> str:
    """Return the CSI volume handle of a pod's inline volume. Raises TranslationError."""
    return volume_handle(plugin, getattr(volume, plugin.field), [""])


def _translate_topology(volume: PersistentVolume, plugin: InTreePlugin) -> VolumeNodeAffinity | None:
    """Return the node affinity with the driver's zone and region keys, with values from the labels if it has none."""
    affinity = volume.spec.node_affinity
    if not plugin.zone_key:
        return affinity
    labels = volume.metadata.labels
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    expression_keys = {expression.key for term in terms for expression in term.match_expressions}
    topology_keys = next(
        (keys for known_keys in (expression_keys, labels) for keys in _TOPOLOGY_KEYS if keys[0] in known_keys),
        _TOPOLOGY_KEYS[0],
    )
    zone, region = topology_keys
    if _has_values(terms, zone):
        terms = tuple(_renamed(term, zone, plugin.zone_key) for term in terms)
    else:
        terms = _with_zones(terms, plugin.zone_key, _zone_names(labels.get(zone, ""), split=not plugin.region_key))
    if plugin.region_key and _has_values(terms, region):
        terms = tuple(_renamed(term, region, plugin.region_key) for term in terms)
    elif plugin.region_key:
        terms = _with_zones(terms, plugin.region_key, _zone_names(labels.get(region, ""), split=False))
    elif region == BETA_REGION and _has_values(terms, region):
        terms = tuple(_renamed(term, region, REGION) for term in terms)
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else affinity


_TOPOLOGY_KEYS = ((ZONE, REGION), (BETA_ZONE, BETA_REGION))


def _has_values(terms: Sequence[NodeSelectorTerm], key: str) -> bool:
    return any(expression.key == key and expression.values for term in terms for expression in term.match_expressions)


def _zone_names(label: str, *, split: bool) -> tuple[str, ...]:
    names = label.split(_ZONE_SEPARATOR) if split else [label]
    return tuple(sorted({name.strip() for name in names} - {""}))


def _with_zones(terms: tuple[NodeSelectorTerm, ...], key: str, zones: tuple[str, ...]) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms, each extended by a requirement `key` in `zones`; unchanged if there are no zones."""
    if not zones:
        return terms
    requirement = NodeSelectorRequirement(key=key, operator="In", values=zones)
    return tuple(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, requirement))
        for term in terms or (NodeSelectorTerm(),)
    )


def _renamed(term: NodeSelectorTerm, old: str, new: str) -> NodeSelectorTerm:
    expressions = tuple(
        msgspec.structs.replace(expression, key=new if expression.key == old else expression.key)
        for expression in term.match_expressions
    )
    return msgspec.structs.replace(term, match_expressions=expressions)
