"""Registry of resources: API path and Struct of each kind."""

from __future__ import annotations

from typing import Any, Generic, TypedDict, TypeVar, Unpack

import msgspec

from kubeloop.kube.objects import api_types, device_types, storage_types, workload_types

T = TypeVar("T")


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """One API resource. `type` is what its objects decode to; `dict` for plain JSON.

    gate: the feature gate that must be on for an API server to serve it, "" for those that every server has.
    since: the first Kubernetes release that serves it by default, "" for those of v1.33, the oldest supported one.
    """

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
    gate: str = ""
    since: str = ""

    @property
    def api_version(self) -> str:
        """apiVersion of manifests: "apps/v1", or "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """Name in kubectl: "deployments.apps", or "pods" for the core group."""
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


class Names(TypedDict, total=False):
    """Names of a resource, separated by spaces: short names, categories, subresources."""

    short: str
    categories: str
    subresources: str


def new_resource(
    type_: type[T],
    group_version: str,
    plural: str = "",
    kind: str = "",
    *,
    namespaced: bool = True,
    gate: str = "",
    since: str = "",
    **names: Unpack[Names],
) -> Resource[T]:
    """Return a resource. kind: the name of the type by default. plural: the regular one by default."""
    group, _, version = group_version.rpartition("/")
    kind = kind or type_.__name__
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural or _plural(kind),
        namespaced=namespaced,
        type=type_,
        singular=kind.lower(),
        short_names=tuple(names.get("short", "").split()),
        categories=tuple(names.get("categories", "").split()),
        subresources=tuple(names.get("subresources", "").split()),
        gate=gate,
        since=since,
    )


def json_resource(
    group_version: str, kind: str, *, namespaced: bool = True, gate: str = "", **names: Unpack[Names]
) -> Resource[dict[str, Any]]:
    """Return a resource whose objects stay plain JSON."""
    return new_resource(dict, group_version, "", kind, namespaced=namespaced, gate=gate, **names)


def _plural(kind: str) -> str:
    """Return the resource of a kind, by the rule of apimachinery's UnsafeGuessKindToResource."""
    singular = kind.lower()
    if singular == "endpoints":
        return singular
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith("s") else f"{singular}s"


PODS = new_resource(
    api_types.Pod,
    "v1",
    short="po",
    categories="all",
    subresources="attach binding ephemeralcontainers eviction exec log portforward proxy resize status",
)
NODES = new_resource(api_types.Node, "v1", namespaced=False, short="no", subresources="proxy status")
NAMESPACES = new_resource(api_types.Namespace, "v1", namespaced=False, short="ns", subresources="finalize status")
SERVICES = new_resource(api_types.Service, "v1", short="svc", categories="all", subresources="proxy status")
REPLICATION_CONTROLLERS = new_resource(
    api_types.ReplicationController, "v1", short="rc", categories="all", subresources="scale status"
)
PERSISTENT_VOLUMES = new_resource(
    storage_types.PersistentVolume, "v1", namespaced=False, short="pv", subresources="status"
)
PERSISTENT_VOLUME_CLAIMS = new_resource(storage_types.PersistentVolumeClaim, "v1", short="pvc", subresources="status")
EVENTS = new_resource(api_types.Event, "v1", short="ev")
RESOURCE_QUOTAS = new_resource(api_types.ResourceQuota, "v1", short="quota", subresources="status")
CONFIG_MAPS = json_resource("v1", "ConfigMap", short="cm")
SECRETS = json_resource("v1", "Secret")
SERVICE_ACCOUNTS = json_resource("v1", "ServiceAccount", short="sa", subresources="token")
ENDPOINTS = json_resource("v1", "Endpoints", short="ep")
ENDPOINT_SLICES = json_resource("discovery.k8s.io/v1", "EndpointSlice")
DEPLOYMENTS = new_resource(
    api_types.Deployment, "apps/v1", short="deploy", categories="all", subresources="scale status"
)
REPLICA_SETS = new_resource(api_types.ReplicaSet, "apps/v1", short="rs", categories="all", subresources="scale status")
STATEFUL_SETS = new_resource(
    api_types.StatefulSet, "apps/v1", short="sts", categories="all", subresources="scale status"
)
DAEMON_SETS = new_resource(api_types.DaemonSet, "apps/v1", short="ds", categories="all", subresources="status")
JOBS = new_resource(api_types.Job, "batch/v1", categories="all", subresources="status")
CRON_JOBS = new_resource(api_types.CronJob, "batch/v1", short="cj", categories="all", subresources="status")
HORIZONTAL_POD_AUTOSCALERS = new_resource(
    api_types.HorizontalPodAutoscaler, "autoscaling/v2", short="hpa", categories="all", subresources="status"
)
CONTROLLER_REVISIONS = new_resource(api_types.ControllerRevision, "apps/v1")
POD_DISRUPTION_BUDGETS = new_resource(api_types.PodDisruptionBudget, "policy/v1", short="pdb", subresources="status")
PRIORITY_CLASSES = new_resource(api_types.PriorityClass, "scheduling.k8s.io/v1", namespaced=False, short="pc")
WORKLOADS = new_resource(workload_types.Workload, "scheduling.k8s.io/v1alpha2", gate="GenericWorkload")
POD_GROUPS = new_resource(
    workload_types.PodGroup, "scheduling.k8s.io/v1alpha2", gate="GenericWorkload", subresources="status"
)
STORAGE_CLASSES = new_resource(storage_types.StorageClass, "storage.k8s.io/v1", namespaced=False, short="sc")
CSI_NODES = new_resource(storage_types.CSINode, "storage.k8s.io/v1", namespaced=False)
CSI_DRIVERS = new_resource(storage_types.CSIDriver, "storage.k8s.io/v1", namespaced=False)
CSI_STORAGE_CAPACITIES = new_resource(storage_types.CSIStorageCapacity, "storage.k8s.io/v1")
VOLUME_ATTACHMENTS = new_resource(
    storage_types.VolumeAttachment, "storage.k8s.io/v1", namespaced=False, subresources="status"
)
RESOURCE_CLAIMS = new_resource(device_types.ResourceClaim, "resource.k8s.io/v1", subresources="status", since="v1.34")
RESOURCE_CLAIM_TEMPLATES = new_resource(device_types.ResourceClaimTemplate, "resource.k8s.io/v1", since="v1.34")
DEVICE_CLASSES = new_resource(device_types.DeviceClass, "resource.k8s.io/v1", namespaced=False, since="v1.34")
RESOURCE_SLICES = new_resource(device_types.ResourceSlice, "resource.k8s.io/v1", namespaced=False, since="v1.34")
DEVICE_TAINT_RULES = new_resource(
    device_types.DeviceTaintRule,
    "resource.k8s.io/v1beta2",
    namespaced=False,
    gate="DRADeviceTaintRules",
    subresources="status",
)
CLUSTER_ROLES = json_resource("rbac.authorization.k8s.io/v1", "ClusterRole", namespaced=False)
SERVICE_CIDRS = json_resource("networking.k8s.io/v1", "ServiceCIDR", namespaced=False, subresources="status")
IP_ADDRESSES = json_resource("networking.k8s.io/v1", "IPAddress", namespaced=False, short="ip")
CERTIFICATE_SIGNING_REQUESTS = json_resource(
    "certificates.k8s.io/v1", "CertificateSigningRequest", namespaced=False, short="csr", subresources="approval status"
)
VOLUME_ATTRIBUTES_CLASSES = new_resource(
    api_types.PartialObjectMetadata,
    "storage.k8s.io/v1",
    kind="VolumeAttributesClass",
    namespaced=False,
    since="v1.34",
    short="vac",
)
STORAGE_VERSION_MIGRATIONS = json_resource(
    "storagemigration.k8s.io/v1beta1",
    "StorageVersionMigration",
    namespaced=False,
    gate="StorageVersionMigrator",
    subresources="status",
)
CUSTOM_RESOURCE_DEFINITIONS = json_resource(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    namespaced=False,
    short="crd crds",
    categories="api-extensions",
    subresources="status",
)
VALIDATING_ADMISSION_POLICIES = json_resource(
    "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicy",
    namespaced=False,
    categories="api-extensions",
    subresources="status",
)
LEASES = new_resource(api_types.Lease, "coordination.k8s.io/v1")

ALL: tuple[Resource[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Resource))
BY_GROUP_KIND: dict[tuple[str, str], Resource[Any]] = {(resource.group, resource.kind): resource for resource in ALL}
BY_GROUP_RESOURCE: dict[str, Resource[Any]] = {resource.group_resource: resource for resource in ALL}
