"""The requested changes of a plan or a replay, and how they are made in a cluster in memory.

All are made at one time; only evictions of drained nodes wait, as `kubectl drain` does, until budgets permit them.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, NotFound
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    ALL,
    CSI_NODES,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.kube.selectors.selectors import parse_label_selector
from kubeloop.kube.uids import new_uid
from kubeloop.kube.user_error import UserError
from kubeloop.planning.applied_objects import apply_manifests
from kubeloop.planning.cluster_copy import RunningCluster
from kubeloop.planning.result import BlockedDrain
from kubeloop.process.manifests import Manifest
from kubeloop.recording.changes import Finding
from kubeloop.recording.memory import MemoryLimit

_SCALABLE: Final = (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, REPLICATION_CONTROLLERS)
_SCALE = re.compile(r"([a-z.]+)/([^=/]+)=(\d+)")
_EVICTION_SECONDS: Final = 5.0  # until a refused eviction is tried again, as kubectl drain does
_TRANSIENT_TAINTS: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
)
_POD_BYTES: Final = 1_000  # of a pod in JSON, without what its template has
_MIRROR: Final = "kubernetes.io/config.mirror"


class ScaleChange(NamedTuple):
    """`--scale deploy/x=50`."""

    resource: Resource[Any]
    name: str
    replicas: int


class PlanChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Requested changes. namespace: of manifests and of `scale` without one of their own; "" for "default", and for
    `scale` the only namespace that has the workload. add_nodes: number of nodes like the node `like`. fit: node, of
    whose like the fewest are added with which nothing is pending; fit_nodes: their number in one run of the search."""

    manifests: Sequence[Manifest] = ()
    namespace: str = ""
    drain: Sequence[str] = ()
    cordon: Sequence[str] = ()
    delete_nodes: Sequence[str] = ()
    add_nodes: int = 0
    like: str = ""
    scale: Sequence[ScaleChange] = ()
    fit: str = ""
    fit_nodes: int = 0


AppliedObject = tuple[Resource[Any], str, str]
"""Resource, namespace and name."""


class ChangesMade(NamedTuple):
    """applied: objects of the manifests. scaled: workloads. drain: has to run."""

    applied: list[AppliedObject]
    scaled: list[AppliedObject]
    drain: Drain


async def make_changes(
    cluster: RunningCluster, changes: PlanChanges, rng: random.Random, *, is_projected: bool
) -> ChangesMade:
    """Make the changes, all at one time. is_projected: see apply_manifests(). Raises UserError for impossible ones."""
    nodes = cluster.objects(NODES)
    drained = [named_node(nodes, name, "--drain")["metadata"]["name"] for name in changes.drain]
    cordoned = [named_node(nodes, name, "--cordon")["metadata"]["name"] for name in changes.cordon]
    deleted = [name for selector in changes.delete_nodes for name in matching_nodes(nodes, selector, "--delete-nodes")]
    for like, count, option in ((changes.fit, changes.fit_nodes, "--fit"), (changes.like, changes.add_nodes, "--like")):
        if count:
            NodeCopies(cluster, named_node(nodes, like, option), rng).add(count)
    await cordon(cluster, [*cordoned, *drained])
    namespace = changes.namespace or "default"
    applied = await apply_manifests(cluster, changes.manifests, default_namespace=namespace, is_projected=is_projected)
    scaled = [await scale_workload(cluster, scale, changes.namespace) for scale in changes.scale]
    _check_memory(cluster, [*applied, *scaled])
    await delete_nodes(cluster, list(dict.fromkeys(deleted)))
    return ChangesMade(applied, scaled, Drain(cluster, drained))


def _check_memory(cluster: RunningCluster, workloads: Sequence[AppliedObject]) -> None:
    """Raise UserError if the pods of these workloads need more memory than there is."""
    for resource, namespace, name in workloads:
        stored = cluster.store.table(resource).get(f"{namespace}/{name}")
        spec = {} if stored is None else stored.object.get("spec") or {}
        pods = spec.get("replicas") or spec.get("parallelism") or 0
        limit = MemoryLimit(f"{resource.singular} {namespace}/{name} with {pods} pods")
        limit.add(pods * (_POD_BYTES + len(msgspec.json.encode(spec.get("template")))))


def parse_scale(text: str) -> ScaleChange:
    """Return the value of --scale. Raises UserError."""
    match = _SCALE.fullmatch(text)
    if match is None:
        raise UserError(f"--scale {text}: not KIND/NAME=REPLICAS", hint="for example --scale deploy/web=50")
    for resource in _SCALABLE:
        if match[1] in (resource.singular, resource.plural, resource.group_resource, *resource.short_names):
            return ScaleChange(resource, match[2], int(match[3]))
    served = any(match[1] in (resource.singular, resource.plural, *resource.short_names) for resource in ALL)
    problem = "has no replicas" if served else "is no resource"
    raise UserError(
        f"--scale {text}: {match[1]} {problem}", hint="deploy, statefulset, replicaset and rc can be scaled"
    )


def matching_nodes(nodes: Mapping[str, JSON], selector: str, option: str) -> list[str]:
    """Return the nodes of a label selector, or the one of a name. Raises UserError if there is none."""
    if selector in nodes:
        return [selector]
    if not any(character in selector for character in "=!,( "):
        raise UserError(
            f"{option} {selector}: there is no node of this name", hint=f"for example {min(nodes, default='KEY=VALUE')}"
        )
    try:
        labels = parse_label_selector(selector)
    except ValueError as error:
        raise UserError(f"{option} {selector}: {error}", hint="for example pool=old") from None
    names = [name for name, node in nodes.items() if labels.matches(node["metadata"].get("labels") or {})]
    if not names:
        raise UserError(f"{option} {selector}: no node has these labels", hint="kubectl get nodes --show-labels")
    return names


def named_node(nodes: Mapping[str, JSON], name: str, option: str) -> JSON:
    """Return a node. Raises UserError if there is none of this name."""
    if name not in nodes:
        matching_nodes(nodes, name, option)
        raise UserError(f"{option} {name}: there is no node of this name", hint=f"for example {min(nodes)}")
    return nodes[name]


# --- nodes ----------------------------------------------------------------------------------------------------------


class NodeCopies:
    """Adds nodes like one of the cluster: its labels, taints, resources, CSI drivers and devices, without its pods."""

    def __init__(self, cluster: RunningCluster, like: JSON, rng: random.Random) -> None:
        self._cluster = cluster
        self._like = like
        self._rng = rng
        name = like["metadata"]["name"]
        self._csi_node = cluster.objects(CSI_NODES).get(name)
        self._slices = [obj for obj in cluster.objects(RESOURCE_SLICES).values() if obj["spec"].get("nodeName") == name]

    def add(self, count: int) -> list[str]:
        """Add nodes; return their names."""
        names: list[str] = []
        number = 0
        existing = self._cluster.objects(NODES)
        while len(names) < count:
            number += 1
            name = f"{self._like['metadata']['name']}-new-{number}"
            if name not in existing:
                self._add(name)
                names.append(name)
        return names

    def _add(self, name: str) -> None:
        like = self._like
        taints = [taint for taint in like["spec"].get("taints") or () if not taint["key"].startswith(_TRANSIENT_TAINTS)]
        spec: JSON = {"taints": taints} if taints else {}
        status = {field: like["status"][field] for field in ("capacity", "allocatable") if field in like["status"]}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": self._metadata(name, like["metadata"].get("labels") or {}),
            "spec": spec,
            "status": status,
        }
        store = self._cluster.store
        created = store.create(NODES, node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": created["metadata"]["uid"]}
        if self._csi_node is not None:
            metadata = {**self._metadata(name, {}), "ownerReferences": [owner]}
            store.create(CSI_NODES, {**self._csi_node, "metadata": metadata})
        for number, obj in enumerate(self._slices):
            pool = {**obj["spec"]["pool"], "name": name}
            metadata = {**self._metadata(f"{name}-{number}", {}), "ownerReferences": [owner]}
            store.create(
                RESOURCE_SLICES,
                {**obj, "metadata": metadata, "spec": {**obj["spec"], "nodeName": name, "pool": pool}},
            )

    def _metadata(self, name: str, labels: Mapping[str, str]) -> JSON:
        like = self._like["metadata"]["name"]
        return {
            "name": name,
            "uid": new_uid(self._rng),
            "creationTimestamp": f"{self._cluster.clock.now():%Y-%m-%dT%H:%M:%SZ}",
            "labels": {label: name if value == like else value for label, value in labels.items()},
        }


async def cordon(cluster: RunningCluster, names: Sequence[str]) -> None:
    """Make nodes unschedulable."""
    for name in names:
        await cluster.client.patch(NODES, name, {"spec": {"unschedulable": True}}, PatchType.MERGE)


async def delete_nodes(cluster: RunningCluster, names: Sequence[str]) -> None:
    """Delete the Node objects: the pod garbage collector deletes their pods, and controllers replace them."""
    for name in names:
        await cluster.client.delete(NODES, name)


class Drain:
    """Evicts the pods of nodes, as `kubectl drain --force --ignore-daemonsets --delete-emptydir-data` does."""

    def __init__(self, cluster: RunningCluster, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._pods = [pod for pod in cluster.objects(PODS).values() if pod["spec"].get("nodeName") in nodes]
        self._refusals: dict[str, BlockedDrain] = {}  # by UID
        self._unmanaged: list[str] = []  # pods that no controller replaces

    async def run(self) -> None:
        """Evict until cancelled, or until every pod is evicted."""
        async with asyncio.TaskGroup() as group:
            for pod in self._pods:
                if _is_evicted(pod):
                    group.create_task(self._evict(pod), name=f"evict/{pod['metadata']['name']}")
                    if _controller_kind(pod) is None:
                        self._unmanaged.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")

    def blocked(self) -> list[BlockedDrain]:
        """Return the pods that are not evicted."""
        return [self._refusals[uid] for uid in sorted(self._refusals)]

    def findings(self, place: str) -> list[Finding]:
        """Return what the drain loses."""
        if not self._unmanaged:
            return []
        problem = f"no controller replaces {len(self._unmanaged)} evicted pods: {', '.join(self._unmanaged[:5])}"
        return [Finding(place, problem, "kubectl drain evicts them with --force only, and they are lost")]

    async def _evict(self, pod: JSON) -> None:
        metadata = pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        while True:
            try:
                await self._cluster.client.create_raw(PODS, body, namespace, name=name, subresource="eviction")
            except NotFound:
                pass
            except ApiError as error:
                if error.code == 409:  # another pod has the name now
                    pass
                else:
                    self._refusals[uid] = BlockedDrain(pod["spec"]["nodeName"], f"{namespace}/{name}", error.message)
                    await asyncio.sleep(_EVICTION_SECONDS)
                    continue
            self._refusals.pop(uid, None)
            return


def _is_evicted(pod: JSON) -> bool:
    """Return False for pods that kubectl drain ignores: of DaemonSets, static, and finished ones."""
    if _MIRROR in (pod["metadata"].get("annotations") or {}) or pod["metadata"].get("deletionTimestamp"):
        return False
    return _controller_kind(pod) not in ("DaemonSet", "Node")


def _controller_kind(pod: JSON) -> str | None:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((reference["kind"] for reference in references if reference.get("controller")), None)


# --- workloads ------------------------------------------------------------------------------------------------------


def scale_target(cluster: RunningCluster, scale: ScaleChange, namespace: str) -> tuple[str, JSON]:
    """Return namespace and object of the workload to scale. Raises UserError."""
    objects = cluster.objects(scale.resource)
    title = f"--scale {scale.resource.singular}/{scale.name}"
    if namespace:
        obj = objects.get(f"{namespace}/{scale.name}")
        if obj is None:
            raise UserError(f"{title}: there is none in namespace {namespace}", hint="choose another one with -n")
        return namespace, obj
    keys = [key for key in objects if key.endswith(f"/{scale.name}")]
    if len(keys) != 1:
        namespaces = ", ".join(sorted(key.partition("/")[0] for key in keys))
        problem = f"is in the namespaces {namespaces}" if keys else "does not exist"
        raise UserError(f"{title} {problem}", hint="choose the namespace with -n" if keys else "check the name")
    return keys[0].partition("/")[0], objects[keys[0]]


async def scale_workload(cluster: RunningCluster, scale: ScaleChange, namespace: str) -> AppliedObject:
    """Set the replicas of a workload; return resource, namespace and name. Raises UserError."""
    namespace, _ = scale_target(cluster, scale, namespace)
    body = {"spec": {"replicas": scale.replicas}}
    await cluster.client.patch(scale.resource, scale.name, body, PatchType.MERGE, namespace)
    return scale.resource, namespace, scale.name
