"""The registry of resources: where each kind lives in the API and which Struct reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeloop.kube import objects, storage_objects

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One API resource. `type` is what its objects decode to; `dict` for plain JSON."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T]
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """As in manifests: "apps/v1", or "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """As kubectl prints it: "deployments.apps", or "pods" for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection (no name), of an object or of a subresource. No namespace: across all of them."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _resource(
    type_: type[T],
    group_version: str,
    plural: str,
    *,
    namespaced: bool = True,
    kind: str = "",
    short: str = "",
    categories: str = "",
    subresources: str = "",
) -> Resource[T]:
    group, _, version = group_version.rpartition("/")
    kind = kind or type_.__name__
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        type=type_,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=tuple(subresources.split()),
    )


PODS = _resource(
    objects.Pod,
    "v1",
    "pods",
    short="po",
    categories="all",
    subresources="attach binding ephemeralcontainers eviction exec log portforward proxy resize status",
)
NODES = _resource(objects.Node, "v1", "nodes", namespaced=False, short="no", subresources="proxy status")
NAMESPACES = _resource(
    objects.Namespace, "v1", "namespaces", namespaced=False, short="ns", subresources="finalize status"
)
SERVICES = _resource(objects.Service, "v1", "services", short="svc", categories="all", subresources="proxy status")
REPLICATION_CONTROLLERS = _resource(
    objects.ReplicationController,
    "v1",
    "replicationcontrollers",
    short="rc",
    categories="all",
    subresources="scale status",
)
PERSISTENT_VOLUMES = _resource(
    storage_objects.PersistentVolume, "v1", "persistentvolumes", namespaced=False, short="pv", subresources="status"
)
PERSISTENT_VOLUME_CLAIMS = _resource(
    storage_objects.PersistentVolumeClaim, "v1", "persistentvolumeclaims", short="pvc", subresources="status"
)
EVENTS = _resource(objects.Event, "v1", "events", short="ev")
RESOURCE_QUOTAS = _resource(objects.ResourceQuota, "v1", "resourcequotas", short="quota", subresources="status")
CONFIG_MAPS: Resource[dict[str, Any]] = _resource(dict, "v1", "configmaps", kind="ConfigMap", short="cm")
SECRETS: Resource[dict[str, Any]] = _resource(dict, "v1", "secrets", kind="Secret")
SERVICE_ACCOUNTS: Resource[dict[str, Any]] = _resource(
    dict, "v1", "serviceaccounts", kind="ServiceAccount", short="sa", subresources="token"
)
DEPLOYMENTS = _resource(
    objects.Deployment, "apps/v1", "deployments", short="deploy", categories="all", subresources="scale status"
)
REPLICA_SETS = _resource(
    objects.ReplicaSet, "apps/v1", "replicasets", short="rs", categories="all", subresources="scale status"
)
STATEFUL_SETS = _resource(
    objects.StatefulSet, "apps/v1", "statefulsets", short="sts", categories="all", subresources="scale status"
)
POD_DISRUPTION_BUDGETS = _resource(
    objects.PodDisruptionBudget, "policy/v1", "poddisruptionbudgets", short="pdb", subresources="status"
)
PRIORITY_CLASSES = _resource(
    objects.PriorityClass, "scheduling.k8s.io/v1", "priorityclasses", namespaced=False, short="pc"
)
STORAGE_CLASSES = _resource(
    storage_objects.StorageClass, "storage.k8s.io/v1", "storageclasses", namespaced=False, short="sc"
)
CSI_NODES = _resource(storage_objects.CSINode, "storage.k8s.io/v1", "csinodes", namespaced=False)
CSI_DRIVERS = _resource(storage_objects.CSIDriver, "storage.k8s.io/v1", "csidrivers", namespaced=False)
CSI_STORAGE_CAPACITIES = _resource(storage_objects.CSIStorageCapacity, "storage.k8s.io/v1", "csistoragecapacities")
VOLUME_ATTACHMENTS = _resource(
    storage_objects.VolumeAttachment, "storage.k8s.io/v1", "volumeattachments", namespaced=False, subresources="status"
)
LEASES = _resource(objects.Lease, "coordination.k8s.io/v1", "leases")

ALL: tuple[Resource[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Resource))
BY_GROUP_KIND: dict[tuple[str, str], Resource[Any]] = {(each.group, each.kind): each for each in ALL}
