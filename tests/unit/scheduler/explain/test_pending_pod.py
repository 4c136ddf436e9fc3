"""Explanations of pending pods: obstacles per node, preemption and advice."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kubeloop.scheduler.explain.pending_pod import explain, explain_in_slices, gating_message
from support.objects.devices import claim, device, device_class, device_slice, request
from support.scheduling.plugin_cluster import make_node, make_pod

pytestmark = pytest.mark.virtual_time


async def test_all_obstacles_of_all_nodes(cluster, scheduling):
    cluster.node("cordoned", cpu="1", unschedulable=True)
    cluster.node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.5)
        explanation = explain(scheduler, "default/p")
    assert explanation.queue == "unschedulable"
    assert explanation.attempts == 1
    plugins = {node.node: [obstacle.plugin for obstacle in node.obstacles] for node in explanation.nodes}
    assert plugins == {"cordoned": ["NodeUnschedulable", "NodeResourcesFit"], "tainted": ["TaintToleration"]}
    assert explanation.message == (
        "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )
    assert explanation.shortages == {"cpu": 1000}
    assert explanation.advice == [
        "make a node schedulable again (kubectl uncordon)",
        "request less, add a node, or free resources on a node",
        "add a toleration to the pod, or remove a taint from a node: gpu:NoSchedule (on 1 of 2 nodes)",
    ]
    assert explanation.preemption.startswith("preemption cannot help")


async def test_shortage_is_the_smallest_of_all_nodes(cluster, scheduling):
    cluster.node("busy", cpu="4")
    cluster.node("small", cpu="500m")
    cluster.pod("running", cpu="3", nodeName="busy")
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="3500m")
        await asyncio.sleep(0.5)
        explanation = explain(scheduler, "default/p")
    assert explanation.shortages == {"cpu": 2500}


async def test_advice_names_taints_and_labels(cluster, scheduling):
    for number in range(3):
        cluster.node(f"n{number}", labels={"disk": "ssd"} if number else {})
    taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    cluster.node("batch", labels={"disk": "ssd", "gpu": "yes"}, taints=taints)
    async with scheduling() as scheduler:
        cluster.pod("p", nodeSelector={"disk": "ssd", "gpu": "yes"})
        await asyncio.sleep(0.5)
        explanation = explain(scheduler, "default/p")
    assert explanation.advice == [
        "relax the pod's nodeSelector or node affinity, or label a node accordingly: "
        "gpu=yes (on 1 of 4 nodes); disk=ssd (on 3 of 4 nodes)",
        "add a toleration to the pod, or remove a taint from a node: dedicated=batch:NoSchedule (on 1 of 4 nodes)",
    ]


async def test_advice_obeys_feature_gates(cluster, scheduling):
    for number in range(3):
        taints = [{"key": "sla", "value": str(number), "effect": "NoSchedule"}]
        cluster.node(f"n{number}", cpu="1", taints=taints)
    gates = {
        "TaintTolerationComparisonOperators": True,
        "PodLevelResources": False,
        "InPlacePodLevelResourcesVerticalScaling": False,
    }
    async with scheduling(gates=gates) as scheduler:
        cluster.pod(
            "p",
            cpu="2",
            tolerations=[{"key": "sla", "operator": "Gt", "value": "0"}],
            resources={"requests": {"cpu": "3"}},
        )
        await asyncio.sleep(0.5)
        explanation = explain(scheduler, "default/p")
    assert sorted(explanation.advice) == [
        "add a toleration to the pod, or remove a taint from a node: sla=0:NoSchedule (on 1 of 3 nodes)",
        "request less, add a node, or free resources on a node: no node has more than 1 of cpu, the pod requests 2",
    ]


async def explain_pod(cluster, scheduling, **spec):
    async with scheduling() as scheduler:
        cluster.pod("p", **spec)
        await asyncio.sleep(0.5)
        return explain(scheduler, "default/p")


async def test_advice_for_required_node_affinity(cluster, scheduling):
    cluster.node("n", labels={"disk": "ssd"})
    cluster.node("m")
    expressions = [
        {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
        {"key": "generation", "operator": "Gt", "values": ["3"]},
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["mars"]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}, {"matchExpressions": expressions[1:]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    explanation = await explain_pod(cluster, scheduling, affinity=affinity)
    assert explanation.advice == [
        "relax the pod's nodeSelector or node affinity, or label a node accordingly: "
        "generation>3 (on 0 of 2 nodes); disk in (nvme,ssd) (on 1 of 2 nodes)"
    ]
    cluster.delete_pod("default/p")
    terms["nodeSelectorTerms"] = [{"matchFields": fields}]
    explanation = await explain_pod(cluster, scheduling, affinity=affinity)
    assert explanation.advice[0].endswith(": metadata.name=mars (on 0 of 2 nodes)")


async def test_advice_if_no_node_is_large_enough(cluster, scheduling):
    cluster.node("n", cpu="4", memory="8Gi")
    requests = {"cpu": "5500m", "memory": "1Gi", "example.com/gpu": "1"}
    explanation = await explain_pod(
        cluster, scheduling, containers=[{"name": "c", "resources": {"requests": requests}}]
    )
    assert explanation.advice == [
        "request less, add a node, or free resources on a node: "
        "no node has more than 4 of cpu, the pod requests 5500m; "
        "no node has any example.com/gpu, the pod requests 1"
    ]


async def test_advice_for_pod_affinity(cluster, scheduling):
    cluster.node("n")
    cluster.pod("db", nodeName="n", metadata={"labels": {"app": "db"}})

    def term(app):
        return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}

    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web")]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("db")]},
    }
    explanation = await explain_pod(cluster, scheduling, affinity=affinity)
    assert explanation.advice == [
        "relax the (anti-)affinity to pods, or make room where it would be met: "
        "affinity to app=web by kubernetes.io/hostname: no such pods; "
        "anti-affinity to app=db by kubernetes.io/hostname: such pods run (on 1 of 1 nodes)"
    ]


@pytest.mark.parametrize(
    ("spec", "message", "advice"),
    [
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
            'persistentvolumeclaim "data" not found',
            "create the missing object",
            id="missing claim",
        ),
    ],
)
async def test_advice_for_problems_independent_of_nodes(cluster, scheduling, spec, message, advice):
    cluster.node("n")
    explanation = await explain_pod(cluster, scheduling, **spec)
    assert explanation.summary == message
    assert explanation.advice == [advice]
    assert cluster.events[0][2].startswith(f"0/1 nodes are available: {message}.")


async def test_missing_resource_claim(cluster, scheduling):
    cluster.node("n")
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    async with scheduling() as scheduler:
        cluster.pod("p", resourceClaims=claims)
        async with asyncio.timeout(30):
            while (explanation := explain(scheduler, "default/p")).message != MISSING_CLAIM:
                await asyncio.sleep(0.1)
    assert explanation.summary == "the pod is gated by DynamicResources"
    assert explanation.advice == ["create the missing ResourceClaim"]
    assert explanation.details == []


async def test_devices_that_are_missing(cluster, scheduling):
    cluster.node("n")
    cluster.put(DEVICE_CLASSES, device_class())
    cluster.put(RESOURCE_SLICES, device_slice("n", device("d")))
    cluster.put(RESOURCE_CLAIMS, claim("gpus", request(count=2)))
    async with scheduling() as scheduler:
        cluster.pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpus"}])
        async with asyncio.timeout(30):
            while not (explanation := explain(scheduler, "default/p")).details:
                await asyncio.sleep(0.1)
    assert explanation.message == "0/1 nodes are available: 1 cannot allocate all claims."
    assert explanation.details == ["default/gpus, request r: needs 2 devices; at most 1 of one node can be used"]


async def test_extended_resource_that_devices_provide_is_not_short(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.put(DEVICE_CLASSES, device_class(extendedResourceName="example.com/gpu"))
    cluster.put(RESOURCE_SLICES, device_slice("n", device("d")))
    resources = {"requests": {"cpu": "2", "example.com/gpu": "2"}}
    async with scheduling() as scheduler:
        cluster.pod("p", containers=[{"name": "c", "image": "i", "resources": resources}])
        async with asyncio.timeout(30):
            while not (explanation := explain(scheduler, "default/p")).details:
                await asyncio.sleep(0.1)
    assert explanation.shortages == {"cpu": 1000}
    assert [obstacle.reasons for obstacle in explanation.nodes[0].obstacles] == [
        ("Insufficient cpu",),
        ("cannot allocate all claims",),
    ]


MISSING_CLAIM = 'could not find ResourceClaim "default/gpu"'


async def test_nodes_where_preemption_helps(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod("low", cpu="1", nodeName="n", priority=1)
    async with scheduling() as scheduler:
        cluster.pod("high", cpu="1", priority=10, schedulingGates=[{"name": "later"}])
        await asyncio.sleep(0.1)
        assert explain(scheduler, "default/high").summary == "the pod is gated by SchedulingGates"
        cluster.pod("non-preempting", cpu="1", priority=5, preemptionPolicy="Never")
        await asyncio.sleep(0.1)
        explanation = explain(scheduler, "default/non-preempting")
        assert [node.preemption_helps for node in explanation.nodes] == [True]
        assert explanation.preemption == "the pod may not preempt others (preemptionPolicy: Never)"


async def test_gated_pod_and_pod_in_backoff(cluster, scheduling):
    cluster.node("n")
    cluster.server.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "refused", "not you") if path.endswith("/binding") else None
    )
    async with scheduling() as scheduler:
        cluster.pod("gated", schedulingGates=[{"name": "a"}, {"name": "b"}])
        cluster.pod("refused")
        await asyncio.sleep(0.1)
        assert explain(scheduler, "default/gated").message == "waiting for scheduling gates: [a b]"
        explanation = explain(scheduler, "default/refused")
    assert explanation.queue == "backoff"
    assert explanation.attempts == 1
    assert 0 < explanation.retry_seconds <= 1
    assert explanation.summary == "the pod fits on 1 of 1 nodes now; its next attempt is due"
    document = explanation.to_json()
    assert document["retrySeconds"] == explanation.retry_seconds
    assert document["rejectedBy"] == ()
    assert document["nodes"] == [{"node": "n", "obstacles": [], "preemptionHelps": False}]


async def test_last_attempt_and_nomination_from_status(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.pod("low", cpu="1", nodeName="n", terminationGracePeriodSeconds=30)
    async with scheduling() as scheduler:
        conditions = [
            {"type": "Ready", "status": "False", "reason": "other"},
            {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "no answer"},
        ]
        gates = [{"name": "g"}]  # so that the scheduler does not change the status
        cluster.pod("p", cpu="1", priority=1, schedulingGates=gates)
        cluster.change_pod("default/p", status={"nominatedNodeName": "n", "conditions": conditions})
        await asyncio.sleep(0.1)
        assert explain(scheduler, "default/p").last_attempt == "SchedulerError: no answer"
        cluster.change_pod("default/p", schedulingGates=[])
        await asyncio.sleep(0.1)
        explanation = explain(scheduler, "default/p")
        assert explanation.preemption == "preemption is making room on n, the pod's nominated node"


async def test_nodes_excluded_by_prefilter_count_in_message(cluster, scheduling):
    cluster.node("a")
    cluster.node("b", cpu="1")
    cluster.node("c")
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    async with scheduling() as scheduler:
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        cluster.pod("p", cpu="2", affinity=affinity)
        await asyncio.sleep(0.5)
        explanation = explain(scheduler, "default/p")
        assert explanation.message == cluster.events[0][2].partition(" no new claims")[0]
    assert {node.node: node.obstacles[0].plugin for node in explanation.nodes} == {
        "a": "NodeAffinity",
        "b": "NodeResourcesFit",
        "c": "NodeAffinity",
    }


async def test_pods_that_are_not_pending(cluster, scheduling):
    cluster.node("n")
    async with scheduling() as scheduler:
        cluster.pod("bound")
        cluster.pod("theirs", schedulerName="theirs")
        await asyncio.sleep(0.5)
        assert explain(scheduler, "default/bound").summary == "the pod is bound to n"
        assert explain(scheduler, "default/theirs").summary == 'the pod waits for another scheduler, "theirs"'
        assert explain(scheduler, "default/none").summary == "there is no such pod"


async def test_explanation_in_slices_uses_one_snapshot(cluster, scheduling):
    existing = []
    for number in range(120):
        cluster.node(f"n{number:03}", cpu="1", labels={"zone": "ab"[number % 2]})
        existing.append(cluster.pod(f"existing-{number}", cpu="1", nodeName=f"n{number:03}", labels={"app": "x"}))
    anti = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    async with scheduling() as scheduler:
        cluster.pod(
            "p",
            cpu="1",
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}},
            topologySpreadConstraints=[spread],
        )
        await asyncio.sleep(0.5)
        expected = explain(scheduler, "default/p")
        iterations = 0
        explaining = asyncio.create_task(explain_in_slices(scheduler, "default/p"))
        while not explaining.done():
            iterations += 1
            await asyncio.sleep(0)
            if iterations == 2:  # the cluster and the scheduler's snapshot change meanwhile
                for number in range(0, 120, 2):
                    scheduler.cache.remove_pod(existing[number])
                    scheduler.cache.add_node(make_node(f"new-{number}"))
                scheduler.cache.update_snapshot(scheduler.snapshot)
        in_slices = await explaining
        assert iterations > 2
        assert in_slices == expected
        assert len(scheduler.snapshot) == 180


async def test_unbound_claim_is_named_with_its_cause(cluster, scheduling):
    cluster.node("n")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data", "namespace": "default"}, "spec": spec})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    explanation = await explain_pod(cluster, scheduling, volumes=volumes)
    assert explanation.summary == "pod has unbound immediate PersistentVolumeClaims"
    assert explanation.details == [
        "the claim data is not bound: it names no StorageClass, and there is no default StorageClass"
    ]
    (advice,) = explanation.advice
    assert advice.startswith("create a default StorageClass")


async def test_pod_with_the_name_of_a_missing_node_is_not_bound(cluster, scheduling):
    cluster.node("n")
    cluster.pod("stray", nodeName="gone")
    cluster.pod("bound", nodeName="n")
    cluster.put(PODS, {"metadata": {"name": "done"}, "spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}})
    async with scheduling() as scheduler:
        await asyncio.sleep(0.5)
        assert "there is no such node" in explain(scheduler, "default/stray").summary
        assert explain(scheduler, "default/bound").summary == "the pod is bound to n"
        assert explain(scheduler, "default/done").summary in ("there is no such pod", "the pod has ended: Succeeded")
        assert explain(scheduler, "default/stray", {"nodes"}).summary == "the pod is bound to gone"


async def test_pod_whose_binding_is_in_flight(cluster, scheduling):
    cluster.node("n")
    explanations = []
    async with scheduling() as scheduler:
        cluster.server.transport.on_send = lambda request: (
            explanations.append(explain(scheduler, "default/p")) if request.path.endswith("/binding") else None
        )
        cluster.pod("p")
        await asyncio.sleep(0.5)
    (explanation,) = explanations
    assert explanation.queue == "in flight"
    assert explanation.summary == "the pod is being bound to n"
    assert explanation.nodes == []


async def test_message_of_a_gate_that_no_longer_applies_is_empty(cluster, scheduling):
    cluster.node("n")
    async with scheduling() as scheduler:
        cluster.pod("gated", schedulingGates=[{"name": "a"}])
        await asyncio.sleep(0.1)
        _, queued = scheduler.queue.get("default/gated")
        gated, free = queued.info.pod, make_pod("gated")
        assert gating_message(scheduler, gated, queued) == "waiting for scheduling gates: [a]"
        assert gating_message(scheduler, free, queued) == ""


async def test_pod_in_flight_is_explained_as_if_it_waited(cluster, scheduling):
    """Its attempt has begun, but it has no node yet."""
    cluster.node("n", cpu="1")
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.5)
        (pod,) = cluster.pods()
        scheduler.queue.delete(pod)
        assert explain(scheduler, "default/p").queue == ""
        scheduler.queue.in_flight.start(pod.metadata.uid, pod.key)
        explanation = explain(scheduler, "default/p")
    assert explanation.queue == "in flight"
    assert explanation.message == "0/1 nodes are available: 1 Insufficient cpu."
