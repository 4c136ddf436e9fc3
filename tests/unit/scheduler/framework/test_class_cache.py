"""With and without the class cache the same nodes pass, for the same reasons, with the same scores."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.recording.pod_recorder import NoopRecorder


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
    """(total score of each feasible node, reasons of each other one)."""
    framework, snapshot = scheduler.frameworks["default-scheduler"], scheduler.snapshot
    scheduler.cache.update_snapshot(snapshot)
    state, diagnosis = CycleState(), Diagnosis(NodeToStatus(snapshot))
    _, rejection, _ = framework.run_pre_filter(state, info, snapshot)
    assert rejection is None
    rows = framework.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
    framework.run_pre_score(state, info, snapshot, rows)
    totals = framework.run_scores(state, info, snapshot, rows).totals
    names = [snapshot.node_infos[row].name for row in rows.tolist()]
    counts = diagnosis.node_to_status.plugins()
    reasons = {name: (status.plugin, status.code, status.reasons) for name, status in diagnosis.node_to_status.items()}
    assert sum(counts.values()) == len(reasons) == len(snapshot) - len(rows)
    return dict(zip(names, totals.tolist(), strict=True)), reasons


@pytest.mark.parametrize("seed", range(6))
async def test_the_class_cache_changes_no_decision(seed, cluster, clock):
    rng = random.Random(seed)
    cached, plain = (
        Scheduler(
            cluster,
            cluster,
            config=SchedulerConfiguration(class_cache=class_cache),
            clock=clock,
            rng=rng,
            recorder=cluster,
            traces=NoopRecorder(),
        )
        for class_cache in (True, False)
    )
    both = (cached, plain)
    nodes: dict[str, Node] = {}
    placed: list[Pod] = []
    for number in range(120):
        step = rng.random()
        if step < 0.15 or len(nodes) < 4:
            node = random_node(rng, f"n{number}")
            nodes[node.metadata.name] = node
            for scheduler in both:
                scheduler.cache.add_node(node)
        elif step < 0.25:
            name = rng.choice(list(nodes))
            changed = random_node(rng, name)
            for scheduler in both:
                scheduler.cache.update_node(nodes[name], changed)
            nodes[name] = changed
        elif step < 0.3 and len(nodes) > 4:
            gone = nodes.pop(rng.choice(list(nodes)))
            for scheduler in both:
                scheduler.cache.remove_node(gone)
        elif step < 0.4 and placed:
            pod = placed.pop(rng.randrange(len(placed)))
            for scheduler in both:
                scheduler.cache.remove_pod(pod)
        info = PodInfo(random_pod(rng, number))
        feasible, reasons = decide(cached, info)
        assert (feasible, reasons) == decide(plain, info), f"seed {seed} step {number}"
        if feasible:
            best = max(feasible, key=lambda name: (feasible[name], name))
            pod = msgspec.structs.replace(info.pod, spec=msgspec.structs.replace(info.pod.spec, node_name=best))
            placed.append(pod)
            for scheduler in both:
                scheduler.cache.add_pod(pod)
