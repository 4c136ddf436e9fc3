"""Why a plan does not fit: the lines that are printed, by cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.objects.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_QUOTAS,
    Resource,
)
from kubeloop.planning.plan_changes import PlanChanges, parse_scale
from kubeloop.planning.planner import compute_plan
from kubeloop.planning.texts import plan_text
from kubeloop.process.manifests import Manifest
from kubeloop.recording.changes import ClusterState
from kubeloop.recording.resources import LIMIT_RANGES, VALIDATING_WEBHOOKS
from support.objects.planned_clusters import add_deployment, add_node, cluster, deployment, new_state, pod_template

JSON = dict[str, Any]
Case = tuple[ClusterState, PlanChanges]
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
WITH_DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def put(state: ClusterState, resource: Resource[Any], name: str, **fields: Any) -> None:
    """Add an object of the namespace shop."""
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, **fields.pop("metadata", {})}
    if resource.namespaced:
        metadata["namespace"] = "shop"
    state.put(resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields})


def nodes(count: int = 3) -> ClusterState:
    state = new_state()
    for number in range(count):
        add_node(state, f"pool-a-{number}")
    return state


def apply(*manifests: JSON) -> PlanChanges:
    return PlanChanges(manifests=[Manifest("web.yaml", manifest) for manifest in manifests])


def new_image(state: ClusterState, **template: Any) -> Case:
    """Return the rollout of another image on three nodes with a pod each."""
    manifest = deployment(replicas=3, template=pod_template(**template))
    add_deployment(state, manifest, ["pool-a-0", "pool-a-1", "pool-a-2"])
    changed = pod_template(**template)
    changed["spec"]["containers"][0]["image"] = "web:2"
    return state, apply({**manifest, "spec": {**manifest["spec"], "template": changed}})


def anti_affinity() -> Case:
    return new_image(nodes(), affinity=APART)


def anti_affinity_with_one_unavailable() -> Case:
    state, changes = new_image(nodes(), affinity=APART)
    changes.manifests[0].body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    return state, changes


def host_port() -> Case:
    state, changes = new_image(nodes())
    container = changes.manifests[0].body["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    for pod in state.of(PODS).values():
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    return state, changes


def new_deployment(state: ClusterState, replicas: int = 1, **template: Any) -> Case:
    return state, apply(deployment("db", replicas=replicas, template=pod_template(app="db", **template)))


def claim_that_does_not_exist() -> Case:
    return new_deployment(nodes(), **WITH_DATA)


def add_claim(state: ClusterState, **spec: Any) -> None:
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    phase = "Bound" if "volumeName" in spec else "Pending"
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if phase == "Bound" else {}
    metadata = {"annotations": annotations}
    put(state, PERSISTENT_VOLUME_CLAIMS, "data", metadata=metadata, spec=request, status={"phase": phase})


def claim_without_volume() -> Case:
    state = nodes()
    add_claim(state, storageClassName="")
    return new_deployment(state, **WITH_DATA)


def add_volume(state: ClusterState, **spec: Any) -> None:
    add_claim(state, storageClassName="", volumeName="disk")
    claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    put(
        state, PERSISTENT_VOLUMES, "disk", status={"phase": "Bound"},
        spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim, **spec},
    )  # fmt: skip


def volume_of_another_zone() -> Case:
    state = nodes()
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["c"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    add_volume(state, nodeAffinity=affinity, hostPath={"path": "/data"})
    return new_deployment(state, **WITH_DATA)


def too_many_volumes() -> Case:
    state = nodes(1)
    add_volume(state, csi={"driver": "disk.example.com", "volumeHandle": "1"})
    put(state, CSI_DRIVERS, "disk.example.com", spec={"attachRequired": True})
    driver = {"name": "disk.example.com", "nodeID": "0", "allocatable": {"count": 0}}
    put(state, CSI_NODES, "pool-a-0", spec={"drivers": [driver]})
    return new_deployment(state, **WITH_DATA)


def quota() -> Case:
    state = nodes()
    put(state, RESOURCE_QUOTAS, "few", spec={"hard": {"pods": "2"}}, status={"hard": {"pods": "2"}})
    return new_deployment(state, replicas=4)


def limit_range() -> Case:
    state = nodes()
    put(state, LIMIT_RANGES, "small", spec={"limits": [{"type": "Container", "max": {"cpu": "500m"}}]})
    return new_deployment(state)


def budget() -> Case:
    state = nodes()
    add_deployment(state, deployment(), ["pool-a-0", "pool-a-1"])
    selector = {"matchLabels": {"app": "web"}}
    put(state, POD_DISRUPTION_BUDGETS, "all", spec={"maxUnavailable": 0, "selector": selector})
    return state, PlanChanges(drain=["pool-a-0"])


def webhook() -> Case:
    state = nodes()
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    put(state, VALIDATING_WEBHOOKS, "policy", webhooks=[{"name": "pods.example.com", "rules": [rule]}])
    add_deployment(state, deployment(), ["pool-a-0", "pool-a-1"])
    return state, PlanChanges(scale=[parse_scale("deploy/web=3")])


@pytest.mark.parametrize(
    ("case", "fits", "lines"),
    [
        pytest.param(anti_affinity, False, [
            "1 pending: 0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.",
            "the rollout never completes",
            "1 pod is without a node",
            "maxUnavailable 25% of 3 pods is 0, so that no old pod makes room for a new one",
        ], id="anti-affinity, and maxUnavailable rounds to 0"),
        pytest.param(anti_affinity_with_one_unavailable, True, ["3 of 3 new pods placed"], id="room by eviction"),
        pytest.param(host_port, False, [
            "didn't have free ports for the requested pod ports.",
            "maxUnavailable 25% of 3 pods is 0, so that no old pod makes room for a new one",
        ], id="host port"),
        pytest.param(claim_that_does_not_exist, False, ['persistentvolumeclaim "data" not found'], id="no claim"),
        pytest.param(claim_without_volume, False, [
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims",
        ], id="claim without volume"),
        pytest.param(volume_of_another_zone, False, [
            "3 node(s) didn't match PersistentVolume's node affinity",
        ], id="volume of another zone"),
        pytest.param(too_many_volumes, False, ["1 node(s) exceed max volume count"], id="volumes per node"),
        pytest.param(quota, False, [
            "2 of 2 new pods placed",
            "pods cannot be created: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2",
        ], id="quota"),
        pytest.param(limit_range, False, [
            "pods cannot be created: maximum cpu usage per Container is 500m",
        ], id="limit range"),
        pytest.param(budget, False, [
            "! drain of pool-a-0 never ends: shop/web-5d4-0: Cannot evict pod as it would violate the pod's disruption",
        ], id="budget"),
        pytest.param(webhook, True, [
            "warning: cluster.kubeloop: ValidatingWebhookConfiguration policy, pods.example.com: it is not called"
            " for pods in shop; it may refuse what the plan creates",
        ], id="webhook"),
    ],
)  # fmt: skip
def test_text_says_why(case: Callable[[], Case], fits: bool, lines: list[str]):
    state, changes = case()
    plan = compute_plan(cluster(state), changes)
    text = plan_text(plan)
    assert plan.fits == fits, text
    for line in lines:
        assert line in text, text


def test_maximum_unavailable_is_no_reason_for_a_new_deployment():
    state, changes = new_deployment(nodes(), replicas=3, cpu="5")
    assert "maxUnavailable" not in plan_text(compute_plan(cluster(state), changes))
