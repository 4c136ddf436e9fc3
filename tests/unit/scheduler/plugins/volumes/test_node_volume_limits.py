"""NodeVolumeLimits: CSI volumes per node."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import CSIDriver, CSINode, StorageClass, VolumeAttachment
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volumes import node_volume_limits
from kubeloop.scheduler.plugins.volumes.node_volume_limits import NodeVolumeLimits
from kubeloop.scheduler.plugins.volumes.volume_claims import ClaimError
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


def csi_node(name: str, **limits: int | None) -> CSINode:
    """Return a CSINode with drivers a, b, ... and their limits; None: the driver has none."""
    drivers = [
        {"name": driver, "nodeID": name} | ({} if limit is None else {"allocatable": {"count": limit}})
        for driver, limit in limits.items()
    ]
    return convert(CSINode, {"metadata": {"name": name}, "spec": {"drivers": drivers}})


def volumes(*claims: str) -> list[dict[str, Any]]:
    return [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]


def with_claims(cluster: Any) -> None:
    """Add claims named by driver and number, such as a1, each bound to a volume with the handle of its name."""
    for name in ("a1", "a2", "a3", "b1", "b2"):
        cluster.put("persistent_volumes", make_volume(f"pv-{name}", csi={"driver": name[0], "volumeHandle": name}))
        cluster.put("persistent_volume_claims", make_claim(name, f"pv-{name}"))


@pytest.mark.parametrize(
    ("limits", "existing", "attached", "incoming", "fits"),
    [
        pytest.param({"a": 1}, [], [], ["a1"], True, id="the only one"),
        pytest.param({"a": 0}, [], [], ["a1"], False, id="limit 0"),
        pytest.param({"a": 1}, ["a1"], [], ["a2"], False, id="full"),
        pytest.param({"a": 2}, ["a1"], [], ["a2"], True, id="exactly the limit"),
        pytest.param({"a": 2}, ["a1"], [], ["a2", "a3"], False, id="two more than one left"),
        pytest.param({"a": 3}, ["a1"], [], ["a2", "a3"], True, id="two left"),
        pytest.param({"a": 1}, ["a1"], [], ["a1"], True, id="used there already"),
        pytest.param({"a": 1}, ["b1"], [], ["a1"], True, id="another driver counts for itself"),
        pytest.param({"a": 1, "b": 1}, ["b1"], [], ["a1", "b2"], False, id="the second driver is full"),
        pytest.param({"b": 0}, ["a1"], [], ["a2"], True, id="no limit for the driver"),
        pytest.param({"a": None}, ["a1"], [], ["a2"], True, id="driver without a limit"),
        pytest.param({}, ["a1"], [], ["a2"], True, id="no driver"),
        pytest.param({"a": 1}, [], ["a1"], ["a2"], False, id="attached without a pod"),
        pytest.param({"a": 2}, ["a1"], ["a1"], ["a2"], True, id="attached and used counts once"),
        pytest.param({"a": 1}, [], ["b1"], ["a2"], True, id="attached, another driver"),
        pytest.param({"a": 1}, ["missing"], [], ["a1"], True, id="missing claim of another pod"),
    ],
)
def test_volumes_of_a_driver_are_limited(
    limits: dict[str, int | None],
    existing: list[str],
    attached: list[str],
    incoming: list[str],
    fits: bool,
    plugin_cluster: Any,
    node: Any,
    pod: Any,
) -> None:
    cluster = plugin_cluster([node("n"), node("other")], [pod("existing", "n", volumes=volumes(*existing))])
    with_claims(cluster)
    cluster.put("csi_nodes", csi_node("n", **limits))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    for number, name in enumerate(attached):
        spec = {"attacher": name[0], "nodeName": "n", "source": {"persistentVolumeName": f"pv-{name}"}}
        attachment = {"metadata": {"name": f"x{number}"}, "spec": spec}
        cluster.put("volume_attachments", convert(VolumeAttachment, attachment))
    expected = {} if fits else {"n": ("node(s) exceed max volume count",)}
    for _ in range(2):  # the second time with cached counts
        assert rejections(plugin, cluster, pod("p", volumes=volumes(*incoming))) == expected


def test_limits_follow_nodes_pods_and_attachments(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("n"), node("other")])
    with_claims(cluster)
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    incoming = pod("p", volumes=volumes("a1"))
    assert rejections(plugin, cluster, incoming) == {}
    cluster.put("csi_nodes", csi_node("n", a=1))
    assert rejections(plugin, cluster, incoming) == {}
    spec = {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "pv-a2"}}
    cluster.put("volume_attachments", convert(VolumeAttachment, {"metadata": {"name": "x"}, "spec": spec}))
    assert list(rejections(plugin, cluster, incoming)) == ["n"]
    cluster.put("csi_nodes", csi_node("n", a=2))
    assert rejections(plugin, cluster, incoming) == {}
    cluster.put("csi_nodes", csi_node("other", a=0))
    assert list(rejections(plugin, cluster, incoming)) == ["other"]


def test_pod_with_a_missing_claim_is_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("n")])
    cluster.put("csi_nodes", csi_node("n", a=1))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    ((reason,),) = rejections(plugin, cluster, pod("p", volumes=volumes("missing"))).values()
    assert reason.startswith('looking up PVC default/missing: persistentvolumeclaim "missing" not found')


def test_claim_of_another_pod_is_no_ephemeral_volume(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("n")])
    cluster.put("csi_nodes", csi_node("n", a=1))
    cluster.put("persistent_volume_claims", make_claim("p-v", "volume"))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    incoming = pod("p", volumes=[{"name": "v", "ephemeral": {}}])
    with pytest.raises(ClaimError, match="PVC default/p-v was not created for pod default/p"):
        rejections(plugin, cluster, incoming)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {"a": 1}, Hint.QUEUE, id="first limit"),
        pytest.param({"a": 1}, {"a": 2}, Hint.QUEUE, id="raised"),
        pytest.param({"a": 2}, {"a": 2}, Hint.SKIP, id="unchanged"),
        pytest.param({"a": 2}, {"a": 1}, Hint.SKIP, id="lowered"),
        pytest.param({"a": 1}, {}, Hint.SKIP, id="removed"),
        pytest.param({"a": 1, "b": 1}, {"a": 1, "b": 2}, Hint.QUEUE, id="one of two raised"),
        pytest.param({}, {"a": 0}, Hint.SKIP, id="limit 0"),
    ],
)
def test_raised_limit_wakes_pods(
    old: dict[str, int], new: dict[str, int], expected: Hint, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), plugin_cluster([node("n")]))
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.hint and "CSINode" in entry.event.resource]
    assert hint(pod("p"), csi_node("n", **old), csi_node("n", **new)) is expected


@pytest.mark.parametrize(
    ("resource", "fields", "expected"),
    [
        pytest.param("Pod", {"node": "n", "volumes": volumes("a1")}, Hint.QUEUE, id="deleted pod with a claim"),
        pytest.param("Pod", {"node": "n", "volumes": [{"name": "v", "emptyDir": {}}]}, Hint.SKIP, id="without one"),
        pytest.param("Pod", {"node": "", "volumes": volumes("a1")}, Hint.SKIP, id="deleted pod without a node"),
        pytest.param("PersistentVolumeClaim", {"claim": "a1"}, Hint.QUEUE, id="claim of the pod"),
        pytest.param("PersistentVolumeClaim", {"claim": "b1"}, Hint.SKIP, id="another claim"),
    ],
)
def test_event_wakes_pods_whose_volumes_it_concerns(
    resource: str, fields: dict[str, Any], expected: Hint, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), plugin_cluster([node("n")]))
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.event.resource == resource]
    incoming = pod("p", volumes=volumes("a1"))
    if resource == "Pod":
        assert hint(incoming, pod("q", fields["node"], volumes=fields["volumes"]), None) is expected
    else:
        assert hint(incoming, None, make_claim(fields["claim"])) is expected


def use_of(volume: str) -> dict[str, Any]:
    """Return a volume of a pod: its claim by name, or an in-tree volume."""
    if volume.startswith("ebs:"):
        return {"name": "v", "awsElasticBlockStore": {"volumeID": volume.removeprefix("ebs:")}}
    if volume == "empty":
        return {"name": "v", "emptyDir": {}}
    return {"name": "v", "persistentVolumeClaim": {"claimName": volume}}


@pytest.mark.parametrize(
    ("incoming", "rejected"),
    [
        pytest.param("a2", True, id="second volume of the driver"),
        pytest.param("unbound", True, id="unbound claim of a class of the driver"),
        pytest.param("unknown-class", False, id="unbound claim of an unknown class"),
        pytest.param("empty", False, id="no volume that is attached"),
    ],
)
def test_volumes_that_count_for_the_limit(incoming, rejected, plugin_cluster, node, pod):
    cluster = plugin_cluster([node("n")], [pod("existing", "n", volumes=[use_of("a1"), use_of("empty")])])
    with_claims(cluster)
    cluster.put("csi_nodes", csi_node("n", a=1))
    cluster.put("storage_classes", convert(StorageClass, {"metadata": {"name": "wait"}, "provisioner": "a"}))
    unknown = make_claim("unknown-class")
    spec = structs.replace(unknown.spec, storage_class_name="missing")
    cluster.put("persistent_volume_claims", make_claim("unbound"), structs.replace(unknown, spec=spec))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    new = pod("p", volumes=[use_of("empty"), use_of(incoming)])
    assert list(rejections(plugin, cluster, new)) == (["n"] if rejected else [])


def test_malformed_in_tree_volume_is_an_error(plugin_cluster, node, pod):
    cluster = plugin_cluster([node("n")])
    driver = "ebs.csi.aws.com"
    cluster.put("csi_nodes", csi_node("n", **{driver: 1}))
    plugin, snapshot = NodeVolumeLimits(plugin_args.NoArgs(), cluster), cluster.snapshot
    new = PodInfo(pod("p", volumes=[use_of("ebs:aws://zone/disk")]))
    status = plugin.filter(CycleState(), new, snapshot.node_infos[0])
    assert status is not None
    assert status.code is Code.ERROR
    assert status.message.startswith("converting volume(v) from inline to csi: ")
    with pytest.raises(ClaimError, match="converting volume"):
        plugin.filter_rows(CycleState(), new, snapshot, snapshot.all_rows)


def test_limits_of_many_drivers_are_cached_for_a_while(plugin_cluster, node, pod, monkeypatch):
    monkeypatch.setattr(node_volume_limits, "_MAX_DRIVERS", 2)
    cluster = plugin_cluster([node("n")])
    drivers = [f"d{number}" for number in range(5)]
    cluster.put("csi_nodes", csi_node("n", **dict.fromkeys(drivers, 1)))
    plugin = NodeVolumeLimits(plugin_args.NoArgs(), cluster)
    for driver in drivers:
        assert plugin._node_counts.limits(cluster.snapshot, driver).tolist() == [1]
        assert len(plugin._node_counts._limits) <= 2


@pytest.mark.parametrize(
    ("existing", "count"),
    [
        pytest.param([], 0, id="no pods"),
        pytest.param([["a1"], ["a2", "b1"]], 3, id="claims"),
        pytest.param([["a1", "empty"]], 1, id="a volume that is not attached"),
        pytest.param([["a1"], ["ebs:vol-1"]], -1, id="an in-tree volume"),
    ],
)
def test_upper_bound_of_the_volumes_of_a_node(existing, count, plugin_cluster, node, pod):
    pods = [pod(f"p{number}", "n", volumes=[use_of(name) for name in names]) for number, names in enumerate(existing)]
    cluster = plugin_cluster([node("n")], pods)
    assert node_volume_limits._count_claims(cluster.snapshot.node_infos[0]) == count
