"""The class cache changes neither filter results nor scores."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.framework.class_cache import ClassCache, compact
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.scheduler import Scheduler
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduler_strategies import QUICKLY, pods, populated


def random_node(rng: random.Random, name: str) -> Node:
    labels = {
        "kubernetes.io/hostname": name,
        "zone": rng.choice("ab"),
        "topology.kubernetes.io/zone": rng.choice("xyz"),
    }
    taints = [{"key": "dedicated", "value": "gpu", "effect": rng.choice(["NoSchedule", "PreferNoSchedule"])}]
    images = [{"names": ["web:1"], "sizeBytes": 300_000_000}] if rng.random() < 0.4 else []
    return convert(
        Node,
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints if rng.random() < 0.3 else [], "unschedulable": rng.random() < 0.1},
            "status": {
                "allocatable": {"cpu": rng.choice(["2", "4"]), "memory": "8Gi", "pods": rng.choice(["3", "20"])},
                "images": images,
            },
        },
    )


def random_pod(rng: random.Random, number: int) -> Pod:
    kind = rng.randrange(5)
    spec: dict[str, Any] = {
        "schedulerName": "default-scheduler",
        "containers": [
            {"name": "c", "image": "web:1", "resources": {"requests": {"cpu": f"{100 * (kind + 1)}m", "memory": "1Gi"}}}
        ],
    }
    if kind == 1:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if kind == 2:
        spec["nodeSelector"] = {"zone": "a"}
    if kind == 3:
        spec["containers"][0]["ports"] = [{"hostPort": 8080, "containerPort": 80}]
    if kind == 4:
        term = {"labelSelector": {"matchLabels": {"kind": "4"}}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": {"kind": str(kind)}}
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


def decide(scheduler: Scheduler, info: PodInfo) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the total scores of the feasible nodes and the rejections of the others, by node."""
    framework, snapshot = scheduler.frameworks["default-scheduler"], scheduler.snapshot
    scheduler.cache.update_snapshot(snapshot)
    state, diagnosis = CycleState(), Diagnosis(NodeToStatus(snapshot))
    _, rejection, _ = framework.filters.run_pre_filter(state, info, snapshot)
    assert rejection is None
    rows = framework.filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
    framework.scores.run_pre_score(state, info, snapshot, rows)
    totals = framework.scores.run_scores(state, info, snapshot, rows)
    names = [snapshot.node_infos[row].name for row in rows.tolist()]
    counts = diagnosis.node_to_status.plugins()
    reasons = {name: (status.plugin, status.code, status.reasons) for name, status in diagnosis.node_to_status.items()}
    assert sum(counts.values()) == len(reasons) == len(snapshot) - len(rows)
    return dict(zip(names, totals.tolist(), strict=True)), reasons


@pytest.mark.parametrize(
    ("configured", "batching", "shared"), [(True, True, True), (False, True, False), (True, False, False)]
)
async def test_pods_share_a_class_if_configuration_and_gate_allow_it(configured, batching, shared, cluster):
    gates = FeatureGates({"OpportunisticBatching": batching})
    scheduler = cluster.scheduler(SchedulerConfiguration(class_cache=configured), feature_gates=gates)
    assert (scheduler.snapshot.classes.number(Pod()) == scheduler.snapshot.classes.number(Pod())) is shared
    assert (scheduler.frameworks["default-scheduler"].filters._class_cache is not None) is shared


@pytest.mark.parametrize("seed", range(6))
async def test_decisions_are_equal_without_class_cache(seed, cluster):
    rng = random.Random(seed)
    cached, plain = (
        cluster.scheduler(SchedulerConfiguration(class_cache=class_cache), rng=rng) for class_cache in (True, False)
    )
    schedulers = (cached, plain)
    nodes: dict[str, Node] = {}
    placed: list[Pod] = []
    for number in range(120):
        step = rng.random()
        if step < 0.15 or len(nodes) < 4:
            node = random_node(rng, f"n{number}")
            nodes[node.metadata.name] = node
            for scheduler in schedulers:
                scheduler.cache.add_node(node)
        elif step < 0.25:
            name = rng.choice(list(nodes))
            changed = random_node(rng, name)
            for scheduler in schedulers:
                scheduler.cache.update_node(nodes[name], changed)
            nodes[name] = changed
        elif step < 0.3 and len(nodes) > 4:
            removed = nodes.pop(rng.choice(list(nodes)))
            for scheduler in schedulers:
                scheduler.cache.remove_node(removed)
        elif step < 0.4 and placed:
            pod = placed.pop(rng.randrange(len(placed)))
            for scheduler in schedulers:
                scheduler.cache.remove_pod(pod)
        info = PodInfo(random_pod(rng, number))
        feasible, reasons = decide(cached, info)
        assert (feasible, reasons) == decide(plain, info), f"seed {seed} step {number}"
        if feasible:
            best = max(feasible, key=lambda name: (feasible[name], name))
            pod = msgspec.structs.replace(info.pod, spec=msgspec.structs.replace(info.pod.spec, node_name=best))
            placed.append(pod)
            for scheduler in schedulers:
                scheduler.cache.add_pod(pod)


def filter_and_score(framework: Any, snapshot: Snapshot, info: PodInfo) -> tuple[list[int], list[int], dict[str, Any]]:
    """Return the feasible rows, their total scores, and the rejections of the other nodes."""
    state = CycleState()
    _, rejection, _ = framework.filters.run_pre_filter(state, info, snapshot)
    if rejection is not None:
        return [], [], {"": rejection}
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    rows = framework.filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
    by_plugin = diagnosis.node_to_status.plugins()
    reasons = dict(diagnosis.node_to_status.items())
    assert by_plugin == Counter(status.plugin for status in reasons.values())
    if len(rows) == 0:
        return [], [], reasons
    framework.scores.run_pre_score(state, info, snapshot, rows)
    return rows.tolist(), framework.scores.run_scores(state, info, snapshot, rows).tolist(), reasons


@QUICKLY
@given(cluster_objects=populated(), data=st.data())
def test_results_are_equal_without_class_cache(cluster_objects: Any, data: st.DataObject, plugin_cluster: Any) -> None:
    cluster = plugin_cluster(*cluster_objects)
    cached, plain = cluster.make_framework(), cluster.make_framework(class_cache=False)
    templates = [data.draw(pods(f"template-{number}")) for number in range(2)]
    names = st.sampled_from([info.name for info in cluster.snapshot.node_infos])
    for step in range(5):
        template = templates[data.draw(st.integers(0, 1))]
        incoming = PodInfo(renamed(template, f"new-{step}", ""))
        for number in range(data.draw(st.integers(0, 2), label="nominations")):  # the incoming one's own is the first
            pod = data.draw(pods(f"nominated-{data.draw(st.integers(0, 3))}")) if number else incoming.pod
            cluster.pods.put(pod.key, pod)
            cluster.nominator.add(PodInfo(with_priority(pod, data.draw(st.integers(-1, 1)))), data.draw(names))
        with_cache = filter_and_score(cached, cluster.snapshot, incoming)
        assert with_cache == filter_and_score(plain, cluster.snapshot, incoming)
        cluster.nominator.check()
        if with_cache[0]:
            chosen = cluster.snapshot.node_infos[with_cache[0][int(np.argmax(with_cache[1]))]].name
            cluster.cache.assume_pod(PodInfo(renamed(template, f"new-{step}", chosen)))
        cluster.refresh()


def with_priority(pod: Pod, priority: int) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


def renamed(pod: Pod, name: str, node_name: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node_name))


def test_least_recently_used_class_is_removed() -> None:
    cluster = PluginCluster([make_node("n")])
    cache = ClassCache(max_bytes=0)  # the minimum: 16 classes
    infos = [PodInfo(make_pod(f"p{number}", cpu=f"{number + 1}m")) for number in range(17)]
    first, second, *_ = results = [cache.results(info, cluster.snapshot) for info in infos[:16]]
    assert cache.results(infos[0], cluster.snapshot) is first
    cache.results(infos[16], cluster.snapshot)
    assert cache.results(infos[0], cluster.snapshot) is first
    assert cache.results(infos[1], cluster.snapshot) is not second
    assert len({id(entry) for entry in results}) == 16


def test_replicas_share_results_until_nodes_are_added() -> None:
    cluster, cache = PluginCluster([make_node("n")]), ClassCache()
    results = cache.results(PodInfo(make_pod("a")), cluster.snapshot)
    assert cache.results(PodInfo(make_pod("b")), cluster.snapshot) is results
    cluster.cache.add_pod(make_pod("placed", "n"))
    assert cache.results(PodInfo(make_pod("b")), cluster.refresh()) is results
    cluster.cache.add_node(make_node("m"))
    assert cache.results(PodInfo(make_pod("b")), cluster.refresh()) is not results


def test_compact_stores_equal_scores_once() -> None:
    equal, different = np.full(1000, 7, np.int64), np.arange(3)
    assert compact(equal).tolist() == equal.tolist()
    assert (compact(equal).strides, compact(equal).flags.writeable) == ((0,), False)
    assert compact(different) is different
    different.flags.writeable = False
    assert compact(different).flags.writeable
