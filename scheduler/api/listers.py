"""Listers: the resources that plugins read besides nodes and pods, from the informers' caches."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import (
    Namespace,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from kubeloop.kube.objects.storage_types import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kubeloop.kube.objects.workload_types import PodGroup

T = TypeVar("T")


class Lister(Protocol[T]):
    """The read-only part of an informer's store. Keys are "namespace/name", or "name" for cluster-scoped kinds."""

    @property
    def version(self) -> int:
        """Increases with every change."""
        ...

    def get(self, key: str) -> T | None: ...

    def list(self) -> builtins.list[T]: ...

    def by_index(self, index: str, value: str) -> builtins.list[T]: ...

    def add_index(self, name: str, function: Callable[[T], Iterable[str]] | None = None) -> None: ...


def _empty() -> Any:
    return Store[Any]()


class Listers(msgspec.Struct):
    """One lister per kind; omitted ones are empty. Plugins add indexes in their constructors, so set it up before.

    pod_groups: empty without the feature gate GenericWorkload.
    """

    namespaces: Lister[Namespace] = msgspec.field(default_factory=_empty)
    pods: Lister[Pod] = msgspec.field(default_factory=_empty)
    services: Lister[Service] = msgspec.field(default_factory=_empty)
    replica_sets: Lister[ReplicaSet] = msgspec.field(default_factory=_empty)
    stateful_sets: Lister[StatefulSet] = msgspec.field(default_factory=_empty)
    replication_controllers: Lister[ReplicationController] = msgspec.field(default_factory=_empty)
    pod_disruption_budgets: Lister[PodDisruptionBudget] = msgspec.field(default_factory=_empty)
    persistent_volumes: Lister[PersistentVolume] = msgspec.field(default_factory=_empty)
    persistent_volume_claims: Lister[PersistentVolumeClaim] = msgspec.field(default_factory=_empty)
    storage_classes: Lister[StorageClass] = msgspec.field(default_factory=_empty)
    csi_nodes: Lister[CSINode] = msgspec.field(default_factory=_empty)
    csi_drivers: Lister[CSIDriver] = msgspec.field(default_factory=_empty)
    csi_storage_capacities: Lister[CSIStorageCapacity] = msgspec.field(default_factory=_empty)
    volume_attachments: Lister[VolumeAttachment] = msgspec.field(default_factory=_empty)
    pod_groups: Lister[PodGroup] = msgspec.field(default_factory=_empty)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty if it is not cached."""
        namespace = self.namespaces.get(name)
        return {} if namespace is None else namespace.metadata.labels
