"""Scenarios of the scheduler, volumes and the loss of nodes."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
)
from kubeloop.testing.faults.fault_plan import FaultPlan
from support.faults.cluster import Cluster
from support.faults.objects import JSON, controller_of, is_terminating, manifest, name_of, pod_template, uid_of
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create
from support.faults.scenarios.workloads import DEPLOYMENT, deployment


def _pod(name: str, *, app: str = "", cpu: str = "100m", **spec: Any) -> JSON:
    template = pod_template(app or name, cpu=cpu, **spec)
    return manifest(PODS, name, labels=template["metadata"]["labels"], spec=template["spec"])


def budget(name: str, app: str, **spec: Any) -> JSON:
    return manifest(POD_DISRUPTION_BUDGETS, name, spec={"selector": {"matchLabels": {"app": app}}, **spec})


class ProtectedPods:
    """Pods of a budget that allows no disruption are not preempted, because others suffice."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # preemption reads the budget and the pods from its caches
        self._checks = not plan.of_kind("old-lists", "delete-object", "replace-object")
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        if self._checks and pod["metadata"]["labels"].get("app") == "protected" and is_terminating(pod):
            self._cluster.violate(f"Pod {name_of(pod)} is disrupted against its budget")


class _OneVictim:
    """Exactly one of two possible victims is preempted."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        # when the deletion of the first victim arrives, the next process may have chosen the other one
        self._checks = not plan.of_kind("crash-late", "freeze-leader")
        self._victims: set[str] = set()
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        if pod["metadata"]["labels"].get("app") == "victim" and (is_terminating(pod) or change.type == "DELETED"):
            self._victims.add(uid_of(pod))
        if self._checks and len(self._victims) > 1:
            self._cluster.violate("both victims were preempted")


def _preempted(cluster: Cluster) -> list[str]:
    """The urgent pod is bound in place of a victim, or of the protected pod where `ProtectedPods` permits that."""
    urgent = cluster.get(PODS, "urgent")
    if urgent is None:
        return []
    left = [name_of(pod) for app in ("victim", "protected") for pod in cluster.pods_of(app)]
    problems = [] if urgent["spec"].get("nodeName") else ["the urgent pod is not bound"]
    return problems + ([] if len(left) <= 2 else [f"pods {left} are left"])


def _ungate(cluster: Cluster) -> None:
    for pod in cluster.all(PODS):
        if pod["spec"].get("schedulingGates"):
            cluster.patch(PODS, name_of(pod), {"spec": {"schedulingGates": None}})


def _all_bound(cluster: Cluster) -> list[str]:
    return [f"Pod {name_of(pod)} is not bound" for pod in cluster.all(PODS) if not pod["spec"].get("nodeName")]


class _Gated:
    """A pod with gates is not bound."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        if pod["spec"].get("schedulingGates") and pod["spec"].get("nodeName"):
            self._cluster.violate(f"Pod {name_of(pod)} is bound although it is gated")


def _volume(name: str, node: str) -> JSON:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
    return manifest(
        PERSISTENT_VOLUMES,
        name,
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "static",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    )


def _claim(name: str, storage_class: str) -> JSON:
    return manifest(
        PERSISTENT_VOLUME_CLAIMS,
        name,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )


def _pod_with_claim(name: str, claim: str) -> JSON:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return _pod(name, volumes=[volume])


def _pod_with_ephemeral_volume(name: str, storage_class: str) -> JSON:
    template = {"spec": _claim(name, storage_class)["spec"]}
    return _pod(name, volumes=[{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}])


def _recreate(cluster: Cluster) -> None:
    cluster.delete(PODS, "late", grace=0)
    cluster.apply(_pod_with_ephemeral_volume("late", "late"))


class _OwnClaim:
    """A pod with an ephemeral volume is bound after its own claim was created, not that of a former pod."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = not plan.of_kind("old-lists")
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        pod, before = change.now.object, change.before
        if before is None or before.object["spec"].get("nodeName") or not pod["spec"].get("nodeName"):
            return
        if not self._checks or self._cluster.lacks_claim(pod):
            return  # the scheduler compares the pod with the claim of its cache
        claim = self._cluster.get(PERSISTENT_VOLUME_CLAIMS, f"{name_of(pod)}-data")
        if claim is None or controller_of(claim).get("uid") != uid_of(pod):
            self._cluster.violate(f"Pod {name_of(pod)} is bound without its claim")


def _own_claims(cluster: Cluster) -> list[str]:
    """Each pod has a bound claim of its own, unless a user has replaced it, and no other claim is left."""
    all_claims = cluster.all(PERSISTENT_VOLUME_CLAIMS)
    own = [claim for claim in all_claims if name_of(claim) not in cluster.replaced or controller_of(claim)]
    claims = {controller_of(claim).get("uid"): claim for claim in own}
    pods = {uid_of(pod): pod for pod in cluster.all(PODS) if not cluster.lacks_claim(pod)}
    problems = [f"Pod {name_of(pods[uid])} has no claim" for uid in pods.keys() - claims.keys()]
    problems += [f"claim {name_of(claims[uid])} is left" for uid in claims.keys() - pods.keys()]
    return problems + [
        f"claim {name_of(claim)} is not bound"
        for uid, claim in claims.items()
        if claim["status"].get("phase") != "Bound" and not _waits_forever(cluster, claim, pods.get(uid, {}))
    ]


def _waits_forever(cluster: Cluster, claim: JSON, pod: JSON) -> bool:
    """Return True if a claim that waits for a consumer was removed and created again after its pod was bound.

    Only the scheduling of a pod provisions such a claim, also in v1.36.
    """
    is_late = claim["spec"]["storageClassName"] == name_of(_LATE_CLASS)
    return is_late and "nodeName" in pod.get("spec", {}) and uid_of(pod) in cluster.owners_of_removed


_STATIC_CLASS = manifest(
    STORAGE_CLASSES, "static", provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"
)
_LATE_CLASS = manifest(
    STORAGE_CLASSES, "late", provisioner="kubeloop.dev/simulated", volumeBindingMode="WaitForFirstConsumer"
)


def _give_up(cluster: Cluster) -> None:
    """Delete a pod and its claim if no volume is reserved for the claim."""
    pod, claim = cluster.get(PODS, "static-1"), cluster.get(PERSISTENT_VOLUME_CLAIMS, "static-1")
    if pod is None or claim is None:
        return
    claimed = [volume["spec"].get("claimRef", {}).get("uid") for volume in cluster.all(PERSISTENT_VOLUMES)]
    if uid_of(claim) not in claimed:
        cluster.remove(PODS, pod)
        cluster.remove(PERSISTENT_VOLUME_CLAIMS, claim)


def _delete_user_of_volume(cluster: Cluster) -> None:
    cluster.delete(PERSISTENT_VOLUME_CLAIMS, "static-0")
    cluster.delete(PODS, "static-0")


def _deployment_that_moves() -> JSON:
    tolerations = [
        {"key": f"node.kubernetes.io/{reason}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        for reason in ("unreachable", "not-ready")
    ]
    return deployment("app:1", replicas=3, pod={"tolerations": tolerations})


def _taint(*taints: JSON) -> Any:
    return lambda cluster: cluster.patch(NODES, "node-0", {"spec": {"taints": [*taints]}})


def _lose_node(cluster: Cluster) -> None:
    cluster.delete(NODES, "node-0")


def _fail_node(cluster: Cluster) -> None:
    cluster.patch(NODES, "node-1", {"metadata": {"annotations": {"kubeloop.dev/fail": "unreachable"}}})


def _recover_node(cluster: Cluster) -> None:
    cluster.patch(NODES, "node-1", {"metadata": {"annotations": {"kubeloop.dev/fail": None}}})


_NO_EXECUTE = {"key": "maintenance", "effect": "NoExecute"}
_FILLED = {"count": 1, "capacity": {"cpu": "2", "memory": "8Gi", "pods": "110"}}

SCENARIOS = (
    Scenario(
        "preemption",
        ("scheduler", "disruption"),
        (
            Step(
                "fill the node",
                create(
                    manifest(PRIORITY_CLASSES, "high", value=1000),
                    budget("protected", "protected", minAvailable=1),
                    _pod("protected", cpu="1"),
                    _pod("victim-0", app="victim", cpu="500m"),
                    _pod("victim-1", app="victim", cpu="500m"),
                ),
            ),
            Step(
                "create a pod of high priority",
                create(_pod("urgent", cpu="400m", priorityClassName="high")),
                UNTIL_SETTLED,
            ),
        ),
        nodes=_FILLED,
        exact=(),
        desired=_preempted,
        invariants=(ProtectedPods, _OneVictim),
    ),
    Scenario(
        "gated pods",
        ("scheduler",),
        (
            Step(
                "create gated pods",
                create(*(_pod(f"gated-{number}", schedulingGates=[{"name": "wait"}]) for number in range(4))),
            ),
            Step("remove the gates", _ungate, 2.0),
        ),
        desired=_all_bound,
        invariants=(_Gated,),
    ),
    Scenario(
        "full nodes",
        ("replicaset", "deployment", "scheduler"),
        (
            Step("apply more pods than fit", create(deployment("app:1", replicas=6, pod={"cpu": "1"}))),
            Step("scale to what fits", create(deployment("app:1", replicas=4, pod={"cpu": "1"})), 4.0),
        ),
        nodes={**_FILLED, "count": 2},
        exact=(),
    ),
    Scenario(
        "volume binding",
        ("scheduler", "persistentvolume-binder", "pvc-protection", "pv-protection"),
        (
            Step(
                "create volumes and claims",
                create(
                    _STATIC_CLASS,
                    _LATE_CLASS,
                    _volume("volume-0", "node-0"),
                    _volume("volume-1", "node-1"),
                    _claim("static-0", "static"),
                    _claim("static-1", "static"),
                    _claim("late", "late"),
                    _claim("immediate", "standard"),
                ),
            ),
            Step(
                "create pods",
                create(*(_pod_with_claim(name, name) for name in ("static-0", "static-1", "late", "immediate"))),
                0.5,
            ),
            Step("give up a pod that has no volume", _give_up, 5.0),
            Step("delete a pod and its claim", _delete_user_of_volume, UNTIL_SETTLED),
        ),
    ),
    Scenario(
        "ephemeral volumes",
        ("scheduler", "ephemeral-volume", "persistentvolume-binder", "pvc-protection", "garbagecollector"),
        (
            Step(
                "create pods",
                create(
                    _LATE_CLASS,
                    _pod_with_ephemeral_volume("late", "late"),
                    _pod_with_ephemeral_volume("immediate", "standard"),
                ),
            ),
            Step("delete a pod and create it again", _recreate, UNTIL_SETTLED),
            Step("delete a pod", lambda cluster: cluster.delete(PODS, "immediate"), UNTIL_SETTLED),
        ),
        desired=_own_claims,
        exact=("persistentvolumeclaims",),
        invariants=(_OwnClaim,),
    ),
    Scenario(
        "node loss",
        (*DEPLOYMENT, "nodelifecycle", "podgc", "taint-eviction"),
        (
            Step("apply a Deployment", create(_deployment_that_moves())),
            Step("delete a node", _lose_node, UNTIL_SETTLED),
            Step("let a node fail", _fail_node, UNTIL_SETTLED),
            Step("recover it", _recover_node, 80.0),
        ),
        nodes={
            "count": 3,
            "lease_renew_seconds": 10.0,
            "status_report_seconds": 300.0,
        },
        exact=(),
    ),
    Scenario(
        "taint eviction",
        (*DEPLOYMENT, "taint-eviction"),
        (
            Step("apply a Deployment", create(deployment("app:1", replicas=3))),
            Step("taint a node", _taint(_NO_EXECUTE), UNTIL_SETTLED),
            Step("remove the taint", _taint(), UNTIL_SETTLED),
        ),
        exact=(),
    ),
)
