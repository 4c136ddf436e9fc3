"""Registry of served resources: every kind is declared here once, in the order of discovery.

A declaration has the kind's group, version and names, its subresources, and how its strategy differs from the default.
Paths, discovery, OpenAPI, storage and field ownership follow from it and from the kind's type (kube.schema). Columns of
`kubectl get` and rules that need a function are in the kind's strategy (api.strategy). May import `devcluster.api` and
`kube`.

    declare("v1", "limitranges", "LimitRange", short="limits", create_on_update=True)
    declare("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False, unconditional_update=False)

Sources: the strategies and storages under pkg/registry, the order of groups in cmd/kube-apiserver/app/aggregator.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from kubeloop.devcluster.api.component_statuses import component_statuses
from kubeloop.devcluster.api.custom_resources import CustomResourceVersion
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import Resource

CUSTOM_RESOURCE_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
"""Media types of patches of custom resources."""
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
READ_ONLY = ("get", "list")
Dependents = Literal["deleted", "orphaned", "ignored"]


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """One resource with the server's rules for it.

    generation: fields whose changes increase metadata.generation, () for kinds without generation; generation_metadata:
    field of metadata whose changes do, too. create_on_update: a PUT of a missing object creates it.
    unconditional_update: a PUT may omit resourceVersion. return_deleted_object: DELETE returns the object instead of a
    Status. dependents: default propagation ("ignored": dependents never count). empty_status: status of a new object.
    empty_object: values in an empty object, as bookmarks contain it, other than those of the type.
    storage_resource: the resource as which objects are stored, if it differs. crd_version: version of a custom
    resource. deprecated: warning of every request, or "". own_list_kind: kind of lists, if it is not the kind with
    "List". compute_objects: returns the objects of a kind that is not stored, on each read. resets_status: False if
    writes of the object itself change its status, too.
    """

    resource: Resource[Any]
    verbs: tuple[str, ...] = ALL_VERBS
    generation: tuple[str, ...] = ()
    generation_metadata: str = ""
    create_on_update: bool = False
    unconditional_update: bool = True
    return_deleted_object: bool = False
    dependents: Dependents = "deleted"
    empty_status: JSON = field(default_factory=dict)
    empty_object: JSON = field(default_factory=dict)
    storage_resource: Resource[Any] | None = None
    crd_version: CustomResourceVersion | None = None
    deprecated: str = ""
    own_list_kind: str = ""
    compute_objects: Callable[[], list[JSON]] | None = None
    resets_status: bool = True

    @property
    def reads_as_stored(self) -> bool:
        """True if objects are returned as they are stored, without conversion."""
        return self.storage_resource is None and (self.crd_version is None or self.crd_version.reads_as_stored)

    @property
    def gate(self) -> str:
        """Feature gate that must be on for the resource to be served, "" for resources that every server serves."""
        return self.resource.gate

    @property
    def has_status(self) -> bool:
        """True if status is only written through its subresource."""
        return self.resets_status and "status" in self.resource.subresources

    @property
    def is_stored(self) -> bool:
        """True if objects are stored; others, such as reviews, are only returned."""
        return self.verbs not in (CREATE_ONLY, READ_ONLY)

    @property
    def list_kind(self) -> str:
        return self.own_list_kind or f"{self.resource.kind}List"


BY_PATH: dict[tuple[str, str, str], ServedResource] = {}
"""Resources by (group, version, plural), in the order of discovery, including those of feature gates that are off."""

BY_KIND: dict[tuple[str, str], ServedResource] = {}
"""Served resources by (apiVersion, kind)."""

VERSIONS: dict[str, tuple[str, ...]] = {}
"""Versions by group, the preferred one first. Groups are in the order of discovery: for an ambiguous short name,
kubectl uses the first one. A version may belong to a feature gate that is off; see group_versions()."""

NO_API_GATES: frozenset[str] = frozenset()
"""Value of api_gates() for default feature gates."""


def serve(
    resource: Resource[Any],
    *,
    generation: str = "",
    status: JSON | None = None,
    **rules: Any,
) -> Resource[Any]:
    """Serve a resource of kube.objects.resources, which controllers use, too.

    generation: names of fields, separated by spaces. status: of a new object. rules: other fields of ServedResource.
    """
    served = ServedResource(resource=resource, generation=tuple(generation.split()), empty_status=status or {}, **rules)
    BY_PATH[resource.group, resource.version, resource.plural] = served
    BY_KIND[resource.api_version, resource.kind] = served
    versions = VERSIONS.get(resource.group, ())
    if resource.version not in versions:
        VERSIONS[resource.group] = (*versions, resource.version)
    return resource


def declare(
    group_version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: str = "",
    categories: str = "",
    subresources: str = "",
    **rules: Any,
) -> Resource[JSON]:
    """Serve a kind that has no Struct. `rules` are arguments of serve().

    Kinds may be added before a server handles its first request. Their fields are those of their type in kube.schema;
    objects of a kind without a type are stored as they are sent.
    """
    resource: Resource[JSON] = resources.new_resource(
        dict, group_version, plural, kind, namespaced=namespaced, short=short, categories=categories,
        subresources=subresources,
    )  # fmt: skip
    return serve(resource, **rules)


_ALL_BUT_DELETE_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_REPLICAS: JSON = {"replicas": 0}
_NO_REPLICAS: JSON = {"spec": {"replicas": 0}}  # no pointer in the internal version
_LOAD_BALANCER: JSON = {"loadBalancer": {}}
_SCHEDULED: JSON = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
_HEALTHY: JSON = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

# --- core -------------------------------------------------------------------------------------------------------------

BINDINGS = declare("v1", "bindings", "Binding", verbs=CREATE_ONLY)
COMPONENT_STATUSES = declare(
    "v1", "componentstatuses", "ComponentStatus", namespaced=False, short="cs", verbs=READ_ONLY,
    compute_objects=component_statuses,
    deprecated="v1 ComponentStatus is deprecated in v1.19+",
)  # fmt: skip
serve(resources.CONFIG_MAPS)
ENDPOINTS = declare(
    "v1", "endpoints", "Endpoints", short="ep", create_on_update=True,
    deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)  # fmt: skip
serve(resources.EVENTS, create_on_update=True, dependents="ignored")
LIMIT_RANGES = declare("v1", "limitranges", "LimitRange", short="limits", create_on_update=True)
serve(resources.NAMESPACES, verbs=_ALL_BUT_DELETE_COLLECTION, return_deleted_object=True, status={"phase": "Active"})
serve(resources.NODES)
serve(resources.PERSISTENT_VOLUME_CLAIMS, return_deleted_object=True, status={"phase": "Pending"})
serve(resources.PERSISTENT_VOLUMES, return_deleted_object=True)
serve(resources.PODS, generation="spec", return_deleted_object=True)
POD_TEMPLATES = declare("v1", "podtemplates", "PodTemplate", return_deleted_object=True, generation="template")
serve(resources.REPLICATION_CONTROLLERS, generation="spec", dependents="orphaned", status=_REPLICAS)
serve(resources.RESOURCE_QUOTAS, return_deleted_object=True)
serve(resources.SECRETS)
serve(resources.SERVICE_ACCOUNTS, return_deleted_object=True)
serve(resources.SERVICES, create_on_update=True, return_deleted_object=True, status=_LOAD_BALANCER)

# --- apiregistration.k8s.io -------------------------------------------------------------------------------------------

API_SERVICES = declare(
    "apiregistration.k8s.io/v1", "apiservices", "APIService", namespaced=False, categories="api-extensions",
    subresources="status", unconditional_update=False,
)  # fmt: skip

# --- apps -------------------------------------------------------------------------------------------------------------

serve(resources.CONTROLLER_REVISIONS)
serve(
    resources.DAEMON_SETS, generation="spec", status=_SCHEDULED,
    empty_object={"metadata": {"annotations": {"deprecated.daemonset.template.generation": "0"}}},
)  # fmt: skip
serve(resources.DEPLOYMENTS, generation="spec", generation_metadata="annotations", empty_object=_NO_REPLICAS)
serve(resources.REPLICA_SETS, generation="spec", status=_REPLICAS, empty_object=_NO_REPLICAS)
serve(
    resources.STATEFUL_SETS, generation="spec", status={"replicas": 0, "availableReplicas": 0},
    empty_object=_NO_REPLICAS,
)  # fmt: skip

# --- events.k8s.io ----------------------------------------------------------------------------------------------------

EVENTS_V1 = declare(
    "events.k8s.io/v1",
    "events",
    "Event",
    short="ev",
    create_on_update=True,
    dependents="ignored",
    storage_resource=resources.EVENTS,
)

# --- reviews: returned and never stored -------------------------------------------------------------------------------


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource[JSON]:
    return declare(f"{group}.k8s.io/v1", plural, kind, namespaced=namespaced, verbs=CREATE_ONLY)


SELF_SUBJECT_REVIEWS = _review("authentication", "selfsubjectreviews", "SelfSubjectReview")
TOKEN_REVIEWS = _review("authentication", "tokenreviews", "TokenReview")
LOCAL_SUBJECT_ACCESS_REVIEWS = _review(
    "authorization", "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True
)
SELF_SUBJECT_ACCESS_REVIEWS = _review("authorization", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
SELF_SUBJECT_RULES_REVIEWS = _review("authorization", "selfsubjectrulesreviews", "SelfSubjectRulesReview")
SUBJECT_ACCESS_REVIEWS = _review("authorization", "subjectaccessreviews", "SubjectAccessReview")

# --- autoscaling ------------------------------------------------------------------------------------------------------

serve(resources.HORIZONTAL_POD_AUTOSCALERS, status={"desiredReplicas": 0, "currentMetrics": None})
HORIZONTAL_POD_AUTOSCALERS_V1 = declare(
    "autoscaling/v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short="hpa", categories="all",
    subresources="status", storage_resource=resources.HORIZONTAL_POD_AUTOSCALERS,
)  # fmt: skip

# --- batch ------------------------------------------------------------------------------------------------------------

CRON_JOBS = declare(
    "batch/v1", "cronjobs", "CronJob", short="cj", categories="all", subresources="status", generation="spec"
)
JOBS = declare(
    "batch/v1", "jobs", "Job", categories="all", subresources="status", generation="spec", dependents="orphaned"
)

# --- certificates.k8s.io ----------------------------------------------------------------------------------------------

CERTIFICATE_SIGNING_REQUESTS = declare(
    "certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False, short="csr",
    subresources="approval status",
)  # fmt: skip

# --- networking.k8s.io ------------------------------------------------------------------------------------------------

INGRESS_CLASSES = declare("networking.k8s.io/v1", "ingressclasses", "IngressClass", namespaced=False, generation="spec")
INGRESSES = declare(
    "networking.k8s.io/v1", "ingresses", "Ingress", short="ing", subresources="status", generation="spec",
    status=_LOAD_BALANCER,
)  # fmt: skip
IP_ADDRESSES = declare(
    "networking.k8s.io/v1",
    "ipaddresses",
    "IPAddress",
    namespaced=False,
    short="ip",
)
NETWORK_POLICIES = declare(
    "networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", short="netpol", generation="spec"
)
SERVICE_CIDRS = declare(
    "networking.k8s.io/v1", "servicecidrs", "ServiceCIDR", namespaced=False, subresources="status",
)  # fmt: skip

# --- policy -----------------------------------------------------------------------------------------------------------

serve(resources.POD_DISRUPTION_BUDGETS, generation="spec", unconditional_update=False, status=_HEALTHY)

# --- rbac.authorization.k8s.io ----------------------------------------------------------------------------------------

_RBAC = "rbac.authorization.k8s.io/v1"
CLUSTER_ROLE_BINDINGS = declare(
    _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False, create_on_update=True
)
CLUSTER_ROLES = declare(_RBAC, "clusterroles", "ClusterRole", namespaced=False, create_on_update=True)
ROLE_BINDINGS = declare(_RBAC, "rolebindings", "RoleBinding", create_on_update=True)
ROLES = declare(_RBAC, "roles", "Role", create_on_update=True)

# --- storage.k8s.io ---------------------------------------------------------------------------------------------------

serve(resources.CSI_DRIVERS, unconditional_update=False, return_deleted_object=True)
serve(resources.CSI_NODES, unconditional_update=False, return_deleted_object=True)
serve(resources.CSI_STORAGE_CAPACITIES, unconditional_update=False)
serve(resources.STORAGE_CLASSES, return_deleted_object=True)
serve(resources.VOLUME_ATTACHMENTS, unconditional_update=False, return_deleted_object=True, status={"attached": False})
VOLUME_ATTRIBUTES_CLASSES = declare(
    "storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", namespaced=False, short="vac",
    return_deleted_object=True,
)  # fmt: skip

# --- storagemigration.k8s.io ------------------------------------------------------------------------------------------

serve(resources.STORAGE_VERSION_MIGRATIONS, unconditional_update=False)

# --- admissionregistration.k8s.io: policies are enforced (admission/policies); webhooks are stored but not called -----


def _admission(plural: str, kind: str, generation: str = "spec") -> Resource[JSON]:
    return declare(
        "admissionregistration.k8s.io/v1", plural, kind, namespaced=False, categories="api-extensions",
        generation=generation, unconditional_update=False,
    )  # fmt: skip


MUTATING_ADMISSION_POLICIES = _admission("mutatingadmissionpolicies", "MutatingAdmissionPolicy")
MUTATING_ADMISSION_POLICY_BINDINGS = _admission("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding")
MUTATING_WEBHOOK_CONFIGURATIONS = _admission(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "webhooks"
)
VALIDATING_ADMISSION_POLICIES = serve(
    resources.VALIDATING_ADMISSION_POLICIES, generation="spec", unconditional_update=False
)
VALIDATING_ADMISSION_POLICY_BINDINGS = _admission(
    "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
VALIDATING_WEBHOOK_CONFIGURATIONS = _admission(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "webhooks"
)

# --- apiextensions.k8s.io: the defined resources are served by apiextensions -----------------------------------------

CUSTOM_RESOURCE_DEFINITIONS = serve(
    resources.CUSTOM_RESOURCE_DEFINITIONS, generation="spec", unconditional_update=False
)

# --- scheduling.k8s.io, coordination.k8s.io, node.k8s.io, discovery.k8s.io --------------------------------------------

serve(resources.PRIORITY_CLASSES, generation="spec")
serve(resources.WORKLOADS)
serve(resources.POD_GROUPS)
serve(resources.LEASES, create_on_update=True, unconditional_update=False)
RUNTIME_CLASSES = declare(
    "node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False, unconditional_update=False
)
ENDPOINT_SLICES = declare(
    "discovery.k8s.io/v1", "endpointslices", "EndpointSlice", generation="endpoints ports addressType",
    generation_metadata="labels",
)  # fmt: skip

# --- resource.k8s.io --------------------------------------------------------------------------------------------------

serve(resources.DEVICE_CLASSES, generation="spec", return_deleted_object=True)
serve(resources.RESOURCE_CLAIMS, return_deleted_object=True)
serve(resources.RESOURCE_CLAIM_TEMPLATES, return_deleted_object=True)
serve(
    resources.RESOURCE_SLICES, generation="spec", return_deleted_object=True,
)  # fmt: skip
serve(resources.DEVICE_TAINT_RULES, generation="spec", return_deleted_object=True)

# --- flowcontrol.apiserver.k8s.io: stored; this server does not queue requests ----------------------------------------

_FLOW = "flowcontrol.apiserver.k8s.io/v1"
FLOW_SCHEMAS = declare(
    _FLOW, "flowschemas", "FlowSchema", namespaced=False, subresources="status", generation="spec",
)  # fmt: skip
PRIORITY_LEVEL_CONFIGURATIONS = declare(
    _FLOW, "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False, subresources="status",
    generation="spec",
)  # fmt: skip


# --- lookups ----------------------------------------------------------------------------------------------------------


def get_served_resource(resource: Resource[Any]) -> ServedResource:
    """Return the served resource. Raises KeyError if it is not served."""
    return BY_PATH[resource.group, resource.version, resource.plural]


def storage_version_of(resource: ServedResource) -> ServedResource:
    """Return the resource as which objects are stored: another one only for second versions of a kind."""
    return resource if resource.storage_resource is None else get_served_resource(resource.storage_resource)


@cache
def all_api_gates() -> frozenset[str]:
    """Return the feature gates that switch on resources."""
    return frozenset(served.gate for served in BY_PATH.values() if served.gate)


def api_gates(gates: FeatureGates, switched_off: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return what decides which resources a server serves: the feature gates for resources that are on, and
    `switched_off`, the APIs that --runtime-config disables (see runtime_config)."""
    return switched_off | {gate for gate in all_api_gates() if gates.enabled(gate)}


def is_served(served: ServedResource, gates: frozenset[str]) -> bool:
    """Return True if a server with these api_gates() serves the resource."""
    resource = served.resource
    version = f"-{resource.group}/{resource.version}"
    return (not served.gate or served.gate in gates) and gates.isdisjoint((version, f"{version}/{resource.plural}"))


def api_groups(gates: frozenset[str] = NO_API_GATES) -> list[str]:
    """Return the named groups with a served version, in the order of discovery. gates: see api_gates()."""
    return [group for group in VERSIONS if group and versions_of_group(group, gates)]


def versions_of_group(group: str, gates: frozenset[str] = NO_API_GATES) -> tuple[str, ...]:
    """Return the served versions of a group, the preferred one first. gates: see api_gates()."""
    return tuple(version for version in VERSIONS.get(group, ()) if resources_of_version(group, version, gates))


def group_versions(gates: frozenset[str] = NO_API_GATES) -> list[tuple[str, str]]:
    """Return every served (group, version) in the order of discovery. gates: see api_gates()."""
    return [(group, version) for group in VERSIONS for version in versions_of_group(group, gates)]


def resources_of_version(group: str, version: str, gates: frozenset[str] = NO_API_GATES) -> list[ServedResource]:
    """Return the served resources of a group version, sorted by name. gates: see api_gates()."""
    matches = (served for key, served in BY_PATH.items() if key[:2] == (group, version) and is_served(served, gates))
    return sorted(matches, key=lambda served: served.resource.plural)
