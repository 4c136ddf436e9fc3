"""NodeVolumeLimits: CSI volumes per node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import CSIDriver, CSINode, StorageClass, VolumeAttachment
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volumes.node_volume_limits import NodeVolumeLimits
from support.objects.plugin_volumes import make_claim, make_volume
from support.scheduling.plugin_cluster import rejections


def volume_of(claim_name: str) -> list[dict[str, Any]]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]


def test_node_at_its_limit_is_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("full"), node("free")], [pod("existing", "full", volumes=volume_of("c0"))])
    for name, limit in (("full", 1), ("free", 2)):
        driver = {"name": "csi.example", "nodeID": name, "allocatable": {"count": limit}}
        cluster.put("csi_nodes", convert(CSINode, {"metadata": {"name": name}, "spec": {"drivers": [driver]}}))
    for number in range(2):
        csi = {"driver": "csi.example", "volumeHandle": f"h{number}"}
        cluster.put("persistent_volumes", make_volume(f"pv{number}", csi=csi))
        cluster.put("persistent_volume_claims", make_claim(f"c{number}", f"pv{number}"))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volume_of("c1"))) == {
        "full": ("node(s) exceed max volume count",)
    }
    # a volume that the node has already does not count again
    assert rejections(plugin, cluster, pod("q", volumes=volume_of("c0"))) == {}


@pytest.mark.parametrize(("limit", "rejected"), [(1, ["a"]), (2, [])])
def test_unbound_claims_of_in_tree_classes_count_for_their_csi_driver(
    limit: int, rejected: list[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a"), node("without-csi-node")], [pod("existing", "a", volumes=volume_of("c0"))])
    driver = {"name": "ebs.csi.aws.com", "nodeID": "a", "allocatable": {"count": limit}}
    cluster.put("csi_nodes", convert(CSINode, {"metadata": {"name": "a"}, "spec": {"drivers": [driver]}}))
    storage_class = {"metadata": {"name": "wait"}, "provisioner": "kubernetes.io/aws-ebs"}
    cluster.put("storage_classes", convert(StorageClass, storage_class))
    for name in ("c0", "c1"):
        cluster.put("persistent_volume_claims", make_claim(name))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    assert list(rejections(plugin, cluster, pod("p", volumes=volume_of("c1")))) == rejected


@pytest.mark.parametrize(
    ("volume", "attacher", "expected"),
    [
        ({"persistentVolumeClaim": {"claimName": "data"}}, "other.csi.example", Hint.QUEUE),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com", Hint.QUEUE),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "pd.csi.storage.gke.io", Hint.SKIP),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}, "pd.csi.storage.gke.io", Hint.QUEUE),
        ({"emptyDir": {}}, "ebs.csi.aws.com", Hint.SKIP),
    ],
)
def test_deleted_attachment_wakes_pods_with_volumes_of_its_driver(
    volume: dict[str, Any], attacher: str, expected: Hint, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), plugin_cluster([node("a")], []))
    attachment = convert(VolumeAttachment, {"metadata": {"name": "x"}, "spec": {"attacher": attacher, "nodeName": "a"}})
    (hint,) = [entry.hint for entry in plugin.events_to_register() if "VolumeAttachment" in entry.event.resource]
    assert hint(pod("p", volumes=[{"name": "v", **volume}]), attachment, None) == expected


@pytest.mark.parametrize(
    ("enabled", "opted_in", "rejected"),
    [(False, True, []), (True, False, []), (True, True, ["without", "without-csi-node"])],
)
def test_volume_limit_scaling_requires_the_driver_on_the_node(
    enabled: bool, opted_in: bool, rejected: list[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    nodes = [node(name) for name in ("with", "without", "without-csi-node")]
    cluster = plugin_cluster(nodes, feature_gates={"VolumeLimitScaling": enabled})
    for name, drivers in (("with", [{"name": "csi.example", "nodeID": "n"}]), ("without", [])):
        cluster.put("csi_nodes", convert(CSINode, {"metadata": {"name": name}, "spec": {"drivers": drivers}}))
    spec = {"preventPodSchedulingIfMissing": opted_in}
    cluster.put("csi_drivers", convert(CSIDriver, {"metadata": {"name": "csi.example"}, "spec": spec}))
    cluster.put("persistent_volumes", make_volume("pv", csi={"driver": "csi.example", "volumeHandle": "h"}))
    cluster.put("persistent_volume_claims", make_claim("c", "pv"))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    reason = ("csi.example CSI driver is not installed on the node",)
    assert rejections(plugin, cluster, pod("p", volumes=volume_of("c"))) == dict.fromkeys(rejected, reason)
