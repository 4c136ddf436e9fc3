"""In-tree volume plugins that Kubernetes has migrated to CSI drivers. Source: k8s.io/csi-translation-lib of v1.36."""

from __future__ import annotations

from typing import Any

import msgspec


class InTreePlugin(msgspec.Struct, frozen=True):
    """An in-tree volume plugin and its CSI driver. field: the plugin's field in a volume spec.

    zone_key, region_key: topology keys of the driver; "" if it has none of its own. limited: True if the plugin's
    inline volumes and claims count for volume limits.
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
    """Return the migratable in-tree plugin of a PersistentVolumeSpec or of a pod's Volume; None for other volumes."""
    for plugin in _PLUGINS:
        if getattr(source, plugin.field, None) is not None:
            return plugin
    return None


def in_tree_plugin_by_name(name: str) -> InTreePlugin | None:
    """Return the in-tree plugin with this name, which is the provisioner of its StorageClasses."""
    return _BY_NAME.get(name)
