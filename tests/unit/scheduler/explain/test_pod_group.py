"""Explanations of pod groups: missing and gated pods, placements, permit, and shortages."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import DEVICE_CLASSES, RESOURCE_SLICES
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.types import default_configuration
from kubeloop.scheduler.explain.pending_pod import explain
from kubeloop.scheduler.explain.pod_group import GatedPod, explain_pod_group
from kubeloop.tracing.spans.pod_group_record import PodGroupAttemptFacts
from support.objects.devices import device, device_class, device_slice
from support.scheduling.scheduler_cluster import SchedulerCluster

pytestmark = pytest.mark.virtual_time

GANGS = {"GenericWorkload": True, "GangScheduling": True}
RACKS = GANGS | {"TopologyAwareWorkloadScheduling": True}


@pytest.fixture
async def cluster(clock):
    return SchedulerCluster(clock, FeatureGates(RACKS))


def profiles(gates):
    return {"gates": gates, "profiles": default_configuration(FeatureGates(gates)).profiles}


def add_pods(cluster, names, **spec):
    for name in names.split():
        cluster.pod(name, schedulingGroup={"podGroupName": "train"}, **spec)


def explained(scheduler):
    return explain_pod_group(scheduler, "default/train", scheduler.pod_group_cycle.failed.get("default/train"))


async def test_group_waits_for_min_count_pods(cluster, scheduling):
    cluster.node("n")
    cluster.pod_group("train", min_count=3)
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        assert explained(scheduler).summary == "it has no pods; minCount is 3"
        add_pods(cluster, "a b")
        await asyncio.sleep(1)
        explanation = explained(scheduler)
        assert explanation.summary == "it waits for pods: 2 of minCount 3 exist"
        assert explanation.gated == [], "the summary has the reason"
        add_pods(cluster, "c")
        await asyncio.sleep(1)
        explanation = explained(scheduler)
        assert explanation.summary == "all of its pods (3) are bound"
        for name in "abc":
            cluster.change_pod(f"default/{name}", status={"phase": "Succeeded"})
        await asyncio.sleep(1)
        assert explained(scheduler).summary == "it was scheduled, and its pods have ended"
    assert (explanation.pods, explanation.bound, explanation.last_attempt) == (3, 3, None)


async def test_explanation_of_a_member_refers_to_the_group(cluster, scheduling):
    cluster.node("n", cpu="2")
    cluster.pod_group("train", min_count=3)
    add_pods(cluster, "a b", cpu="1")
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        explanation = explain(scheduler, "default/a")
        assert explanation.summary == "the pod is gated by GangScheduling"
        assert explanation.advice == ["create the PodGroup or the missing pods: see kubeloop explain podgroup/NAME"]
        add_pods(cluster, "c", cpu="1")
        await asyncio.sleep(3)
        assert explain(scheduler, "default/a").summary == (
            "the pod fits on 1 of 1 nodes now; it is scheduled with its group: see kubeloop explain podgroup/train"
        )


async def test_missing_pod_group_is_stated(cluster, scheduling):
    add_pods(cluster, "a b")
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        explanation = explained(scheduler)
        assert (explanation.exists, explanation.summary) == (True, "there is no such PodGroup; 2 pods wait for it")
        assert not explain_pod_group(scheduler, "default/other", None).exists


async def test_gated_pods_are_listed(cluster, scheduling):
    cluster.node("n")
    cluster.pod_group("train", min_count=2)
    add_pods(cluster, "a")
    add_pods(cluster, "b", schedulingGates=[{"name": "example.com/quota"}])
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        explanation = explained(scheduler)
    assert explanation.summary == "1 pod of 2 is gated"
    reason = "waiting for scheduling gates: [example.com/quota]"
    assert explanation.gated == [GatedPod("b", "SchedulingGates", reason)]


async def test_group_that_does_not_fit_has_a_shortage_and_a_pod_to_explain(cluster, scheduling):
    cluster.node("n", cpu="2")
    cluster.node("cordoned", cpu="8", unschedulable=True)
    cluster.pod_group("train", min_count=3)
    add_pods(cluster, "a b c", cpu="1")
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(3)
        explanation = explained(scheduler)
    assert explanation.summary.startswith("it cannot be scheduled: 2 of 3 pods fit; c: 0/2 nodes are available: ")
    assert explanation.unfit_pod == "default/c"
    assert explanation.shortages == {"cpu": 1000}
    assert "preemption: 0/2 nodes are available: " in explanation.last_attempt.preemption
    assert "preemption" not in explanation.last_attempt.message
    assert explanation.to_json()["lastAttempt"]["result"] == "unschedulable"


async def test_devices_that_provide_a_resource_are_no_shortage(cluster, scheduling):
    cluster.node("n")
    cluster.put(DEVICE_CLASSES, device_class(extendedResourceName="example.com/gpu"))
    cluster.put(RESOURCE_SLICES, device_slice("n", device("d0"), device("d1")))
    cluster.pod_group("train", min_count=3)
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]
    for name in "abc":
        cluster.pod(name, schedulingGroup={"podGroupName": "train"}, containers=containers)
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(3)
        explanation = explained(scheduler)
    assert explanation.shortages == {"example.com/gpu": 1}


async def test_placements_have_a_reason_each(cluster, scheduling):
    for rack, cpus in {"r1": ("1", "1"), "r2": ("2",), "r3": ("500m",)}.items():
        for number, cpu in enumerate(cpus):
            cluster.node(f"{rack}-{number}", cpu=cpu, labels={"rack": rack})
    cluster.pod_group("train", min_count=3, topology_key="rack")
    add_pods(cluster, "a b c", cpu="1")
    async with scheduling(**profiles(RACKS)) as scheduler:
        await asyncio.sleep(3)
        explanation = explained(scheduler)
    assert explanation.topology_key == "rack"
    placements = explanation.last_attempt.placements
    assert [(placement.name, placement.feasible_pods) for placement in placements] == [("r1", 2), ("r2", 2), ("r3", 0)]
    assert placements[0].message.startswith("2 of 3 pods fit; c: 0/2 nodes are available: 2 Insufficient cpu.")
    assert placements[2].message.startswith("0 of 3 pods fit; a: 0/1 nodes are available: 1 Insufficient cpu.")
    assert explanation.summary.startswith("it cannot be scheduled: 0/3 placements are available")
    assert explanation.shortages == {"cpu": 1000}, "the rack with the most has 2 of 3"


async def test_pods_that_wait_on_permit_are_listed(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod_group("train", min_count=2)
    add_pods(cluster, "a b", cpu="1")
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        pod = scheduler.listers.pods.get("default/a")
        assumed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n"))
        scheduler.waiting_pods.add(PodInfo(assumed), {"GangScheduling": 300.0, "Quota": 60.0})
        await asyncio.sleep(10)
        explanation = explained(scheduler)
        scheduler.waiting_pods.remove(pod.metadata.uid)
    assert explanation.summary == "1 pod with a node waits on permit for the others"
    (wait,) = explanation.permit
    assert (wait.pod, wait.node, wait.timeout_seconds) == ("a", "n", 60.0)
    assert wait.waited_seconds == pytest.approx(10)


@pytest.mark.parametrize(
    ("result", "summary"),
    [
        ("preempting", "it waits until preempted pods have ended"),
        ("error", "it cannot be scheduled: out of order"),
        ("scheduled", "it fits now; its next attempt is due"),
    ],
)
async def test_summary_follows_the_last_attempt(result, summary, cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod_group("train", min_count=2)
    add_pods(cluster, "a b", cpu="1")
    async with scheduling(**profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        facts = PodGroupAttemptFacts(result, 2, message="out of order")
        explanation = explain_pod_group(scheduler, "default/train", facts)
        assert explanation.summary == summary
        assert explain_pod_group(scheduler, "default/train", None).summary == "its next attempt is due"
