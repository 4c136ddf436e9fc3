"""MaxEBSVolumeCount and its like: which limit applies, which volumes count."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.plugin_args import VolumeCountArgs
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.scheduler.legacy_policy.volume_limits import (
    MaxAzureDiskVolumeCount,
    MaxCinderVolumeCount,
    MaxEBSVolumeCount,
    MaxGCEPDVolumeCount,
    with_max_volumes,
)

CLOUDS = {
    MaxEBSVolumeCount: ("awsElasticBlockStore", "volumeID", 39),
    MaxGCEPDVolumeCount: ("gcePersistentDisk", "pdName", 16),
    MaxAzureDiskVolumeCount: ("azureDisk", "diskName", 16),
    MaxCinderVolumeCount: ("cinder", "volumeID", 256),
}
EBS = CLOUDS[MaxEBSVolumeCount]


def disks(cloud: tuple[str, str, int], *names: object) -> list[dict[str, Any]]:
    source, key, _ = cloud
    return [{"name": f"v{name}", source: {key: str(name)}} for name in names]


def claims(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


@pytest.fixture
def fits(plugin_cluster, node, pod):
    """fits(plugin class, volumes of the pod, volumes in use, ...) -> True if the filter accepts the node."""
    handle = plugin_cluster()

    def run(
        plugin: Any, incoming: list[Any], used: list[Any], max_volumes: int | None = None, **node_fields: Any
    ) -> bool:
        info = NodeInfo.of(node("n", **node_fields), pod("holder", "n", volumes=used))
        status = plugin(VolumeCountArgs(max_volumes=max_volumes), handle).filter(
            CycleState(), PodInfo(pod("p", volumes=incoming)), info
        )
        assert status is None or status.reasons == ("node(s) exceed max volume count",)
        return status is None

    run.handle = handle  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("plugin", CLOUDS)
def test_limit_without_a_csi_node(fits, plugin):
    cloud = CLOUDS[plugin]
    limit = cloud[2]
    assert fits(plugin, disks(cloud, "new"), disks(cloud, *range(limit - 1)))
    assert not fits(plugin, disks(cloud, "new"), disks(cloud, *range(limit)))
    assert fits(plugin, disks(cloud, 0), disks(cloud, *range(limit)))  # already attached


@pytest.mark.parametrize("plugin", CLOUDS)
def test_clouds_are_independent(fits, plugin):
    for other, cloud in CLOUDS.items():
        full = disks(cloud, *range(cloud[2]))
        assert fits(plugin, disks(cloud, "new"), full) == (plugin is not other)


def test_configuration_and_allocatable_change_the_limit(fits):
    nitro = {"labels": {"node.kubernetes.io/instance-type": "m5.large"}}
    assert fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, *range(24)), **nitro)
    assert not fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, *range(25)), **nitro)
    assert fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, 1), max_volumes=2)
    assert not fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, 1, 2), max_volumes=2, **nitro)
    three = {"allocatable": {"attachable-volumes-aws-ebs": "3"}}
    assert fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, 1, 2), **three)
    assert not fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, 1, 2, 3), **three)


def test_max_volumes_reaches_every_profile():
    own = Profile(scheduler_name="own", args={"MaxEBSVolumeCount": VolumeCountArgs(max_volumes=3)})
    config = SchedulerConfiguration(profiles=(Profile(), own))
    limits = [
        {name: args.max_volumes for name, args in profile.args.items() if isinstance(args, VolumeCountArgs)}
        for profile in with_max_volumes(config, "2").profiles
    ]
    every = dict.fromkeys((plugin.name for plugin in CLOUDS), 2)
    assert limits == [every, {**every, "MaxEBSVolumeCount": 3}]


@pytest.mark.parametrize("text", ["", "0", "-1", "none"])
def test_invalid_max_volumes_is_ignored(text):
    config = SchedulerConfiguration()
    assert with_max_volumes(config, text) == config


def test_csi_limit_of_the_node_replaces_the_others(fits):
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 1}}]
    fits.handle.put("csi_nodes", convert(CSINode, {"metadata": {"name": "n"}, "spec": {"drivers": drivers}}))
    assert fits(MaxEBSVolumeCount, disks(EBS, "new"), [], max_volumes=100)
    assert not fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, 1), max_volumes=100)
    gce = CLOUDS[MaxGCEPDVolumeCount]
    assert fits(
        MaxGCEPDVolumeCount, disks(gce, "new"), disks(gce, *range(50)), max_volumes=100
    )  # not a driver of the CSINode


def test_migrated_plugin_without_a_limit_is_not_counted(fits):
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    fits.handle.put("csi_nodes", convert(CSINode, {"metadata": {"name": "n", "annotations": annotations}}))
    assert fits(MaxEBSVolumeCount, disks(EBS, "new"), disks(EBS, *range(50)))


def test_claims_count_by_their_volume_or_class(fits):
    put = fits.handle.put
    put("storage_classes", convert(StorageClass, {"metadata": {"name": "ebs"}, "provisioner": "kubernetes.io/aws-ebs"}))
    for name, spec in {
        "bound": {"volumeName": "pv"},
        "other-cloud": {"volumeName": "disk"},
        "of-class": {"storageClassName": "ebs"},
        "other": {"storageClassName": "x"},
    }.items():
        put("persistent_volume_claims", convert(PersistentVolumeClaim, {
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        }))  # fmt: skip
    spec = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    put("persistent_volumes", convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec}))
    spec = {"gcePersistentDisk": {"pdName": "disk-1"}}
    put("persistent_volumes", convert(PersistentVolume, {"metadata": {"name": "disk"}, "spec": spec}))
    holder = disks(EBS, "vol-1")
    assert fits(MaxEBSVolumeCount, claims("bound"), holder, max_volumes=1)  # the same disk
    assert not fits(MaxEBSVolumeCount, claims("of-class"), holder, max_volumes=1)
    assert fits(MaxEBSVolumeCount, claims("other", "missing"), holder, max_volumes=1)
    assert fits(MaxEBSVolumeCount, claims("other-cloud"), holder, max_volumes=1)
    assert not fits(MaxGCEPDVolumeCount, claims("other-cloud"), disks(CLOUDS[MaxGCEPDVolumeCount], "x"), max_volumes=1)


def test_node_changes_wake_rejected_pods(plugin_cluster):
    events = MaxEBSVolumeCount(VolumeCountArgs(), plugin_cluster()).events_to_register()
    assert NODE in {entry.event.resource for entry in events}


@pytest.mark.parametrize(
    ("volumes", "skipped"),
    [
        pytest.param([], True, id="no volumes"),
        pytest.param([{"name": "v", "emptyDir": {}}], True, id="no disk"),
        pytest.param(disks(CLOUDS[MaxCinderVolumeCount], "d"), True, id="disk of another cloud"),
        pytest.param(disks(EBS, "d"), False, id="disk"),
        pytest.param(claims("c"), False, id="claim"),
    ],
)
def test_pods_without_disks_of_the_cloud_skip_the_filter(plugin_cluster, pod, volumes, skipped):
    cluster = plugin_cluster()
    plugin = MaxEBSVolumeCount(VolumeCountArgs(), cluster)
    _, status = plugin.pre_filter(CycleState(), PodInfo(pod("p", volumes=volumes)), cluster.snapshot)
    assert (status is not None and status.code is Code.SKIP) == skipped
