"""NodeVolumeLimits and VolumeBinding: the array form of Filter equals the per-node form, and caches are up to date."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import (
    CSINode,
    StorageClass,
    VolumeAttachment,
)
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.plugin_args import VolumeBindingArgs
from kubeloop.scheduler.plugins.volumes.volume_binding import VolumeBinding
from support.objects.plugin_volumes import make_claim, make_volume

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@pytest.mark.parametrize("seed", range(25))
def test_filter_rows_equals_filter(
    seed: int, plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(6)]
    cluster = plugin_cluster([node(name, labels={ZONE: rng.choice("ab")}) for name in names])
    cluster.put("storage_classes", convert(StorageClass, {"metadata": {"name": "wait"}, "provisioner": "x"}))
    for name in names[:5]:
        drivers = [
            {"name": driver, "nodeID": name, "allocatable": {"count": rng.randrange(1, 5)}}
            for driver in ("x", "y", "ebs.csi.aws.com")
        ]
        spec = {"drivers": drivers[rng.randrange(3) :]}
        migrated = {"storage.alpha.kubernetes.io/migrated-plugins": rng.choice(["", "kubernetes.io/aws-ebs"])}
        cluster.put("csi_nodes", convert(CSINode, {"metadata": {"name": name, "annotations": migrated}, "spec": spec}))
    for number in range(12):
        kind = {"awsElasticBlockStore": {"volumeID": rng.choice(["v", "aws://z/none"])}} if rng.random() < 0.3 else {
            "csi": {"driver": rng.choice("xy"), "volumeHandle": f"h{rng.randrange(9)}"}
        }  # fmt: skip
        affinity = rng.choice([None, [(ZONE, "In", ["a"])], [(ZONE, "NotIn", ["a"])]])
        volume = make_volume(f"pv{number}", affinity=affinity, **kind)
        labels = rng.choice([{}, {ZONE: "a"}])  # of an in-tree volume: where it is
        metadata = msgspec.structs.replace(volume.metadata, labels=labels)
        cluster.put("persistent_volumes", msgspec.structs.replace(volume, metadata=metadata))
        cluster.put("persistent_volume_claims", make_claim(f"c{number}", f"pv{number}"))

    def some_pod(name: str, node_name: str = "") -> Any:
        used = [f"c{number}" for number in rng.sample(range(13), rng.randrange(3))]  # c12 does not exist
        volumes = [{"name": claim_name, "persistentVolumeClaim": {"claimName": claim_name}} for claim_name in used]
        if rng.random() < 0.1:
            volumes.append({"name": "inline", "awsElasticBlockStore": {"volumeID": "other"}})
        return pod(name, node_name, volumes=volumes)

    plugins = [cluster.framework.plugins[name] for name in ("NodeVolumeLimits", "VolumeBinding")]
    placed: list[Any] = []
    compared = rejected = 0
    for step in range(25):
        if placed and rng.random() < 0.3:
            cluster.cache.remove_pod(placed.pop(rng.randrange(len(placed))))
        placed.append(some_pod(f"there-{step}", rng.choice(names)))
        cluster.cache.add_pod(placed[-1])
        if rng.random() < 0.3:
            spec = {"attacher": "x", "nodeName": rng.choice(names), "source": {"persistentVolumeName": "pv1"}}
            attachment = {"metadata": {"name": f"a{step}"}, "spec": spec}
            cluster.put("volume_attachments", convert(VolumeAttachment, attachment))
        if rng.random() < 0.2:
            drivers = [{"name": "x", "nodeID": "", "allocatable": {"count": rng.randrange(1, 5)}}]
            changed = {"metadata": {"name": rng.choice(names)}, "spec": {"drivers": drivers}}
            cluster.put("csi_nodes", convert(CSINode, changed))
        snapshot, pending = cluster.refresh(), PodInfo(some_pod(f"pending-{step}"))
        for plugin in plugins:
            state = CycleState()
            if plugin.pre_filter(state, pending, snapshot)[1] is not None:
                continue
            for rows in (snapshot.all_rows, snapshot.all_rows[::2].copy()):
                node_statuses = [plugin.filter(state, pending, snapshot.node_infos[row]) for row in rows.tolist()]
                if any(status is not None and status.error is not None for status in node_statuses):
                    continue
                result = plugin.filter_rows(state, pending, snapshot, rows)
                row_statuses = [None if passed else result.explain(i) for i, passed in enumerate(result.passed)]
                assert row_statuses == node_statuses, plugin.name
                compared += 1
                rejected += len(rows) - node_statuses.count(None)
    assert compared > 10
    assert rejected > 3


@pytest.mark.parametrize("seed", range(25))
def test_unbound_volumes_equal_those_of_a_new_plugin(
    seed: int, plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    """Volumes change, are assumed and forgotten between pods, whose claims are of a few sizes."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(5)]
    cluster = plugin_cluster([node(name, labels={ZONE: rng.choice("ab")}) for name in names])
    for name, provisioner in (("wait", "kubernetes.io/no-provisioner"), ("create", "csi.example")):
        mode = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.put("storage_classes", convert(StorageClass, {"metadata": {"name": name}, **mode}))

    def some_volume(number: int) -> Any:
        where: Any = [[(HOSTNAME, "In", rng.sample(names, rng.randrange(1, 3)))], [(ZONE, "In", ["a"])], None]
        if seed % 3 == 0:
            where += [[(ZONE, "In", ["a"]), (HOSTNAME, "NotIn", ["n1"])], [(ZONE, "NotIn", ["b"])]]
        reserved = {"claimRef": {"namespace": "default", "name": f"c{rng.randrange(8)}"}} if rng.random() < 0.1 else {}
        capacity = {"storage": f"{rng.randrange(1, 4)}Gi"}
        class_name = rng.choice(["wait", "create"])
        return make_volume(
            f"pv{number}", affinity=rng.choice(where), capacity=capacity, storageClassName=class_name, **reserved
        )

    for number in range(8):
        cluster.put("persistent_volumes", some_volume(number))
        claim = make_claim(f"c{number}", storage=f"{rng.randrange(1, 4)}Gi")
        spec = msgspec.structs.replace(claim.spec, storage_class_name=rng.choice(["wait", "wait", "create"]))
        cluster.put("persistent_volume_claims", msgspec.structs.replace(claim, spec=spec))
    plugin = cluster.framework.plugins["VolumeBinding"]
    reserved: list[tuple[CycleState, PodInfo, str]] = []
    results = []
    for step in range(40):
        if rng.random() < 0.5:
            cluster.put("persistent_volumes", some_volume(rng.randrange(12)))
        if reserved and rng.random() < 0.4:
            plugin.unreserve(*reserved.pop(rng.randrange(len(reserved))))
        claims = [f"c{number}" for number in rng.sample(range(8), rng.randrange(1, 3))]
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        pending, snapshot = PodInfo(pod(f"p{step}", volumes=volumes)), cluster.refresh()
        other = VolumeBinding(VolumeBindingArgs(), cluster)
        other._binder.volumes, other._binder.claims = plugin._binder.volumes, plugin._binder.claims
        state, other_state = CycleState(), CycleState()
        status = plugin.pre_filter(state, pending, snapshot)[1]
        assert other.pre_filter(other_state, pending, snapshot)[1] == status
        if status is not None:
            continue
        expected = [other.filter(other_state, pending, info) for info in snapshot.node_infos]
        assert [plugin.filter(state, pending, info) for info in snapshot.node_infos] == expected
        result = plugin.filter_rows(state, pending, snapshot, snapshot.all_rows)
        assert [None if passed else result.explain(i) for i, passed in enumerate(result.passed)] == expected
        results += expected
        if None in expected:
            name = snapshot.node_infos[expected.index(None)].name
            assert plugin.reserve(state, pending, name) is None
            reserved.append((state, pending, name))
    assert results.count(None) > 10
    assert len(results) - results.count(None) > 10
