"""Figures of pods and nodes from the states of their objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.replay.measurement import Measurement, nodes_needed, pool_of, reasons_of


def node(name: str, cpu: str = "4", **labels: str) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def pod(uid: str, cpu: str = "1", *, on: str = "", phase: str = "Pending", message: str = "") -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}] if message else []
    container = {"name": "a", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [container]}
    if on:
        spec["nodeName"] = on
    metadata = {"name": uid, "namespace": "default", "uid": uid}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": conditions}}


def measurement() -> Measurement:
    return Measurement(lambda pod: f"pod {pod['metadata']['name']}")


def test_times_of_a_pod():
    measured = measurement()
    measured.pod_changed(1.0, pod("a"))
    measured.pod_changed(3.0, pod("a", message="0/2 nodes are available: 2 Insufficient cpu. preemption: none"))
    measured.pod_changed(8.0, pod("a", on="n"))
    measured.pod_changed(9.0, pod("a", on="n", phase="Failed"))
    measured.pod_deleted(12.0, pod("a", on="n"))
    run = measured.runs["a"]
    assert (run.created, run.bound, run.ended, run.deleted, run.failed) == (1.0, 8.0, 9.0, 12.0, True)
    assert run.waits == {"Insufficient cpu": 5.0}


def test_samples_count_pods_and_requests_until_they_end():
    measured = measurement()
    measured.node_changed(node("n"))
    measured.pod_changed(1.0, pod("a", on="n"))
    measured.pod_changed(1.0, pod("b"))
    measured.sample(2.0)
    measured.pod_changed(3.0, pod("a", on="n", phase="Succeeded"))
    measured.sample(4.0)
    before, after = measured.samples
    assert (before.created, before.bound, before.pending, before.running) == (2, 1, 1, 1)
    assert (after.pending, after.running) == (1, 0)
    pool = "4 cpu, 8Gi"
    assert before.pools[pool].requested == {"cpu": 1000, "memory": 0, "pods": 1}
    assert after.pools[pool].requested == {"cpu": 0, "memory": 0, "pods": 0}


def test_extended_resources_are_measured():
    measured = measurement()
    gpus = node("n")
    gpus["status"]["allocatable"] |= {"example.com/gpu": "4", "ephemeral-storage": "1Gi"}
    measured.node_changed(gpus)
    on_gpu = pod("a", on="n")
    on_gpu["spec"]["containers"][0]["resources"]["requests"] |= {"example.com/gpu": "3", "ephemeral-storage": "1"}
    measured.pod_changed(1.0, on_gpu)
    measured.sample(2.0)
    (use,) = measured.samples[0].pools.values()
    assert use.requested == {"cpu": 1000, "memory": 0, "pods": 1, "example.com/gpu": 3}
    assert use.allocatable == {"cpu": 4000, "memory": 8 << 30, "pods": 10, "example.com/gpu": 4}


@pytest.mark.parametrize(
    ("cpu", "memory", "pool"),
    [("4", "8Gi", "4 cpu, 8Gi"), ("4000m", "8192Mi", "4 cpu, 8Gi"), ("3920m", "7500Mi", "3.92 cpu, 7.324Gi")],
)
def test_pool_of_a_size_does_not_depend_on_its_units(cpu, memory, pool):
    sized = node("n", cpu)
    sized["status"]["allocatable"]["memory"] = memory
    assert pool_of(sized) == pool


def test_fragmented_is_the_share_of_free_cpu_without_room_for_a_usual_pod():
    measured = measurement()
    for name in ("full", "free"):
        measured.node_changed(node(name))
    for number in range(3):
        measured.pod_changed(0.0, pod(f"p{number}", "1100m", on="full"))
    measured.sample(1.0)
    assert measured.samples[0].pools["4 cpu, 8Gi"].fragmented == pytest.approx(700 / 4700)


@pytest.mark.parametrize(
    ("pods", "needed"),
    [([], 0), ([3000, 3000, 1000, 1000], 2), ([2100, 2100, 1900], 2), ([100] * 25, 3), ([9000], 1)],
    ids=["none", "two fill one", "decreasing", "limit of pods", "larger than a node"],
)
def test_nodes_needed(pods: list[int], needed: int):
    assert nodes_needed([{"cpu": cpu} for cpu in pods], {"cpu": 4000, "pods": 10}) == needed


def test_pool_is_the_label_of_a_provider_or_the_size():
    assert pool_of(node("n")) == "4 cpu, 8Gi"
    assert pool_of({"metadata": {"labels": {"karpenter.sh/nodepool": "spot"}}, "status": {}}) == "spot"


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        (
            "0/14 nodes are available: 5 node(s) had untolerated taint(s), 9 Insufficient cpu. preemption: 0/14 nodes",
            ["Insufficient cpu", "node(s) had untolerated taint(s)"],
        ),
        ("Unschedulable", ["Unschedulable"]),
        ("", ["not scheduled"]),
    ],
)
def test_reasons_of_a_message(message: str, reasons: list[str]):
    assert reasons_of(message) == reasons
