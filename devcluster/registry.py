"""What the development API server serves: every resource with its verbs and the rules that differ between kinds.

Extends `kube.resources.ALL` by kinds that manifests carry and that need storing only. Subresources are named by their
resource; what they do is `subresources.py`. May import kube and the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubeloop.kube import resources
from kubeloop.kube.resources import Resource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


def _plain(
    group_version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: str = "",
    categories: str = "",
    subresources: str = "",
) -> Resource[dict[str, Any]]:
    group, _, version = group_version.rpartition("/")
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        type=dict,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=tuple(subresources.split()),
    )


ENDPOINTS = _plain("v1", "endpoints", "Endpoints", short="ep")
LIMIT_RANGES = _plain("v1", "limitranges", "LimitRange", short="limits")
RESOURCE_QUOTAS = _plain("v1", "resourcequotas", "ResourceQuota", short="quota", subresources="status")
POD_TEMPLATES = _plain("v1", "podtemplates", "PodTemplate")
BINDINGS = _plain("v1", "bindings", "Binding")
DAEMON_SETS = _plain("apps/v1", "daemonsets", "DaemonSet", short="ds", categories="all", subresources="status")
CONTROLLER_REVISIONS = _plain("apps/v1", "controllerrevisions", "ControllerRevision")
JOBS = _plain("batch/v1", "jobs", "Job", categories="all", subresources="status")
CRON_JOBS = _plain("batch/v1", "cronjobs", "CronJob", short="cj", categories="all", subresources="status")
HORIZONTAL_POD_AUTOSCALERS = _plain(
    "autoscaling/v2",
    "horizontalpodautoscalers",
    "HorizontalPodAutoscaler",
    short="hpa",
    categories="all",
    subresources="status",
)
INGRESSES = _plain("networking.k8s.io/v1", "ingresses", "Ingress", short="ing", subresources="status")
INGRESS_CLASSES = _plain("networking.k8s.io/v1", "ingressclasses", "IngressClass", namespaced=False)
NETWORK_POLICIES = _plain("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", short="netpol")
ROLES = _plain("rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDINGS = _plain("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = _plain("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _plain(
    "rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ENDPOINT_SLICES = _plain("discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
EVENTS_V1 = _plain("events.k8s.io/v1", "events", "Event", short="ev")
RUNTIME_CLASSES = _plain("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False)

SELF_SUBJECT_REVIEWS = _plain("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
TOKEN_REVIEWS = _plain("authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = _plain(
    "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
SELF_SUBJECT_RULES_REVIEWS = _plain(
    "authorization.k8s.io/v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False
)
SUBJECT_ACCESS_REVIEWS = _plain(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
LOCAL_SUBJECT_ACCESS_REVIEWS = _plain(
    "authorization.k8s.io/v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"
)

REVIEWS = (
    SELF_SUBJECT_REVIEWS,
    TOKEN_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    LOCAL_SUBJECT_ACCESS_REVIEWS,
)
VIRTUAL = (BINDINGS, *REVIEWS)
"""Resources that are answered and never stored."""

_OWN = tuple(value for value in list(globals().values()) if isinstance(value, Resource))

SERVED: tuple[Resource[Any], ...] = tuple(
    sorted((*resources.ALL, *_OWN), key=lambda each: (each.group, each.version, each.plural))
)

GROUP_ORDER = (
    "",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "apps",
)
"""Groups as discovery lists them: kubectl prefers the first where a short name is ambiguous."""


@dataclass(frozen=True, slots=True)
class Served:
    """One resource with the server's rules for it.

    has_status: status is written through its subresource only. generation: counted on changes of spec.
    create_on_update: a PUT to a free name creates. unconditional_update: a PUT may leave out resourceVersion.
    deleted_whole: DELETE answers with the object, not a Status, even if it is gone at once.
    """

    resource: Resource[Any]
    verbs: tuple[str, ...]
    has_status: bool
    generation: bool
    create_on_update: bool
    unconditional_update: bool
    deleted_whole: bool

    @property
    def stored(self) -> bool:
        return self.verbs != CREATE_ONLY

    @property
    def list_kind(self) -> str:
        return self.resource.kind + "List"


_WITH_GENERATION = {
    "pods", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "replicationcontrollers",
    "poddisruptionbudgets.policy", "jobs.batch", "cronjobs.batch", "ingresses.networking.k8s.io",
    "networkpolicies.networking.k8s.io", "ingressclasses.networking.k8s.io",
    "csistoragecapacities.storage.k8s.io", "priorityclasses.scheduling.k8s.io", "endpointslices.discovery.k8s.io",
}  # fmt: skip
_CREATE_ON_UPDATE = {
    "events", "events.events.k8s.io", "leases.coordination.k8s.io", "limitranges", "resourcequotas", "endpoints",
    "services", "nodes", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
}  # fmt: skip
_NO_UNCONDITIONAL_UPDATE = {
    "poddisruptionbudgets.policy", "leases.coordination.k8s.io", "csinodes.storage.k8s.io",
    "endpointslices.discovery.k8s.io", "csidrivers.storage.k8s.io", "volumeattachments.storage.k8s.io",
    "runtimeclasses.node.k8s.io",
}  # fmt: skip
_DELETED_WHOLE = {
    "pods", "services", "persistentvolumes", "persistentvolumeclaims", "podtemplates", "serviceaccounts",
    "replicationcontrollers", "resourcequotas", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io",
    "csidrivers.storage.k8s.io", "volumeattachments.storage.k8s.io",
}  # fmt: skip


def _served(resource: Resource[Any]) -> Served:
    name = resource.group_resource
    verbs: tuple[str, ...] = ALL_VERBS
    if resource in VIRTUAL:
        verbs = CREATE_ONLY
    elif resource is resources.NAMESPACES:
        verbs = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
    return Served(
        resource=resource,
        verbs=verbs,
        has_status="status" in resource.subresources,
        generation=name in _WITH_GENERATION,
        create_on_update=name in _CREATE_ON_UPDATE,
        unconditional_update=name not in _NO_UNCONDITIONAL_UPDATE,
        deleted_whole=name in _DELETED_WHOLE,
    )


BY_PATH: dict[tuple[str, str, str], Served] = {
    (each.group, each.version, each.plural): _served(each) for each in SERVED
}
"""By group, version and plural, as paths name them."""

BY_KIND: dict[tuple[str, str], Served] = {
    (each.resource.api_version, each.resource.kind): each for each in BY_PATH.values()
}
"""By apiVersion and kind, as manifests name them."""

VERSIONS: dict[str, str] = {each.group: each.version for each in SERVED}
"""The version of each group; the server has one of each."""


def served(resource: Resource[Any]) -> Served:
    return BY_PATH[resource.group, resource.version, resource.plural]


def api_groups() -> list[str]:
    """Groups with a name, in the order of discovery."""
    return sorted((group for group in VERSIONS if group), key=GROUP_ORDER.index)
