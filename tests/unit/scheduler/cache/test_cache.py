"""Scheduler cache: pod states, expiry, and snapshots under events in any order."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

NODES = ["a", "b", "c", "d"]
POD_NAMES = ["p", "q", "r", "s", "t"]


def node(name: str, version: int) -> Node:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "xyz"[hash_of(name, version) % 3]}
    images = [{"names": [f"image-{version % 2}"], "sizeBytes": 100 + version % 2}]
    allocatable = {"cpu": str(1 + version % 3), "memory": "1Gi", "pods": "10"}
    return convert(
        Node,
        {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable, "images": images}},
    )


def hash_of(name: str, version: int) -> int:
    return ord(name[0]) + version


def pod(name: str, version: int, node_name: str) -> Pod:
    spec: dict[str, Any] = {
        "nodeName": node_name,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{100 * (1 + version % 3)}m"}}}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{version % 2}"}}],
    }
    if version % 2:
        term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "zone"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}}
    return convert(Pod, {"metadata": metadata, "spec": spec})


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add_node", "update_node", "remove_node", "assume", "forget", "add", "update", "remove"])
        | st.sampled_from(["snapshot", "partial snapshot"]),
        st.sampled_from(NODES),
        st.sampled_from(POD_NAMES),
        st.integers(0, 5),
    ),
    max_size=60,
)


class CacheModel:
    """A cache and the objects that its events are about."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.snapshot = Snapshot()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}

    def apply(self, operation: str, node_name: str, pod_name: str, version: int) -> None:
        cache, old, cached_pod = self.cache, self.nodes.get(node_name), self.pods.get(pod_name)
        match operation:
            case "add_node" if old is None:
                self.nodes[node_name] = node(node_name, version)
                cache.add_node(self.nodes[node_name])
            case "update_node" if old is not None:
                self.nodes[node_name] = node(node_name, version)
                cache.update_node(old, self.nodes[node_name])
            case "remove_node" if old is not None:
                cache.remove_node(self.nodes.pop(node_name))
            case "assume" if cached_pod is None:
                self.pods[pod_name] = pod(pod_name, version, node_name)
                cache.assume_pod(PodInfo(self.pods[pod_name]))
            case "forget" if cached_pod is not None and cache.is_assumed(cached_pod):
                cache.forget_pod(self.pods.pop(pod_name))
            case "add" if cached_pod is None or cache.is_assumed(cached_pod):
                self.pods[pod_name] = pod(pod_name, version, node_name)
                cache.add_pod(self.pods[pod_name])
            case "update" if cached_pod is not None and not cache.is_assumed(cached_pod):
                self.pods[pod_name] = pod(pod_name, version, cached_pod.spec.node_name)
                cache.update_pod(cached_pod, self.pods[pod_name])
            case "remove" if cached_pod is not None:
                cache.remove_pod(self.pods.pop(pod_name))
            case "snapshot":
                cache.update_snapshot(self.snapshot)
            case "partial snapshot":
                assert len(cache.update_snapshot(self.snapshot, at_most=1)) <= 1


def content(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot's data by node, without image counts, which date from the node's last change."""
    return {
        info.name: (
            info.node,
            {uid: pod_info.pod for uid, pod_info in info.pods.items()},
            {name: amount for name, amount in info.requested.items() if amount},
            (info.non_zero_milli_cpu, info.non_zero_memory),
            info.allocatable,
            info.used_ports,
            info.pvc_ref_counts,
            info.affinity_counts,
            [snapshot.columns.requested[snapshot.columns.resource(name), row] for name in ("cpu", "memory")],
            [snapshot.columns.allocatable[snapshot.columns.resource(name), row] for name in ("cpu", "memory", "pods")],
            int(snapshot.columns.pod_count[row]),
        )
        for row, info in enumerate(snapshot.node_infos)
    }


@settings(max_examples=150)
@given(operations=OPERATIONS)
def test_incremental_snapshot_equals_new_snapshot(operations):
    model = CacheModel()
    for operation in operations:
        model.apply(*operation)
        model.cache.check()
    model.cache.update_snapshot(model.snapshot)
    new_snapshot = Snapshot()
    model.cache.update_snapshot(new_snapshot)
    assert content(model.snapshot) == content(new_snapshot)
    assert {info.name for info in new_snapshot.node_infos} == model.nodes.keys()
    # A zone change alone does not reorder the nodes of the incremental snapshot.
    assert model.snapshot.row_of == {info.name: row for row, info in enumerate(model.snapshot.node_infos)}
    assert np.array_equal(np.sort(model.snapshot.columns.pod_count), np.sort(new_snapshot.columns.pod_count))


def test_pod_state_transitions():
    cache = SchedulerCache(lambda: 0.0)
    first = pod("p", 0, "a")
    with pytest.raises(CacheError, match="is not added to scheduler cache"):
        cache.update_pod(first, first)
    with pytest.raises(CacheError, match="is not found in scheduler cache"):
        cache.remove_pod(first)
    cache.assume_pod(PodInfo(first))
    with pytest.raises(CacheError, match="is in the cache, so can't be assumed"):
        cache.assume_pod(PodInfo(first))
    with pytest.raises(CacheError, match="should not be updated"):
        cache.update_pod(first, first)
    elsewhere = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, node_name="b"))
    with pytest.raises(CacheError, match="was assumed on b but assigned to a"):
        cache.forget_pod(elsewhere)
    cache.add_pod(elsewhere)  # bound to another node than assumed
    assert cache.get_pod("uid-p").spec.node_name == "b"
    with pytest.raises(CacheError, match="is not assumed, so it cannot be forgotten"):
        cache.forget_pod(elsewhere)
    with pytest.raises(CacheError, match="was already in added state"):
        cache.add_pod(elsewhere)
    cache.remove_pod(elsewhere)
    assert cache.sizes() == (0, 0, 0)


@pytest.mark.parametrize(("ttl", "expired_at"), [(30.0, 31.0), (None, None)], ids=["30 s", "never"])
def test_assumed_pod_expires_after_binding_finished(ttl, expired_at):
    now = 0.0
    cache = SchedulerCache(lambda: now, assumed_pod_ttl_seconds=ttl)
    cache.assume_pod(PodInfo(pod("p", 0, "a")))
    cache.assume_pod(PodInfo(pod("q", 0, "a")))
    now = 100.0
    assert cache.expire_assumed_pods() == []  # their bindings have not finished
    now = 1.0
    cache.finish_binding(pod("p", 0, "a"))
    now = 30.9
    assert cache.expire_assumed_pods() == []
    now = expired_at or 10_000.0
    assert [pod_info.metadata.name for pod_info in cache.expire_assumed_pods()] == (["p"] if ttl else [])
    cache.check()


@pytest.mark.parametrize(("node_name", "logged"), [("a", 0), ("", 1), ("b", 2)])
def test_removal_of_a_pod_from_another_node_is_logged(node_name, logged, caplog):
    cache = SchedulerCache(lambda: 0.0)
    for name in "ab":
        cache.add_node(node(name, 0))
    cache.add_pod(pod("p", 0, "a"))
    cache.remove_pod(pod("p", 0, node_name))
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == logged
    assert any("cache is corrupted" in message for message in messages) == (node_name == "b")
    assert cache.pods() == {}
    cache.check()


def test_inconsistent_snapshot_is_reported_and_built_anew(caplog):
    cache, snapshot = SchedulerCache(lambda: 0.0), Snapshot()
    for name in "abc":
        cache.add_node(node(name, 0))
    cache.update_snapshot(snapshot)
    snapshot.update([snapshot.node_infos[0]], ())  # two nodes are lost, and the cache does not know
    with pytest.raises(CacheError, match="snapshot state is not consistent: 1 nodes, but 3 in the tree"):
        cache.update_snapshot(snapshot)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert cache.update_snapshot(snapshot) == []
    new_snapshot = Snapshot()
    cache.update_snapshot(new_snapshot)
    assert content(snapshot) == content(new_snapshot)


def test_unknown_node_cannot_be_removed():
    with pytest.raises(CacheError, match="node n is not found"):
        SchedulerCache(lambda: 0.0).remove_node(convert(Node, {"metadata": {"name": "n"}}))


def test_node_that_is_added_or_updated_twice_has_its_images_once():
    cache, snapshot = SchedulerCache(lambda: 0.0), Snapshot()
    cache.add_node(node("a", 0))
    cache.add_node(node("a", 3))  # in the same zone
    cache.update_node(None, node("b", 1))
    cache.update_snapshot(snapshot)
    assert [info.name for info in snapshot.node_infos] == ["a", "b"]
    images = {name: state.num_nodes for info in snapshot.node_infos for name, state in info.image_states.items()}
    assert images == {"image-1": 2}
    cache.remove_node(node("a", 3))
    cache.add_node(node("c", 1))
    cache.update_snapshot(snapshot)
    added = snapshot.get("c")
    assert added is not None
    assert {name: state.num_nodes for name, state in added.image_states.items()} == {"image-1": 2}, "b and c"


def test_node_of_another_zone_cannot_be_removed():
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(node("a", 0))
    with pytest.raises(CacheError, match="node a was not found in the list of its zone"):
        cache.remove_node(node("a", 1))
