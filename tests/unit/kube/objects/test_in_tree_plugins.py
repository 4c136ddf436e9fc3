"""In-tree volume plugins and their CSI drivers."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin, in_tree_plugin_by_name
from kubeloop.kube.objects.storage_types import PersistentVolumeSpec


@pytest.mark.parametrize(
    ("spec", "driver"),
    [
        ({"awsElasticBlockStore": {"volumeID": "v"}}, "ebs.csi.aws.com"),
        ({"gcePersistentDisk": {"pdName": "v"}}, "pd.csi.storage.gke.io"),
        ({"portworxVolume": {"volumeID": "v"}}, "pxd.portworx.com"),
        ({"hostPath": {"path": "/tmp"}}, None),
        ({"csi": {"driver": "ebs.csi.aws.com"}}, None),
    ],
)
def test_driver_of_a_migrated_volume(spec, driver):
    plugin = in_tree_plugin(msgspec.convert(spec, PersistentVolumeSpec))
    assert (plugin.driver if plugin is not None else None) == driver


def test_plugin_is_known_by_its_name():
    plugin = in_tree_plugin_by_name("kubernetes.io/aws-ebs")
    assert plugin is not None
    assert plugin.driver == "ebs.csi.aws.com"
    assert in_tree_plugin_by_name("ebs.csi.aws.com") is None
