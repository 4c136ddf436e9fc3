"""kubeloop/planning/planner.py: plans of small clusters, as users ask for them."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.kube.objects.resources import (
    CRON_JOBS,
    HORIZONTAL_POD_AUTOSCALERS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from kubeloop.kube.user_error import UserError
from kubeloop.planning.plan_changes import PlanChanges, parse_scale
from kubeloop.planning.planner import compute_plan
from kubeloop.process.manifests import Manifest
from kubeloop.recording.resources import MUTATING_WEBHOOKS
from kubeloop.scheduler.attempts.scheduling_cycle import SchedulingCycle
from support.objects.planned_clusters import (
    add_deployment,
    add_node,
    add_pod,
    bare_pod,
    cluster,
    deployment,
    new_state,
    pod_template,
)


def planned(state, *manifests, **changes):
    read = [Manifest(f"file.yaml, document {number}", body) for number, body in enumerate(manifests, start=1)]
    if "scale" in changes:
        changes["scale"] = [parse_scale(changes["scale"])]
    return compute_plan(cluster(state), PlanChanges(manifests=read, **changes))


def shop(nodes=3, replicas=2, **template):
    """Return a cluster with a Deployment web, its pods one per node."""
    state = new_state()
    for number in range(nodes):
        add_node(state, f"pool-a-{number}")
    manifest = deployment(replicas=replicas, template=pod_template(**template))
    add_deployment(state, manifest, [f"pool-a-{number % nodes}" for number in range(replicas)])
    return state, manifest


def test_nothing_changes_without_changes():
    state, _ = shop()
    plan = planned(state)
    assert (plan.changes, plan.workloads, plan.fits, plan.findings) == ([], [], True, [])
    assert (plan.nodes_before, plan.nodes_after) == (3, 3)
    assert plan.resources["cpu"].requested_before == plan.resources["cpu"].requested_after == 2_000
    assert plan.resources["cpu"].allocatable_after == 12_000


def test_applying_the_same_manifest_again_changes_nothing():
    state, manifest = shop()
    plan = planned(state, manifest)
    assert plan.changes == []
    assert [(workload.created, workload.deleted) for workload in plan.workloads] == [(0, 0)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(lambda c: c.update(image="web:1.5"), "containers.app.image web:1.4 -> web:1.5", id="image"),
        pytest.param(
            lambda c: c["env"][0].update(value="test"), "containers.app environment, command or mounts", id="env"
        ),
        pytest.param(lambda c: c.pop("env"), "containers.app environment, command or mounts", id="no env"),
    ],
)
def test_changed_template_is_rolled_out_with_the_recorded_start_time(change, field):
    state, manifest = shop()
    manifest = msgspec.convert(msgspec.to_builtins(manifest), dict)
    change(manifest["spec"]["template"]["spec"]["containers"][0])
    plan = planned(state, manifest)
    (changed,) = plan.changes
    assert (changed.action, changed.kind, changed.name, changed.fields) == ("change", "Deployment", "web", [field])
    (workload,) = plan.workloads
    assert (workload.created, workload.deleted, workload.placed, workload.rollout) == (2, 2, 2, "complete")
    assert 20 <= workload.seconds < 60  # two pods, one after the other, each ready after 10 s
    assert workload.waits[0] == "readiness 10 s"
    assert plan.fits


def test_new_annotation_of_the_template_is_a_rollout():
    state, manifest = shop()
    manifest["spec"]["template"]["metadata"]["annotations"] = {"checksum/config": "2"}
    plan = planned(state, manifest)
    assert plan.workloads[0].created == 2
    assert [field.split()[0] for field in plan.changes[0].fields] == ["template.metadata.annotations.checksum/config"]


def test_pods_without_room_are_pending_with_reasons_and_help():
    state, _ = shop()
    plan = planned(state, scale="deploy/web=14")
    (workload,) = plan.workloads
    assert (workload.created, workload.placed, workload.pools) == (12, 10, {"pool-a": 10})
    (pending,) = workload.pending
    assert (pending.count, pending.pending_before) == (2, False)
    assert pending.message == "0/3 nodes are available: 3 Insufficient cpu."
    assert "request less, add a node, or free resources on a node" in pending.helps
    assert workload.rollout == "failed"
    assert plan.would_help == "1 node like pool-a-0"
    assert not plan.fits


@pytest.mark.parametrize(
    ("replicas", "nodes"), [(13, "1 node"), (16, "1 node"), (17, "2 nodes"), (41, "8 nodes"), (140, "32 nodes")]
)
def test_help_is_the_fewest_nodes_also_if_there_are_many(replicas, nodes):
    state, _ = shop()
    assert planned(state, scale=f"deploy/web={replicas}").would_help == f"{nodes} like pool-a-0"


@pytest.mark.parametrize(
    ("cpu", "most", "help_"),
    [
        pytest.param("1", 60 + 50 + 14, "13 nodes like pool-a-0", id="fits on other nodes"),
        pytest.param("5", 60, "", id="fits on no node"),
    ],
)
def test_pending_pods_are_tried_once_and_once_per_added_nodes(monkeypatch, cpu, most, help_):
    state, _ = shop(nodes=1, replicas=2)
    attempts = []
    run = SchedulingCycle.run

    async def counted(cycle):
        attempts.append(cycle)
        return await run(cycle)

    monkeypatch.setattr(SchedulingCycle, "run", counted)
    plan = planned(state, deployment("more", replicas=52, template=pod_template(cpu=cpu, app="more")))
    assert plan.workloads[0].placed == (2 if cpu == "1" else 0)
    assert plan.would_help == help_
    assert len(attempts) <= most


@pytest.mark.parametrize("kind", ["scale", "manifest"])
def test_more_pods_than_fit_into_memory_are_refused(kind):
    state, manifest = shop()
    many = {**manifest, "spec": {**manifest["spec"], "replicas": 2_000_000_000}}
    with pytest.raises(UserError, match=r"deployment shop/web with 2000000000 pods: the cluster is larger than memory"):
        planned(state, scale="deploy/web=2000000000") if kind == "scale" else planned(state, many)


def test_plan_ends_with_an_error_when_no_memory_is_left(monkeypatch):
    state, _ = shop()
    at_start = iter([1 << 40])
    monkeypatch.setattr("kubeloop.recording.memory.available_memory", lambda: next(at_start, 0))
    with pytest.raises(UserError, match=r"no memory is left after \d+ s of virtual time"):
        planned(state, scale="deploy/web=40")


def test_rollout_without_room_and_without_unavailable_pods_never_completes():
    state, manifest = shop(nodes=1, replicas=2, cpu="2")
    manifest["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2"
    plan = planned(state, manifest)
    (workload,) = plan.workloads
    assert workload.rollout == "failed"
    assert "1 pod is without a node" in workload.reasons
    assert "maxUnavailable is 0, so that no old pod makes room for a new one" in workload.reasons


def test_quota_that_is_full_is_the_reason():
    state, _ = shop()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop", "uid": "q"}}
    state.put(
        RESOURCE_QUOTAS,
        {**quota, "spec": {"hard": {"pods": "3"}}, "status": {"hard": {"pods": "3"}, "used": {"pods": "2"}}},
    )
    plan = planned(state, scale="deploy/web=5")
    (workload,) = plan.workloads
    assert (workload.created, workload.rollout) == (1, "failed")
    assert any("exceeded quota: q" in reason for reason in workload.reasons)
    assert not plan.fits


def test_pod_of_higher_priority_preempts_another():
    state, _ = shop(nodes=1, replicas=4)
    gold = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold", "uid": "g"}}
    state.put(PRIORITY_CLASSES, {**gold, "value": 1000})
    plan = planned(state, deployment("db", replicas=1, template=pod_template(app="db", priorityClassName="gold")))
    (preempted,) = plan.preempted
    assert preempted.pod.startswith("shop/web-5d4-")
    assert (preempted.workload, preempted.node, preempted.replaced) == ("deployment/web in shop", "pool-a-0", True)
    assert preempted.reason.startswith("preempted by shop/db-")
    web = next(workload for workload in plan.workloads if workload.name == "web")
    assert web.pending[0].count == 1
    assert not plan.fits


def test_drained_node_is_cordoned_and_its_pods_move():
    state, _ = shop()
    plan = planned(state, drain=["pool-a-0"])
    assert [(change.kind, change.fields) for change in plan.changes] == [("Node", ["unschedulable none -> true"])]
    assert [(pod.pod, pod.reason) for pod in plan.evicted] == [("shop/web-5d4-0", "evicted by the drain")]
    assert plan.workloads[0].nodes == {"pool-a-2": 1}
    assert plan.fits


def test_drain_that_a_budget_blocks_is_reported():
    state, _ = shop()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop", "uid": "b", "generation": 1},
    }
    state.put(
        POD_DISRUPTION_BUDGETS, {**budget, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}
    )
    plan = planned(state, drain=["pool-a-0"])
    (blocked,) = plan.blocked
    assert (blocked.node, blocked.pod) == ("pool-a-0", "shop/web-5d4-0")
    assert "disruption budget" in blocked.reason
    assert not plan.fits


def test_drain_waits_until_the_budget_permits():
    state, _ = shop()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop", "uid": "b", "generation": 1},
    }
    state.put(
        POD_DISRUPTION_BUDGETS, {**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    )
    plan = planned(state, drain=["pool-a-0", "pool-a-1"])
    assert len(plan.evicted) == 2
    assert plan.blocked == []
    assert plan.workloads[0].nodes == {"pool-a-2": 2}


def test_pod_without_controller_is_lost_by_a_drain():
    state, _ = shop()
    add_pod(state, bare_pod("lonely"), pod_template()["spec"], "pool-a-0")
    plan = planned(state, drain=["pool-a-0"])
    assert {pod.pod: pod.replaced for pod in plan.evicted} == {"shop/lonely": False, "shop/web-5d4-0": True}
    assert "no controller replaces 1 evicted pods: shop/lonely" in plan.findings[0]


def test_deleted_nodes_lose_their_pods_to_others():
    state, _ = shop()
    add_node(state, "pool-b-1", pool="old")
    plan = planned(state, delete_nodes=["cloud.google.com/gke-nodepool=old", "pool-a-1"])
    assert [change.name for change in plan.changes if change.action == "delete"] == ["pool-a-1", "pool-b-1"]
    assert plan.nodes_after == 2
    assert plan.workloads[0].placed == 1
    assert plan.evicted[0].reason == "deleted with its node"


def test_cordoned_nodes_get_no_new_pods():
    state, _ = shop()
    plan = planned(state, cordon=["pool-a-0", "pool-a-1"], scale="deploy/web=4")
    assert plan.workloads[0].nodes == {"pool-a-2": 2}


def test_added_nodes_are_like_the_named_one():
    state, _ = shop()
    add_node(
        state,
        "gpu-1",
        taints=[
            {"key": "gpu", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ],
    )
    plan = planned(state, add_nodes=2, like="gpu-1", scale="deploy/web=11")
    assert [change.name for change in plan.changes if change.action == "create"] == ["gpu-1-new-1", "gpu-1-new-2"]
    assert plan.nodes_after == 6
    assert plan.workloads[0].pools == {"pool-a": 9}  # the new nodes have the taint of a user, and only that


def test_fit_returns_the_fewest_nodes():
    state, _ = shop()
    plan = planned(state, scale="deploy/web=21", fit="pool-a-0")
    assert plan.fit.nodes == 3  # 21 pods of 1 CPU on 3 + 3 nodes of 4 CPUs
    assert plan.fits
    assert plan.nodes_after == 6
    assert planned(state, scale="deploy/web=12", fit="pool-a-0").fit.nodes == 0


def test_fit_of_pods_that_no_such_node_can_take_is_none():
    state, _ = shop()
    plan = planned(state, deployment("db", replicas=1, template=pod_template(app="db", cpu="5")), fit="pool-a-0")
    assert plan.fit.nodes is None
    assert not plan.fits


def test_pods_that_were_pending_before_do_not_fail_the_plan():
    state, _ = shop()
    add_pod(state, bare_pod("huge"), pod_template(cpu="50")["spec"], "")
    plan = planned(state, scale="deploy/web=3")
    (before,) = plan.pending_before
    assert (before.kind, before.name, before.pending[0].pending_before) == ("Pod", "huge", True)
    assert plan.fits


def test_job_with_unknown_run_time_runs():
    state, _ = shop()
    template = {"spec": {"restartPolicy": "Never", "containers": pod_template()["spec"]["containers"]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "migrate", "namespace": "shop"},
        "spec": {"template": template},
    }
    (workload,) = planned(state, job).workloads
    assert (workload.kind, workload.rollout, workload.placed) == ("Job", "running", 1)
    template["metadata"] = {"annotations": {"kubeloop.dev/run-seconds": "40"}}
    (workload,) = planned(state, job).workloads
    assert workload.rollout == "complete"


def test_refused_manifest_is_an_error_with_its_file():
    state, manifest = shop()
    manifest["spec"]["template"]["spec"]["containers"][0]["imag"] = "typo"
    with pytest.raises(UserError, match=r"file\.yaml, document 1: .*\.imag: field not declared in schema"):
        planned(state, manifest)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"drain": ["none"]}, "--drain none: there is no node of this name"),
        ({"cordon": ["none"]}, "--cordon none: there is no node of this name"),
        ({"delete_nodes": ["pool=none"]}, "--delete-nodes pool=none: no node has these labels"),
        ({"add_nodes": 1, "like": "none"}, "--like none: there is no node of this name"),
        ({"fit": "none"}, "--fit none: there is no node of this name"),
        ({"scale": "deploy/none=3"}, "--scale deployment/none does not exist"),
        ({"scale": "deploy/web=3", "namespace": "other"}, "there is none in namespace other"),
    ],
)
def test_impossible_changes_are_errors(changes, problem):
    with pytest.raises(UserError, match=problem):
        planned(shop()[0], **changes)


def test_what_a_plan_leaves_out_is_named():
    state, _ = shop()
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "shop", "uid": "c"},
        "spec": {},
    }
    state.put(CRON_JOBS, cron_job)
    webhook = {
        "name": "mesh.example.com",
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"]}],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mesh", "uid": "m"},
        "webhooks": [webhook],
    }
    state.put(MUTATING_WEBHOOKS, configuration)
    other = bare_pod("other")
    other["ownerReferences"] = [
        {"apiVersion": "apps.kruise.io/v1", "kind": "CloneSet", "name": "x", "uid": "y", "controller": True}
    ]
    add_pod(state, other, pod_template()["spec"], "pool-a-0")
    add_pod(state, bare_pod("batch"), {**pod_template()["spec"], "schedulerName": "volcano"}, "")
    findings = "\n".join(planned(state, scale="deploy/web=3").findings)
    assert "CronJobs start no Jobs in a plan" in findings
    assert "MutatingWebhookConfiguration mesh, mesh.example.com: it is not called for pods in shop" in findings
    assert "1 object is of a CloneSet that the input does not have" in findings
    assert "1 pending pods are for the scheduler volcano" in findings


def test_pods_of_unknown_controllers_stay():
    state, _ = shop()
    other = bare_pod("other")
    other["ownerReferences"] = [
        {"apiVersion": "apps.kruise.io/v1", "kind": "CloneSet", "name": "x", "uid": "y", "controller": True}
    ]
    add_pod(state, other, pod_template()["spec"], "pool-a-0")
    assert planned(state).workloads == []


def add_autoscaler(state, **parts):
    """Add an autoscaler of the Deployment web for 80 % of the requested CPU, and return it."""
    target = {"type": "Utilization", "averageUtilization": 80}
    spec = {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    metadata = {"name": "web", "namespace": "shop", "uid": "h"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {**spec, **parts.pop("spec", {})},
        **parts,
    }
    state.put(HORIZONTAL_POD_AUTOSCALERS, autoscaler)
    return autoscaler


def test_autoscaler_without_metrics_only_enforces_its_limits():
    state, _ = shop()
    add_autoscaler(state)
    plan = planned(state, scale="deploy/web=8")
    (workload,) = plan.workloads
    assert (workload.desired, workload.created - workload.deleted) == (3, 1)
    assert "1 HorizontalPodAutoscaler without metrics in the status: shop/web; only minReplicas" in plan.findings[0]


def test_autoscaler_scales_by_the_metrics_of_its_status():
    state, _ = shop(replicas=3)
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "800m"}}}
    status = {"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [current]}
    autoscaler = add_autoscaler(state, spec={"maxReplicas": 20}, status=status)
    assert planned(state).workloads == []
    target = {"type": "Utilization", "averageUtilization": 40}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    plan = planned(state, {**autoscaler, "spec": {**autoscaler["spec"], "metrics": metrics}})
    (workload,) = plan.workloads
    assert (workload.desired, workload.created, plan.findings) == (6, 3, [])
    (workload,) = planned(state, scale="deploy/web=9").workloads  # the same load on more pods
    assert (workload.desired, workload.created, workload.deleted) == (3, 6, 6)


def test_cluster_that_is_not_at_rest_is_named():
    state, _ = shop()
    add_pod(state, bare_pod("starting"), pod_template()["spec"], "")
    plan = planned(state)
    assert "the cluster was not at rest: 1 pods are created, bound or deleted" in plan.findings[0]


def test_plan_is_the_same_in_every_run():
    plans = [planned(shop()[0], scale="deploy/web=14", drain=["pool-a-1"]) for _ in range(2)]
    assert msgspec.json.encode(plans[0]) == msgspec.json.encode(plans[1])


def test_unready_pods_and_nodes_stay_so():
    state, _ = shop()
    pod = state.of(PODS)["shop/web-5d4-0"]
    pod["status"]["conditions"][1] = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-03-01T11:00:00Z"}
    node = state.of(NODES)["pool-a-2"]
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    node["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    plan = planned(state, scale="deploy/web=3")
    (workload,) = plan.workloads
    assert set(workload.nodes) <= {"pool-a-0", "pool-a-1"}
    assert workload.rollout == "failed"
    assert "1 of its pods is not ready in the input" in workload.reasons
