"""Snapshot: incremental updates give the same columns as a snapshot built from scratch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduler_strategies import APPS, NAMES, QUICKLY, nodes, pods


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """Return all data of the columns by node, independent of the assignment of codes.

    Not by row: a node that went and came back between two looks keeps its place until the next change of the order,
    as in kube-scheduler.
    """
    columns = snapshot.columns
    names = [info.name for info in snapshot.node_infos]
    assert snapshot.row_of == {name: row for row, name in enumerate(names)}
    cpu, gpu = columns.resource("cpu"), columns.resource("example.com/gpu")
    rows: dict[str, list[Any]] = {
        "cpu": columns.allocatable[cpu].tolist(),
        "gpu": columns.allocatable[gpu].tolist(),
        "cpu used": columns.requested[cpu].tolist(),
        "gpu used": columns.requested[gpu].tolist(),
        "non-zero": columns.non_zero.T.tolist(),
        "pods": columns.pod_count.tolist(),
        "unschedulable": columns.unschedulable.tolist(),
        "taints": [columns.taints.values[code] for code in columns.taints.codes.tolist()],
        "ports": [columns.used_ports.values[code] for code in columns.used_ports.codes.tolist()],
        "images": columns.image("app:1").sizes.tolist(),
        "anti": columns.affinities.weighted("anti", lambda of: len(of.required_anti_affinity_terms)).tolist(),
    }
    for key in ("kubernetes.io/hostname", "zone", "rack"):
        column = columns.labels(key)
        rows[key] = [column.values[code] if code >= 0 else None for code in column.codes.tolist()]
    for app in APPS:
        rows[app] = columns.pods.weighted(app, lambda of, app=app: of.labels.get("app") == app).tolist()
    columns.pods.check()
    columns.affinities.check()
    return {name: {what: values[row] for what, values in rows.items()} for row, name in enumerate(names)}


@QUICKLY
@given(data=st.data())
def test_incremental_snapshot_equals_new_snapshot(data: st.DataObject, plugin_cluster: Any) -> None:
    cluster = plugin_cluster()
    existing_nodes: dict[str, Node] = {}
    placed: dict[str, Pod] = {}
    for step in range(data.draw(st.integers(1, 14), label="steps")):
        action = data.draw(st.sampled_from(["node", "node", "drop node", "pod", "pod", "pod", "drop pod", "look"]))
        if action == "node":
            node = data.draw(nodes(data.draw(st.sampled_from(NAMES))))
            old = existing_nodes.get(node.metadata.name)
            cluster.cache.add_node(node) if old is None else cluster.cache.update_node(old, node)
            existing_nodes[node.metadata.name] = node
        elif action == "drop node" and existing_nodes:
            cluster.cache.remove_node(existing_nodes.pop(data.draw(st.sampled_from(sorted(existing_nodes)))))
        elif action == "pod" and existing_nodes:
            pod = data.draw(pods(f"pod-{step}", data.draw(st.sampled_from(sorted(existing_nodes)))))
            cluster.cache.add_pod(pod)
            placed[pod.metadata.name] = pod
        elif action == "drop pod" and placed:
            cluster.cache.remove_pod(placed.pop(data.draw(st.sampled_from(sorted(placed)))))
        elif action == "look":
            snapshot_data(cluster.refresh())
    new_snapshot = Snapshot()
    cluster.cache.update_snapshot(new_snapshot)
    assert snapshot_data(cluster.refresh()) == snapshot_data(new_snapshot)


def test_assumed_pods_are_forgotten_in_reverse_order():
    cluster = PluginCluster([make_node("n1"), make_node("n2")], [make_pod("old", "n1", cpu="1")])
    snapshot, columns = cluster.snapshot, cluster.snapshot.columns
    cpu = columns.resource("cpu")
    before = list(snapshot.node_infos)
    first, second = PodInfo(make_pod("p", "n1", cpu="2")), PodInfo(make_pod("q", "n1", cpu="500m"))
    snapshot.assume_pod(first)
    generation = snapshot.generation
    snapshot.assume_pod(second)
    row = snapshot.row_of["n1"]
    assert snapshot.changed_since(generation).tolist() == [row]
    assert (columns.requested[cpu, row], columns.pod_count[row]) == (3500, 3)
    with pytest.raises(ValueError, match="pod p is not the last one"):
        snapshot.forget_pod("p")
    snapshot.forget_pod("q")
    snapshot.forget_pod("p")
    assert all(old is new for old, new in zip(before, snapshot.node_infos, strict=True))
    assert (columns.requested[cpu, row], columns.pod_count[row]) == (1000, 1)
    assert cluster.cache.update_snapshot(snapshot) == []


def test_new_snapshot_is_empty():
    snapshot = Snapshot()
    assert (len(snapshot), snapshot.names.tolist(), snapshot.all_rows.tolist()) == (0, [], [])
    assert snapshot.changed_since(-1).tolist() == []
    assert snapshot.columns.pod_count.tolist() == []


def test_changed_rows_are_numbered_as_in_the_current_layout():
    """b is row 1 when it changes, and row 0 after a is deleted."""
    cluster = PluginCluster([make_node(name) for name in "abc"])
    snapshot = cluster.snapshot
    before = snapshot.generation
    cluster.cache.add_pod(make_pod("p", "b"))
    cluster.refresh()
    assert snapshot.changed_since(before).tolist() == [1]
    cluster.cache.remove_node(make_node("a"))
    cluster.refresh()
    assert [snapshot.node_infos[row].name for row in snapshot.changed_since(before).tolist()] == ["b"]


def test_rows_changed_by_several_updates():
    cluster = PluginCluster([make_node(name) for name in "abcd"])
    snapshot = cluster.snapshot
    generations = [snapshot.generation]
    for name in "bda":
        cluster.cache.add_pod(make_pod(f"on-{name}", name))
        cluster.refresh()
        generations.append(snapshot.generation)
    changed = [snapshot.changed_since(generation).tolist() for generation in generations]
    assert changed == [[0, 1, 3], [0, 3], [0], []]
    assert snapshot.changed_since(-1).tolist() == [0, 1, 2, 3]
