"""VolumeRestrictions: disks that cannot be shared, and ReadWriteOncePod claims."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import convert, to_json
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import POD, Hint
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volumes.volume_restrictions import VolumeRestrictions, has_disk_conflict
from support.objects.plugin_volumes import make_claim
from support.scheduling.plugin_cluster import rejections


@pytest.mark.parametrize(
    ("source", "other", "conflict"),
    [
        pytest.param({"pdName": "d"}, {"pdName": "d"}, True, id="same disk"),
        pytest.param({"pdName": "d"}, {"pdName": "e"}, False, id="other disk"),
        pytest.param({"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, False, id="both read-only"),
        pytest.param({"pdName": "d", "readOnly": True}, {"pdName": "d"}, True, id="one read-only"),
    ],
)
def test_gce_disk_conflict(source: dict[str, Any], other: dict[str, Any], conflict: bool, pod: Any) -> None:
    first, second = (
        pod(name, volumes=[{"name": "v", "gcePersistentDisk": disk}]) for name, disk in (("p", source), ("q", other))
    )
    assert has_disk_conflict(first, [second]) == conflict


RBD = {"monitors": ["m1", "m2"], "pool": "p", "image": "i"}
READ_ONLY = {"readOnly": True}


@pytest.mark.parametrize(
    ("kind", "source", "other", "conflict"),
    [
        pytest.param("awsElasticBlockStore", {"volumeID": "v"}, {"volumeID": "v"}, True, id="EBS: same"),
        pytest.param("awsElasticBlockStore", {"volumeID": "v"}, {"volumeID": "w"}, False, id="EBS: other"),
        pytest.param(
            "awsElasticBlockStore",
            {"volumeID": "v", **READ_ONLY},
            {"volumeID": "v", **READ_ONLY},
            True,
            id="EBS: cannot be shared read-only",
        ),
        pytest.param("iscsi", {"iqn": "q"}, {"iqn": "q"}, True, id="iSCSI: same"),
        pytest.param("iscsi", {"iqn": "q"}, {"iqn": "r"}, False, id="iSCSI: other"),
        pytest.param("iscsi", {"iqn": "q", **READ_ONLY}, {"iqn": "q", **READ_ONLY}, False, id="iSCSI: read-only"),
        pytest.param("iscsi", {"iqn": "q"}, {"iqn": "q", **READ_ONLY}, True, id="iSCSI: one read-only"),
        pytest.param("rbd", RBD, RBD, True, id="RBD: same"),
        pytest.param("rbd", RBD, {**RBD, "monitors": ["m2", "m3"]}, True, id="RBD: one monitor in common"),
        pytest.param("rbd", RBD, {**RBD, "monitors": ["m3"]}, False, id="RBD: other monitors"),
        pytest.param("rbd", RBD, {**RBD, "pool": "q"}, False, id="RBD: other pool"),
        pytest.param("rbd", RBD, {**RBD, "image": "j"}, False, id="RBD: other image"),
        pytest.param("rbd", {**RBD, **READ_ONLY}, {**RBD, **READ_ONLY}, False, id="RBD: read-only"),
        pytest.param("rbd", {**RBD, **READ_ONLY}, RBD, True, id="RBD: one read-only"),
        pytest.param("emptyDir", {}, {}, False, id="not restricted"),
    ],
)
def test_disk_conflicts_by_kind(
    kind: str, source: dict[str, Any], other: dict[str, Any], conflict: bool, pod: Any
) -> None:
    ours = pod("p", volumes=[{"name": "v", kind: source}])
    theirs = pod("q", volumes=[{"name": "e", "emptyDir": {}}, {"name": "v", kind: other}])
    assert has_disk_conflict(ours, [theirs]) is conflict
    assert has_disk_conflict(ours, [pod("none"), theirs]) is conflict
    assert has_disk_conflict(ours, []) is False


def test_disks_of_other_kinds_do_not_conflict(pod: Any) -> None:
    ebs = pod("p", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "v"}}])
    for kind, source in (("iscsi", {"iqn": "v"}), ("gcePersistentDisk", {"pdName": "v"}), ("rbd", RBD)):
        other = pod("q", volumes=[{"name": "v", kind: source}])
        assert not has_disk_conflict(ebs, [other])
        assert not has_disk_conflict(other, [ebs])


def test_restricted_disk_rejects_only_the_node_that_uses_it(plugin_cluster: Any, node: Any, pod: Any) -> None:
    volumes = [{"name": "v", "iscsi": {"iqn": "q"}}]
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", volumes=volumes)])
    plugin = VolumeRestrictions(plugin_args.NoArgs(), cluster)
    rejected = rejections(plugin, cluster, pod("p", volumes=volumes))
    assert rejected == {"a": ("node(s) had no available disk",)}


def test_read_write_once_pod_claim_in_use(plugin_cluster: Any, node: Any, pod: Any) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", volumes=volumes)])
    document = to_json(make_claim("data"))
    document["spec"]["accessModes"] = ["ReadWriteOncePod"]
    cluster.put("persistent_volume_claims", convert(PersistentVolumeClaim, document))
    plugin = VolumeRestrictions(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volumes)).keys() == {"a", "b"}
    missing = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    assert rejections(plugin, cluster, pod("q", volumes=missing)) == {
        "": ('persistentvolumeclaim "missing" not found',)
    }


def hint(plugin: VolumeRestrictions, resource: str) -> Any:
    """Return the queueing hint that the plugin registers for the deletion of a resource."""
    return next(registered.hint for registered in plugin.events_to_register() if registered.event.resource == resource)


@pytest.mark.parametrize("namespace", ["default", "other"])
@pytest.mark.parametrize(
    "source", [{"persistentVolumeClaim": {"claimName": "data"}}, {"gcePersistentDisk": {"pdName": "disk"}}]
)
def test_deleted_pod_wakes_pods_of_its_namespace_only(
    source: dict[str, Any], namespace: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = VolumeRestrictions(plugin_args.NoArgs(), plugin_cluster([node("a")], []))
    waiting = pod("p", volumes=[{"name": "v", **source}])
    deleted = pod("q", "a", volumes=[{"name": "v", **source}])
    deleted = replace(deleted, metadata=replace(deleted.metadata, namespace=namespace))
    expected = Hint.QUEUE if namespace == waiting.metadata.namespace else Hint.SKIP
    assert hint(plugin, POD)(waiting, deleted, None) == expected


def test_uses_of_claims_are_counted_as_pods_come_and_go(plugin_cluster: Any, node: Any, pod: Any) -> None:
    claim = make_claim("data", "pv")
    claim = replace(claim, spec=replace(claim.spec, access_modes=("ReadWriteOncePod",)))
    cluster = plugin_cluster([node("a")])
    cluster.put("persistent_volume_claims", claim, make_claim("other", "pv2"))
    plugin = VolumeRestrictions(plugin_args.NoArgs(), cluster)
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "disk"}}
    used, other = ({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "other"))
    state, new = CycleState(), PodInfo(pod("new", volumes=[disk, used, other]))
    assert plugin.pre_filter(state, new, cluster.snapshot) == (None, None)
    info = cluster.snapshot.node_infos[0]
    assert plugin.filter(state, new, info) is None
    for volumes, conflicts in (([], 0), ([disk, other], 0), ([used], 1)):
        added = PodInfo(pod("q", "a", volumes=volumes))
        before = state.clone()
        assert plugin.add_pod(state, new, added, info) is None
        status = plugin.filter(state, new, info)
        assert (status is not None) == bool(conflicts)
        assert plugin.filter(before, new, info) is None, "a copy of the state is not changed"
        assert plugin.remove_pod(state, new, added, info) is None
        assert plugin.filter(state, new, info) is None


def test_claim_that_does_not_exist_cannot_be_resolved(plugin_cluster: Any, node: Any, pod: Any) -> None:
    plugin = VolumeRestrictions(plugin_args.NoArgs(), plugin_cluster([node("a")]))
    new = pod("new", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert rejections(plugin, plugin_cluster([node("a")]), new) == {"": ('persistentvolumeclaim "data" not found',)}


def test_free_disk_does_not_hide_a_claim_in_use(plugin_cluster: Any, node: Any, pod: Any) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", volumes=volumes)])
    document = to_json(make_claim("data"))
    document["spec"]["accessModes"] = ["ReadWriteOncePod"]
    cluster.put("persistent_volume_claims", convert(PersistentVolumeClaim, document))
    plugin = VolumeRestrictions(plugin_args.NoArgs(), cluster)
    with_disk = pod("p", volumes=[*volumes, {"name": "disk", "iscsi": {"iqn": "q"}}])
    assert rejections(plugin, cluster, with_disk).keys() == {"a", "b"}
