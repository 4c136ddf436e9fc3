"""Invariants of every scenario, checked at each write in the store and at each request of the control plane."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.devcluster.storage.store import Change
from kubeloop.informers.metadata_accessor import MetadataAccessor
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
)
from kubeloop.kube.values.quantities import milli_value
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.testing.faults.fault_plan import FaultPlan
from kubeloop.testing.faults.network import resource_in
from support.apiserver.faulty_transport import SentRequest
from support.faults.cluster import Cluster
from support.faults.objects import JSON, controller_of, is_active, is_finished, is_ready, name_of, uid_of

_INDEX = "batch.kubernetes.io/job-completion-index"


class InvariantChecker:
    """Invariants of all scenarios.

    certain_creates: the control plane learns of every object that it creates, so that it creates none twice.
    binds_once: one scheduler at a time binds pods, and knows all bound ones.
    """

    def __init__(self, cluster: Cluster, *, certain_creates: bool, binds_once: bool) -> None:
        self._cluster = cluster
        self._certain_creates = certain_creates
        self._binds_once = binds_once
        self._node_of: dict[str, str] = {}
        self._claim_of: dict[str, str] = {}
        self._volume_of: dict[str, str] = {}
        cluster.store.subscribe(PODS, self._on_pod)
        cluster.store.subscribe(PERSISTENT_VOLUME_CLAIMS, self._on_claim)
        cluster.store.subscribe(PERSISTENT_VOLUMES, self._on_volume)

    # --- requests ----------------------------------------------------------------------------------------------------

    def on_request(self, request: SentRequest) -> None:
        """Check a write of the control plane that reaches the server."""
        body = msgspec.json.decode(request.body) if request.body else {}
        resource = resource_in(request.path)
        is_collection = request.method == "DELETE" and request.path.endswith(f"/{resource}")
        if not is_collection and (problem := unguarded(request.method, resource, body)):
            self._cluster.violate(f"{request.method} {request.path} {problem}: {json.dumps(body)[:200]}")
        if request.method == "DELETE" and resource == "pods" and body.get("gracePeriodSeconds") == 0:
            self._check_forced(request)

    def _check_forced(self, request: SentRequest) -> None:
        """A pod is deleted without its grace period only if no kubelet runs it."""
        *_, namespace, _, name = request.path.split("/")
        pod = self._cluster.get(PODS, name, namespace)
        if pod is None or is_finished(pod):
            return
        node = self._cluster.get(NODES, pod["spec"].get("nodeName", ""), "")
        if node is not None and not node["spec"].get("taints"):
            self._cluster.violate(f"Pod {name} is deleted by force while it may run on {name_of(node)}")

    # --- changes in the store ----------------------------------------------------------------------------------------

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        uid, node = uid_of(pod), pod["spec"].get("nodeName", "")
        before = self._node_of.get(uid, "")
        if before not in ("", node):
            self._cluster.violate(f"Pod {name_of(pod)} moved from {before} to {node}")
        self._node_of[uid] = node
        if node and not before and change.type != "DELETED" and self._binds_once:
            self._check_room(node)
        if change.type == "ADDED" and self._certain_creates:
            self._check_slot(pod)

    def _check_room(self, node_name: str) -> None:
        """The pods bound to a node request no more than it has."""
        node = self._cluster.get(NODES, node_name, "")
        if node is None:
            return
        pods = self._cluster.all(PODS, lambda pod: pod["spec"].get("nodeName") == node_name and not is_finished(pod))
        requested: Counter[str] = Counter(pods=1000 * len(pods))
        for pod in pods:
            for container in pod["spec"]["containers"]:
                requested.update(_milli(container.get("resources", {}).get("requests", {})))
        allocatable = _milli(node["status"]["allocatable"])
        excess = {name: amount for name, amount in requested.items() if amount > allocatable.get(name, 0)}
        if excess:
            self._cluster.violate(f"Node {node_name} is overcommitted: {excess} of {allocatable}")

    def _check_slot(self, pod: JSON) -> None:
        """No other pod is active for the Job index or the DaemonSet's node of a new pod."""
        owner = controller_of(pod)
        if not owner or owner["kind"] not in ("Job", "DaemonSet"):
            return
        slot = _slot(pod)
        others = [
            name_of(other)
            for other in self._cluster.all(PODS, is_active)
            if controller_of(other).get("uid") == owner["uid"] and _slot(other) == slot and slot
        ]
        allowed = 1
        if owner["kind"] == "DaemonSet":
            ds = self._cluster.get(DAEMON_SETS, owner["name"], pod["metadata"]["namespace"]) or {}
            surge = ds.get("spec", {}).get("updateStrategy", {}).get("rollingUpdate", {}).get("maxSurge", 0)
            allowed += surge not in (0, "0%")
        if len(others) > allowed:
            self._cluster.violate(f"{owner['kind']} {owner['name']} has pods {others} for {slot}")

    def _on_claim(self, change: Change) -> None:
        claim = change.now.object
        self._volume_of[uid_of(claim)] = claim["spec"].get("volumeName", "")

    def _on_volume(self, change: Change) -> None:
        """The volume of a claim is not given to another one; one that the claim does not refer to yet may be."""
        volume = change.now.object
        claim = volume["spec"].get("claimRef", {}).get("uid", "")
        before = self._claim_of.get(uid_of(volume), "")
        if before and claim and before != claim and self._volume_of.get(before) == name_of(volume):
            self._cluster.violate(f"PersistentVolume {name_of(volume)} is given to another claim")
        self._claim_of[uid_of(volume)] = claim or before


def _slot(pod: JSON) -> str:
    """Return the Job index, or the node of a DaemonSet's pod; "" if there is none."""
    index = pod["metadata"].get("annotations", {}).get(_INDEX)
    if index is not None:
        return f"index {index}"
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    try:
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except KeyError:
        return ""


def _milli(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {name: milli_value(value) for name, value in quantities.items()}


# --- preconditions ----------------------------------------------------------------------------------------------------


def unguarded(method: str, resource: str, body: Any) -> str:
    """Return why a write may hit another object, or a newer state, than its writer has read; "" if it cannot."""
    if method == "DELETE":
        preconditions = body.get("preconditions", {})
        if "uid" not in preconditions and "resourceVersion" not in preconditions:
            return "has no precondition"
        return ""
    if method == "POST":
        if resource == "pods/binding" and not body["metadata"].get("uid"):
            return "has no uid"
        return ""
    if method == "PATCH" and isinstance(body, list):
        tested = {operation["path"] for operation in body if operation["op"] == "test"}
        return (
            "" if tested & {"/metadata/uid", "/metadata/resourceVersion"} else "tests neither uid nor resourceVersion"
        )
    if method == "PUT" and resource == "endpointslices":
        return ""  # v1.36 reuses the name of a slice that it would delete, without its resourceVersion
    metadata = body.get("metadata", {})
    return "" if metadata.get("uid") or metadata.get("resourceVersion") else "has neither uid nor resourceVersion"


# --- caches -----------------------------------------------------------------------------------------------------------


def cache_differences(cluster: Cluster, informers: list[SharedInformer[Any]]) -> list[str]:
    """Return where a cache differs from the server's state; [] once all events have arrived."""
    differences = []
    for informer in informers:
        stored = {obj.key: str(obj.revision) for obj in cluster.store.table(informer.resource).list()}
        accessor = MetadataAccessor(informer.resource)
        cached = {key: accessor.resource_version(obj) for obj in informer.store.list() for key in [accessor.key(obj)]}
        differences += [
            f"{informer.resource.plural} {key}: cached {cached.get(key)}, stored {stored.get(key)}"
            for key in stored.keys() | cached.keys()
            if stored.get(key) != cached.get(key)
        ]
    return sorted(differences)


def assumed_volumes(scheduler: Scheduler) -> list[str]:
    """Return the volumes and claims of which the VolumeBinding plugins assume another state than the stored one."""
    assumed = []
    for framework in scheduler.frameworks.values():
        plugin: Any = framework.plugins["VolumeBinding"]
        listers, binder = plugin._handle.listers, plugin._binder
        for cache, lister in (
            (binder.volumes, listers.persistent_volumes),
            (binder.claims, listers.persistent_volume_claims),
        ):
            assumed += [key for key in [*cache._objects] if cache.get(key, lister.get(key)) != lister.get(key)]
    return assumed


# --- invariants of single scenarios -----------------------------------------------------------------------------------


class RolloutLimits:
    """The limits of a rolling update whose Deployment changes its image only, and whose pods fail for no other reason.

    The sum of spec.replicas of the ReplicaSets is at most replicas + maxSurge. Once as many pods have been available,
    at least replicas - maxUnavailable stay available. A Pod whose creation is repeated after a lost response counts as
    available until its ReplicaSet deletes it, as in v1.36: so many may be missing.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan, name: str = "web") -> None:
        self._cluster = cluster
        self._name = name
        self._checks_available = not plan.of_kind("delete-object", "replace-object", "old-lists")
        self._was_complete = False
        self._surplus = 0  # Pods created in addition to spec.replicas of their ReplicaSet
        cluster.store.subscribe(REPLICA_SETS, self._on_replica_set)
        cluster.store.subscribe(PODS, self._on_pod)

    def _limits(self) -> tuple[int, int]:
        """Return the maximum of pods, and the minimum of available ones."""
        spec = (self._cluster.get(DEPLOYMENTS, self._name) or {})["spec"]
        limits = spec["strategy"]["rollingUpdate"]
        return spec["replicas"] + limits["maxSurge"], spec["replicas"] - limits["maxUnavailable"]

    def _on_replica_set(self, change: Change) -> None:
        total = sum(rs["spec"]["replicas"] for rs in self._cluster.all(REPLICA_SETS))
        most, _ = self._limits()
        if total > most:
            self._cluster.violate(f"the ReplicaSets of {self._name} have {total} replicas, at most {most} are allowed")

    def _on_pod(self, change: Change) -> None:
        rs = self._cluster.get(REPLICA_SETS, controller_of(change.now.object).get("name", ""))
        if change.type == "ADDED" and rs is not None:
            self._surplus += len([*filter(is_active, self._cluster.owned(PODS, rs))]) > rs["spec"]["replicas"]
        available = sum(map(is_ready, self._cluster.pods_of(self._name)))
        _, least = self._limits()
        self._was_complete |= available >= least
        if self._checks_available and self._was_complete and available < least - self._surplus:
            self._cluster.violate(f"{available} pods of {self._name} are available, at least {least} must be")
