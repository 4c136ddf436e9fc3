"""VolumeZone: zone labels of bound volumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volumes.volume_zone import VolumeZone, volume_topologies
from support.objects.plugin_volumes import make_claim
from support.scheduling.plugin_cluster import rejections

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        pytest.param({ZONE: "a"}, {"in-b"}, id="GA label"),
        pytest.param({BETA_ZONE: "a"}, {"in-b"}, id="beta label on GA nodes"),
        pytest.param({ZONE: "a__b"}, set(), id="several zones"),
        pytest.param({ZONE: "a__"}, set(), id="malformed label"),
        pytest.param({}, set(), id="no label"),
    ],
)
def test_nodes_in_other_zones_are_rejected(
    labels: dict[str, str], rejected: set[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}), node("no-zone")])
    cluster.put("persistent_volumes", convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels}}))
    cluster.put("persistent_volume_claims", make_claim("data", "pv"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    plugin = VolumeZone(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volumes)).keys() == rejected


@pytest.mark.parametrize(
    ("labels", "topologies"),
    [
        pytest.param({}, [], id="no label"),
        pytest.param({"other": "a"}, [], id="another label"),
        pytest.param({ZONE: "a"}, [(ZONE, {"a"})], id="zone"),
        pytest.param({ZONE: " a __b"}, [(ZONE, {"a", "b"})], id="several zones, with spaces"),
        pytest.param({ZONE: "a__"}, [], id="malformed"),
        pytest.param({ZONE: ""}, [], id="empty"),
        pytest.param(
            {"topology.kubernetes.io/region": "r", ZONE: "", BETA_ZONE: "a"},
            [(BETA_ZONE, {"a"}), ("topology.kubernetes.io/region", {"r"})],
            id="others beside a malformed one",
        ),
    ],
)
def test_topology_labels_of_a_volume(labels: dict[str, str], topologies: list[Any]) -> None:
    volume = convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels}})
    assert [(topology.key, set(topology.values)) for topology in volume_topologies(volume)] == topologies


def storage_class(name: str, mode: str | None) -> StorageClass:
    return convert(StorageClass, {"metadata": {"name": name}, "volumeBindingMode": mode})


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param(None, "PersistentVolumeClaim had no name", id="no name"),
        pytest.param({"volumeName": "gone"}, 'persistentvolume "gone" not found', id="missing volume"),
        pytest.param({}, "PersistentVolumeClaim had no pv name and storageClass name", id="neither volume nor class"),
        pytest.param({"storageClassName": "x"}, 'storageclass.storage.k8s.io "x" not found', id="missing class"),
        pytest.param({"storageClassName": "unset"}, 'VolumeBindingMode not set for StorageClass "unset"', id="no mode"),
        pytest.param({"storageClassName": "now"}, "PersistentVolume had no name", id="binds immediately, not bound"),
        pytest.param({"storageClassName": "wait"}, None, id="waits for its first pod"),
    ],
)
def test_claims_that_keep_a_pod_from_scheduling(
    claim: dict[str, Any] | None, message: str | None, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a", labels={ZONE: "a"})])
    modes = {"unset": None, "now": "Immediate", "wait": "WaitForFirstConsumer"}
    cluster.put("storage_classes", *(storage_class(*item) for item in modes.items()))
    if claim is not None:
        body = {"metadata": {"name": "data", "namespace": "default"}, "spec": claim}
        cluster.put("persistent_volume_claims", convert(PersistentVolumeClaim, body))
    name = "" if claim is None else "data"
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    plugin = VolumeZone(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volumes)) == ({} if message is None else {"": (message,)})


def test_hints_queue_pods_whose_volumes_may_have_changed(plugin_cluster: Any, node: Any, pod: Any) -> None:
    plugin = VolumeZone(plugin_args.NoArgs(), plugin_cluster([node("a")]))
    hints = {registered.event.resource: registered.hint for registered in plugin.events_to_register()}
    waiting = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])

    class_hint = hints["storage.k8s.io/StorageClass"]
    assert class_hint(waiting, None, storage_class("c", "WaitForFirstConsumer")) == Hint.QUEUE
    assert class_hint(waiting, None, storage_class("c", "Immediate")) == Hint.SKIP

    claim_hint = hints["PersistentVolumeClaim"]
    assert claim_hint(waiting, None, make_claim("data")) == Hint.QUEUE
    assert claim_hint(waiting, None, make_claim("other")) == Hint.SKIP

    def volume(zone: str, **more: str) -> PersistentVolume:
        return convert(PersistentVolume, {"metadata": {"name": "pv", "labels": {ZONE: zone, **more}}})

    volume_hint = hints["PersistentVolume"]
    assert volume_hint(waiting, None, volume("a")) == Hint.QUEUE
    assert volume_hint(waiting, volume("a"), volume("b")) == Hint.QUEUE
    assert volume_hint(waiting, volume("a"), volume("a", other="label")) == Hint.SKIP
    for hint in (class_hint, claim_hint, volume_hint):
        assert hint(waiting, None, None) == Hint.QUEUE, "an object that could not be decoded"
