"""Scenarios of adoption, garbage collection and the deletion of namespaces."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS
from kubeloop.testing.faults.fault_plan import FaultPlan
from support.faults.cluster import Cluster
from support.faults.objects import JSON, controller_of, manifest, name_of, pod_template, uid_of, workload
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create
from support.faults.scenarios.workloads import DEPLOYMENT, deployment

_COLLECTED = (*DEPLOYMENT, "garbagecollector")


def _pod(name: str) -> JSON:
    template = pod_template("web")
    return manifest(PODS, name, labels=template["metadata"]["labels"], spec=template["spec"])


def _release(cluster: Cluster) -> None:
    cluster.patch(PODS, "first", {"metadata": {"labels": {"app": "released"}}})


def _adopted(cluster: Cluster) -> list[str]:
    """The ReplicaSet controls the pods of its selector, and no other."""
    problems = [f"Pod {name_of(pod)} is not adopted" for pod in cluster.pods_of("web") if not controller_of(pod)]
    released = [pod for pod in cluster.pods_of("released") if controller_of(pod)]
    return problems + [f"Pod {name_of(pod)} is not released" for pod in released]


def _delete_deployment(policy: str) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.delete(DEPLOYMENTS, "web", policy=policy)


def _nothing_left(cluster: Cluster) -> list[str]:
    """Nothing is left of the Deployment, except for what users created in its place and nobody adopted."""
    left = [obj for resource in (DEPLOYMENTS, REPLICA_SETS, PODS) for obj in cluster.all(resource)]
    expected = [obj for obj in left if name_of(obj) in cluster.replaced and not controller_of(obj)]
    return [f"{obj['kind']} {name_of(obj)} is left" for obj in left if obj not in expected]


class _DependentsFirst:
    """In a foreground deletion, owners disappear after what they own and block for."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = not plan.of_kind("old-lists")  # the collector knows the dependents from its lists, as in v1.36
        cluster.store.subscribe(DEPLOYMENTS, self._on_owner)
        cluster.store.subscribe(REPLICA_SETS, self._on_owner)

    def _on_owner(self, change: Change) -> None:
        owner = change.now.object
        is_foreground = "foregroundDeletion" in owner["metadata"].get("finalizers", ())
        if change.type != "DELETED" or not is_foreground or not self._checks:
            return
        owned = [obj for resource in (REPLICA_SETS, PODS) for obj in self._cluster.owned(resource, owner)]
        if owned:
            self._cluster.violate(f"{owner['kind']} {name_of(owner)} is gone before {[*map(name_of, owned)]}")


class _OnlyGarbage:
    """A ConfigMap is deleted only after its owners."""

    def __init__(self, cluster: Cluster, _plan: FaultPlan) -> None:
        self._cluster = cluster
        cluster.store.subscribe(CONFIG_MAPS, self._on_config_map)

    def _on_config_map(self, change: Change) -> None:
        obj = change.now.object
        if change.type != "DELETED" or name_of(obj) == "owner":
            return
        uids = {uid_of(other) for other in self._cluster.all(CONFIG_MAPS)}
        living = [owner["name"] for owner in obj["metadata"].get("ownerReferences", ()) if owner["uid"] in uids]
        if living:
            self._cluster.violate(f"ConfigMap {name_of(obj)} is deleted while its owners {living} exist")


def _create_owned(cluster: Cluster) -> None:
    """Two owners; a dependent of each, one of both, and a dependent of a dependent."""
    owners = {name: cluster.apply(manifest(CONFIG_MAPS, name)) for name in ("owner", "other-owner")}

    def dependent(name: str, *of: JSON) -> JSON:
        references = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": name_of(owner), "uid": uid_of(owner)} for owner in of
        ]
        return cluster.apply(manifest(CONFIG_MAPS, name, owners=references))

    chained = dependent("dependent", owners["owner"])
    dependent("grandchild", chained)
    dependent("shared", owners["owner"], owners["other-owner"])
    dependent("other", owners["other-owner"])


def _config_maps(*expected: str) -> Callable[[Cluster], list[str]]:
    def check(cluster: Cluster) -> list[str]:
        names = {name_of(obj) for obj in cluster.all(CONFIG_MAPS) if obj["metadata"]["namespace"] == "default"}
        names.discard("kube-root-ca.crt")
        return [] if names == {*expected} else [f"there are ConfigMaps {sorted(names)}"]

    return check


def _fill_namespace(cluster: Cluster) -> None:
    cluster.apply(manifest(NAMESPACES, "doomed"))
    for namespace in ("doomed", "default"):
        body = deployment("app:1", replicas=2)
        cluster.apply({**body, "metadata": {**body["metadata"], "namespace": namespace}})
        cluster.apply(manifest(CONFIG_MAPS, "settings", namespace=namespace))


def _namespace_gone(cluster: Cluster) -> list[str]:
    problems = [f"Namespace {name_of(ns)} exists" for ns in cluster.all(NAMESPACES) if name_of(ns) == "doomed"]
    for resource in (DEPLOYMENTS, REPLICA_SETS, PODS, CONFIG_MAPS):
        left = [obj for obj in cluster.all(resource) if obj["metadata"]["namespace"] == "doomed"]
        problems += [f"{obj['kind']} {name_of(obj)} is left" for obj in left]
    if cluster.get(CONFIG_MAPS, "settings") is None:
        problems.append("a ConfigMap of another namespace is deleted")
    return problems


SCENARIOS = (
    Scenario(
        "adoption",
        ("replicaset", "scheduler"),
        (
            Step("create two pods", create(_pod("first"), _pod("second"))),
            Step("create a ReplicaSet", create(workload(REPLICA_SETS, "web", replicas=3)), 1.0),
            Step("change the label of a pod", _release, UNTIL_SETTLED),
        ),
        desired=_adopted,
    ),
    Scenario(
        "orphaning",
        _COLLECTED,
        (
            Step("apply a Deployment", create(deployment("app:1", replicas=2))),
            Step("delete it, orphaning", _delete_deployment("Orphan"), UNTIL_SETTLED),
            Step("apply it again", create(deployment("app:1", replicas=2)), UNTIL_SETTLED),
        ),
        exact=("pods", "replicasets"),
    ),
    Scenario(
        "foreground deletion",
        _COLLECTED,
        (
            Step("apply a Deployment", create(deployment("app:1", replicas=2))),
            Step("delete it", _delete_deployment("Foreground"), UNTIL_SETTLED),
        ),
        desired=_nothing_left,
        invariants=(_DependentsFirst,),
        exact=(),
    ),
    Scenario(
        "background deletion",
        ("garbagecollector",),
        (
            Step("create owners and dependents", _create_owned),
            Step("delete an owner", lambda cluster: cluster.delete(CONFIG_MAPS, "owner"), 3.0),
        ),
        desired=_config_maps("other-owner", "shared", "other"),
        invariants=(_OnlyGarbage,),
    ),
    Scenario(
        "namespace deletion",
        (*DEPLOYMENT, "namespace"),
        (
            Step("create objects in two namespaces", _fill_namespace),
            Step("delete a namespace", lambda cluster: cluster.delete(NAMESPACES, "doomed"), UNTIL_SETTLED),
        ),
        desired=_namespace_gone,
        exact=(),
    ),
)
