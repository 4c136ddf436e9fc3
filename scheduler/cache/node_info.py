"""PodInfo: a pod with its requests, ports, claims and classes. NodeInfo: a node and the pods on it.

Resources are plain ints by resource name: "cpu" in millicores, everything else in units (bytes, counts). A PodInfo is
immutable; a NodeInfo is not, and each change gives it a new generation, greater than every one before.
Source: pkg/scheduler/framework/types.go of v1.36.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TypeVar

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.values.quantities import milli_value, value
from kubeloop.scheduler.cache.block_map import BlockMap
from kubeloop.scheduler.cache.pod_classes import (
    NO_AFFINITY,
    AffinityClass,
    LabelClass,
    affinity_class,
    label_class,
)
from kubeloop.scheduler.cache.pod_requests import (
    DEFAULT_REQUEST_RULES,
    RequestRules,
    accounted_requests,
    status_of_resources,
)

_generations = itertools.count(1)  # for the whole process, so that generations of NodeInfos are unique

T = TypeVar("T")

HostPort = tuple[str, str, int]
"""(IP, protocol, port); the IP "0.0.0.0" stands for all addresses."""


class PodInfo:
    """A pod and what the scheduler derives from it.

    requests: including init containers, sidecars, pod-level resources and overhead; for a bound pod also an in-place
    resize in progress. non_zero_milli_cpu, non_zero_memory: the same with 100m and 200 MiB for each container without a
    request. label_class, affinity_class: see pod_classes; the latter and the affinity terms are computed on first use.
    """

    __slots__ = (
        "_affinity_class",
        "_rules",
        "host_ports",
        "key",
        "label_class",
        "non_zero_memory",
        "non_zero_milli_cpu",
        "pod",
        "priority",
        "pvc_keys",
        "requests",
        "uid",
    )

    def __init__(self, pod: Pod, rules: RequestRules = DEFAULT_REQUEST_RULES) -> None:
        self.pod = pod
        self._rules = rules
        self.key: str = pod.key
        self.uid: str = pod.metadata.uid
        self.priority: int = pod.spec.priority or 0
        self.requests: dict[str, int]
        self.non_zero_milli_cpu: int
        self.non_zero_memory: int
        self.requests, self.non_zero_milli_cpu, self.non_zero_memory = accounted_requests(pod, rules)
        self.host_ports: tuple[HostPort, ...] = tuple(_host_ports(pod))
        self.pvc_keys: tuple[str, ...] = tuple(_pvc_keys(pod)) if pod.spec.volumes else ()
        self.label_class: LabelClass = label_class(pod)
        self._affinity_class: AffinityClass | None = None if self.has_affinity else NO_AFFINITY

    def with_pod(self, pod: Pod) -> PodInfo:
        """Return the PodInfo of `pod`, another version of the same pod. Unchanged parts are reused."""
        old = self.pod
        if pod is old:
            return self
        if (
            pod.metadata.uid != self.uid
            or pod.spec.containers != old.spec.containers
            or pod.spec.init_containers != old.spec.init_containers
            or pod.spec.resources != old.spec.resources
            or pod.spec.overhead != old.spec.overhead
            or pod.spec.volumes != old.spec.volumes
            or pod.spec.affinity != old.spec.affinity
            or (pod.status is not old.status and status_of_resources(pod) != status_of_resources(old))
        ):
            return PodInfo(pod, self._rules)
        copy = PodInfo.__new__(PodInfo)
        copy.pod = pod
        copy._rules = self._rules
        copy.key = self.key
        copy.uid = self.uid
        copy.priority = pod.spec.priority or 0
        copy.requests = self.requests
        copy.non_zero_milli_cpu = self.non_zero_milli_cpu
        copy.non_zero_memory = self.non_zero_memory
        copy.host_ports = self.host_ports
        copy.pvc_keys = self.pvc_keys
        copy.label_class = self.label_class if pod.metadata is old.metadata else label_class(pod)
        copy._affinity_class = self._affinity_class
        return copy

    @property
    def affinity_class(self) -> AffinityClass:
        affinity = self._affinity_class
        if affinity is None:
            affinity = self._affinity_class = affinity_class(self.pod)
        return affinity

    @property
    def has_affinity(self) -> bool:
        """True if podAffinity or podAntiAffinity is set, even if empty."""
        affinity = self.pod.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


def _host_ports(pod: Pod) -> Iterator[HostPort]:
    for container in pod.spec.containers:
        for port in container.ports:
            if port.host_port > 0:
                yield port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            for port in container.ports:
                if port.host_port > 0:
                    yield port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port


def _pvc_keys(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"


class ImageState:
    """An image: its size in bytes, and the nodes that have it."""

    __slots__ = ("nodes", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.nodes: set[str] = set()

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)


class ImageCount:
    """An ImageState in a snapshot: num_nodes is the number of nodes when the snapshot was taken."""

    __slots__ = ("num_nodes", "size")

    def __init__(self, size: int, num_nodes: int) -> None:
        self.size = size
        self.num_nodes = num_nodes


def node_allocatable(node: Node) -> dict[str, int]:
    """Return status.allocatable as integers, including "pods"; without resources that are never scheduled."""
    return {
        name: milli_value(quantity) if name == "cpu" else value(quantity)
        for name, quantity in node.status.allocatable.items()
        if name in _NATIVE or is_scalar_resource(name)
    }


_NATIVE = frozenset(("cpu", "memory", "ephemeral-storage", "pods"))

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of the implicit extended resource of each DeviceClass."""


def is_scalar_resource(name: str) -> bool:
    """Return True for extended resources, huge pages, attachable volumes and kubernetes.io/ resources.

    Source: pkg/scheduler/util/utils.go.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    return "/" in name and not name.startswith("requests.")


def is_extended_resource(name: str) -> bool:
    """Return True for a resource outside the kubernetes.io domains. Source: v1helper.IsExtendedResourceName."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def may_be_devices(name: str) -> bool:
    """Return True for a resource that a DeviceClass may provide. Source: schedutil.IsDRAExtendedResourceName."""
    return "/" in name and (is_extended_resource(name) or name.startswith(DEVICE_CLASS_PREFIX))


def _count(counts: dict[T, int], key: T) -> None:
    counts[key] = counts.get(key, 0) + 1


def _uncount(counts: dict[T, int], key: T) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


class NodeInfo:
    """A node and the pods on it, including assumed ones.

    node: None if only pods are known: the node is not seen yet, or was deleted before its pods.
    pods: by UID, in the order they were added. label_counts, affinity_counts: number of pods of each label class, and
    of each affinity class, without pods that have no pod (anti-)affinity.
    requested, non_zero_milli_cpu, non_zero_memory: sums over the pods; a resource that decreased to 0 may remain as 0.
    used_ports: a set as in kube-scheduler: if two pods have the same port, removing the first frees it.
    pvc_ref_counts: "namespace/name" of a claim -> uses by pods here.
    image_states: name -> image; in a snapshot's copy the counts do not change.
    """

    __slots__ = (
        "affinity_counts",
        "allocatable",
        "generation",
        "image_states",
        "label_counts",
        "name",
        "node",
        "non_zero_memory",
        "non_zero_milli_cpu",
        "pods",
        "pvc_ref_counts",
        "requested",
        "used_ports",
    )

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.node: Node | None = None
        self.pods: BlockMap[str, PodInfo] = BlockMap()
        self.label_counts: dict[LabelClass, int] = {}
        self.affinity_counts: dict[AffinityClass, int] = {}
        self.used_ports: set[HostPort] = set()
        self.requested: dict[str, int] = {}
        self.non_zero_milli_cpu = 0
        self.non_zero_memory = 0
        self.allocatable: dict[str, int] = {}
        self.image_states: Mapping[str, ImageState | ImageCount] = {}
        self.pvc_ref_counts: dict[str, int] = {}
        self.generation = next(_generations)

    @classmethod
    def of(cls, node: Node, *pods: Pod) -> NodeInfo:
        """Return a NodeInfo outside of any cache."""
        info = cls(node.metadata.name)
        info.set_node(node)
        for pod in pods:
            info.add_pod(PodInfo(pod))
        return info

    def set_node(self, node: Node) -> None:
        self.name = node.metadata.name
        self.node = node
        self.allocatable = node_allocatable(node)
        self.generation = next(_generations)

    def remove_node(self) -> None:
        """Remove the node object; the pods stay."""
        self.node = None
        self.generation = next(_generations)

    def add_pod(self, pod: PodInfo) -> None:
        self.pods.add(pod.uid, pod)
        _count(self.label_counts, pod.label_class)
        if pod.has_affinity:
            _count(self.affinity_counts, pod.affinity_class)
        requested = self.requested
        for name, amount in pod.requests.items():
            requested[name] = requested.get(name, 0) + amount
        self.non_zero_milli_cpu += pod.non_zero_milli_cpu
        self.non_zero_memory += pod.non_zero_memory
        if pod.host_ports:
            self.used_ports.update(pod.host_ports)
        for key in pod.pvc_keys:
            _count(self.pvc_ref_counts, key)
        self.generation = next(_generations)

    def remove_pod(self, uid: str) -> None:
        """Remove the pod and its requests. Raises KeyError if it is not on this node."""
        pod = self.pods.pop(uid)
        _uncount(self.label_counts, pod.label_class)
        if pod.has_affinity:
            _uncount(self.affinity_counts, pod.affinity_class)
        for name, amount in pod.requests.items():
            self.requested[name] -= amount
        self.non_zero_milli_cpu -= pod.non_zero_milli_cpu
        self.non_zero_memory -= pod.non_zero_memory
        self.used_ports.difference_update(pod.host_ports)
        for key in pod.pvc_keys:
            _uncount(self.pvc_ref_counts, key)
        self.generation = next(_generations)

    def clone(self) -> NodeInfo:
        """Return an independent copy with the same generation. PodInfos are shared."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.name = self.name
        copy.node = self.node
        copy.pods = self.pods.copy()
        copy.label_counts = self.label_counts.copy()
        copy.affinity_counts = self.affinity_counts.copy()
        copy.used_ports = self.used_ports.copy()
        copy.requested = self.requested.copy()
        copy.non_zero_milli_cpu = self.non_zero_milli_cpu
        copy.non_zero_memory = self.non_zero_memory
        copy.allocatable = self.allocatable
        copy.image_states = {name: ImageCount(state.size, state.num_nodes) for name, state in self.image_states.items()}
        copy.pvc_ref_counts = self.pvc_ref_counts.copy()
        copy.generation = self.generation
        return copy

    def copy_sums(self) -> NodeInfo:
        """Return a copy for add_to_sums and remove_from_sums: everything but `pods` and `requested` is shared."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.name = self.name
        copy.node = self.node
        copy.pods = self.pods.copy()
        copy.label_counts = self.label_counts
        copy.affinity_counts = self.affinity_counts
        copy.used_ports = self.used_ports
        copy.requested = self.requested.copy()
        copy.non_zero_milli_cpu = self.non_zero_milli_cpu
        copy.non_zero_memory = self.non_zero_memory
        copy.allocatable = self.allocatable
        copy.image_states = self.image_states
        copy.pvc_ref_counts = self.pvc_ref_counts
        copy.generation = self.generation
        return copy

    def add_to_sums(self, pod: PodInfo) -> None:
        self.pods.add(pod.uid, pod)
        requested = self.requested
        for name, amount in pod.requests.items():
            requested[name] = requested.get(name, 0) + amount

    def remove_from_sums(self, pod: PodInfo) -> None:
        self.pods.pop(pod.uid)
        requested = self.requested
        for name, amount in pod.requests.items():
            requested[name] -= amount

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, pods={len(self.pods)}, generation={self.generation})"
