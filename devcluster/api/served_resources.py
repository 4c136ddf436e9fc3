"""What the development API server serves: every kind is declared here, once, in the order of discovery.

A declaration says where a kind lives, how it may be named on a command line, which subresources it has, how its
strategy differs from most and what `kubectl get` shows; paths, discovery, OpenAPI, storage, tables and field ownership
follow from it and from the kind's type (kube.schema). What only a function can say stands with its like, under the
kind's name: validation in `validation.kind_validators`, defaults in `defaulting`, cells that are more than a field in
`cells`. May import kube, the standard library and `component_statuses` only.

    declare("v1", "limitranges", "LimitRange", short="limits", create_on_update=True)
    declare("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False, columns=("Handler=handler", "Age"))

Sources: the strategies and storages under pkg/registry, the order of groups in cmd/kube-apiserver/app/aggregator.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from kubeloop.devcluster.api.component_statuses import component_statuses
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.writer import Writer
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import Resource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
READ_ONLY = ("get", "list")
Dependents = Literal["deleted", "orphaned", "ignored"]


class CustomResourceVersion(Protocol):
    """The rules of one served version of a CustomResourceDefinition; see apiextensions.served_version.Version."""

    @property
    def served(self) -> ServedResource: ...
    @property
    def home(self) -> CustomResourceVersion: ...
    @property
    def is_home(self) -> bool: ...
    @property
    def is_converted(self) -> bool: ...
    @property
    def list_kind(self) -> str: ...
    @property
    def deprecation(self) -> str: ...
    @property
    def patch_types(self) -> tuple[str, ...]: ...
    @property
    def replicas_places(self) -> Mapping[str, tuple[str, ...] | None]: ...
    @property
    def api_versions(self) -> set[str]: ...

    def decode(self, raw: JSON) -> tuple[JSON, list[str]]: ...
    def normal(self, obj: JSON) -> JSON: ...
    def default(self, obj: JSON) -> None: ...
    def stored(self, obj: JSON) -> JSON: ...
    def prepare(self, objects: Sequence[JSON]) -> None: ...
    def shown(self, obj: JSON) -> JSON: ...
    def wrong_kind(self, obj: JSON) -> StatusError: ...
    def type_error(self, config: JSON) -> str: ...
    def check_accept(self, accept: str) -> None: ...
    def unsupported_patch(self) -> StatusError: ...

    def track_create(self, obj: JSON, writer: Writer, now: Callable[[], str]) -> None: ...
    def track_update(self, obj: JSON, old: JSON, writer: Writer, now: Callable[[], str], subresource: str) -> None: ...
    def merge_configuration(self, live: JSON, config: JSON) -> JSON: ...
    def atomic_paths(self, config: JSON) -> list[str]: ...
    def apply(
        self, live: JSON | None, config: JSON, *, manager: str, force: bool, subresource: str, now: str
    ) -> JSON: ...

    def check_create(self, name: str) -> None: ...
    def prepare_create(self, obj: JSON) -> None: ...
    def prepare_update(self, obj: JSON, old: JSON) -> None: ...
    def prepare_status(self, obj: JSON, old: JSON) -> JSON: ...
    def validate_create(self, obj: JSON) -> list[JSON]: ...
    def validate_update(self, obj: JSON, old: JSON, subresource: str) -> list[JSON]: ...
    def warnings(self, obj: JSON, old: JSON | None) -> list[str]: ...

    def scale_of(self, obj: JSON, *, reading: bool = False) -> JSON: ...
    def scale_to_write(self, obj: JSON) -> JSON: ...
    def scaled(self, obj: JSON, scale: JSON) -> JSON: ...

    def getters(self) -> dict[str, Callable[[JSON], str]]: ...
    def column_definitions(self, described: list[JSON]) -> list[JSON]: ...
    def cells(self, obj: JSON, now: datetime) -> list[Any]: ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CustomResource(Resource[JSON]):
    """A resource that a CustomResourceDefinition defines. One server serves it; it is in none of the tables below."""

    rules: CustomResourceVersion


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """One resource with the server's rules for it.

    generation: the fields whose changes are counted in metadata.generation, () for kinds that have none.
    create_on_update: a PUT to a free name creates. unconditional_update: a PUT may leave out resourceVersion.
    deleted_whole: DELETE answers with the object, not a Status, even if it is gone at once. dependents: what becomes of
    them if a deletion does not say ("ignored": they never count). empty_status: what a new object has for a status.
    columns: what a table shows, as "Name=path"; () where `columns.json` says it, or nobody. stored_as: the resource in
    whose form objects are kept, if it is another one than this. custom: the rules of one that a
    CustomResourceDefinition defines. deprecated: see deprecation. looked_up: what makes the objects of a kind that
    nobody keeps, whenever somebody reads them.
    """

    resource: Resource[Any]
    verbs: tuple[str, ...] = ALL_VERBS
    generation: tuple[str, ...] = ()
    create_on_update: bool = False
    unconditional_update: bool = True
    return_deleted_object: bool = False
    dependents: Dependents = "deleted"
    empty_status: JSON = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    storage_resource: Resource[Any] | None = None
    crd_version: CustomResourceVersion | None = None
    deprecated: str = ""
    compute_objects: Callable[[], list[JSON]] | None = None

    @property
    def is_storage_version(self) -> bool:
        """Are objects answered in the very form in which they are kept?"""
        return self.storage_resource is None and (self.crd_version is None or self.crd_version.is_home)

    @property
    def deprecation(self) -> str:
        """What everybody is told who asks for it; "" for nothing."""
        return self.deprecated if self.crd_version is None else self.crd_version.deprecation

    @property
    def has_status(self) -> bool:
        """Is status written through its subresource only?"""
        return "status" in self.resource.subresources

    @property
    def is_stored(self) -> bool:
        """Are there objects of it? Others are answers to questions, or looked up when somebody asks."""
        return self.verbs not in (CREATE_ONLY, READ_ONLY)

    @property
    def list_kind(self) -> str:
        return self.resource.kind + "List" if self.crd_version is None else self.crd_version.list_kind


BY_PATH: dict[tuple[str, str, str], ServedResource] = {}
"""By group, version and plural, as paths name them; in the order of discovery."""

BY_KIND: dict[tuple[str, str], ServedResource] = {}
"""By apiVersion and kind, as manifests name them."""

VERSIONS: dict[str, tuple[str, ...]] = {}
"""The versions of each group, the preferred one first. Groups as discovery lists them: kubectl takes the first of
those where a short name is ambiguous."""


def serve(
    resource: Resource[Any],
    *,
    generation: str = "",
    create_on_update: bool = False,
    unconditional_update: bool = True,
    return_deleted_object: bool = False,
    dependents: Dependents = "deleted",
    status: JSON | None = None,
    verbs: tuple[str, ...] = ALL_VERBS,
    columns: Iterable[str] = (),
    storage_resource: Resource[Any] | None = None,
    deprecated: str = "",
    compute_objects: Callable[[], list[JSON]] | None = None,
) -> Resource[Any]:
    """Serve a resource that controllers know, too (kube.resources). See Served for the rules."""
    served = ServedResource(
        resource=resource,
        verbs=verbs,
        generation=tuple(generation.split()),
        create_on_update=create_on_update,
        unconditional_update=unconditional_update,
        return_deleted_object=return_deleted_object,
        dependents=dependents,
        empty_status=status or {},
        columns=tuple(columns),
        storage_resource=storage_resource,
        deprecated=deprecated,
        compute_objects=compute_objects,
    )
    BY_PATH[resource.group, resource.version, resource.plural] = served
    BY_KIND[resource.api_version, resource.kind] = served
    known = VERSIONS.get(resource.group, ())
    if resource.version not in known:
        VERSIONS[resource.group] = (*known, resource.version)
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
    """Serve a kind that nobody reads through a Struct. `rules` are those of serve().

    Kinds may be added before the first server answers its first request. Their fields are those of the type that
    kube.schema holds for them (see schema.declare); a kind without a type is stored as it is sent.
    """
    group, _, version = group_version.rpartition("/")
    resource: Resource[JSON] = Resource(
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
    return serve(resource, **rules)


_NEVER_DELETED_TOGETHER = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_REPLICAS: JSON = {"replicas": 0}
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
serve(resources.NAMESPACES, verbs=_NEVER_DELETED_TOGETHER, return_deleted_object=True)
serve(resources.NODES)
serve(resources.PERSISTENT_VOLUME_CLAIMS, return_deleted_object=True)
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
    subresources="status", unconditional_update=False, columns=("Service", "Available", "Age"),
)  # fmt: skip

# --- apps -------------------------------------------------------------------------------------------------------------

CONTROLLER_REVISIONS = declare("apps/v1", "controllerrevisions", "ControllerRevision")
DAEMON_SETS = declare(
    "apps/v1", "daemonsets", "DaemonSet", short="ds", categories="all", subresources="status", generation="spec",
    status=_SCHEDULED,
)  # fmt: skip
serve(resources.DEPLOYMENTS, generation="spec")
serve(resources.REPLICA_SETS, generation="spec", status=_REPLICAS)
serve(resources.STATEFUL_SETS, generation="spec", status={"replicas": 0, "availableReplicas": 0})

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

# --- reviews: answered and never stored -------------------------------------------------------------------------------


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

HORIZONTAL_POD_AUTOSCALERS = declare(
    "autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short="hpa", categories="all",
    subresources="status", status={"desiredReplicas": 0, "currentMetrics": None},
)  # fmt: skip
HORIZONTAL_POD_AUTOSCALERS_V1 = declare(
    "autoscaling/v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short="hpa", categories="all",
    subresources="status", storage_resource=HORIZONTAL_POD_AUTOSCALERS,
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
    columns=("Age", "SignerName=spec.signerName", "Requestor=spec.username", "RequestedDuration", "Condition"),
)  # fmt: skip

# --- networking.k8s.io ------------------------------------------------------------------------------------------------

INGRESS_CLASSES = declare("networking.k8s.io/v1", "ingressclasses", "IngressClass", namespaced=False, generation="spec")
INGRESSES = declare(
    "networking.k8s.io/v1", "ingresses", "Ingress", short="ing", subresources="status", generation="spec",
    status=_LOAD_BALANCER,
)  # fmt: skip
IP_ADDRESSES = declare(
    "networking.k8s.io/v1", "ipaddresses", "IPAddress", namespaced=False, short="ip", columns=("ParentRef", "Age")
)
NETWORK_POLICIES = declare(
    "networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", short="netpol", generation="spec"
)
SERVICE_CIDRS = declare(
    "networking.k8s.io/v1", "servicecidrs", "ServiceCIDR", namespaced=False, subresources="status",
    columns=("CIDRs=spec.cidrs", "Age"),
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
    return_deleted_object=True, columns=("DriverName=driverName", "Age"),
)  # fmt: skip

# --- admissionregistration.k8s.io: policies are in force (policies/); webhooks are stored and not called --------------


def _admission(plural: str, kind: str, generation: str, *columns: str, subresources: str = "") -> Resource[JSON]:
    return declare(
        "admissionregistration.k8s.io/v1", plural, kind, namespaced=False, categories="api-extensions",
        subresources=subresources, generation=generation, unconditional_update=False, columns=columns,
    )  # fmt: skip


MUTATING_ADMISSION_POLICIES = _admission(
    "mutatingadmissionpolicies", "MutatingAdmissionPolicy", "spec", "Mutations#=spec.mutations", "ParamKind", "Age"
)
MUTATING_ADMISSION_POLICY_BINDINGS = _admission(
    "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "spec", "PolicyName=spec.policyName",
    "ParamRef", "Age",
)  # fmt: skip
MUTATING_WEBHOOK_CONFIGURATIONS = _admission(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "webhooks", "Webhooks#=webhooks", "Age"
)
VALIDATING_ADMISSION_POLICIES = _admission(
    "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "spec", "Validations#=spec.validations", "ParamKind",
    "Age", subresources="status",
)  # fmt: skip
VALIDATING_ADMISSION_POLICY_BINDINGS = _admission(
    "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "spec", "PolicyName=spec.policyName",
    "ParamRef", "Age",
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATIONS = _admission(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "webhooks", "Webhooks#=webhooks", "Age"
)

# --- apiextensions.k8s.io: what they define is served (see custom) ----------------------------------------------------

CUSTOM_RESOURCE_DEFINITIONS = declare(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
    short="crd crds", categories="api-extensions", subresources="status", generation="spec", unconditional_update=False,
)  # fmt: skip

# --- scheduling.k8s.io, coordination.k8s.io, node.k8s.io, discovery.k8s.io --------------------------------------------

serve(resources.PRIORITY_CLASSES, generation="spec")
serve(resources.LEASES, create_on_update=True, unconditional_update=False)
RUNTIME_CLASSES = declare(
    "node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False, unconditional_update=False
)
ENDPOINT_SLICES = declare(
    "discovery.k8s.io/v1", "endpointslices", "EndpointSlice", generation="endpoints ports addressType",
)  # fmt: skip

# --- resource.k8s.io --------------------------------------------------------------------------------------------------

_CLAIMS = "resource.k8s.io/v1"
DEVICE_CLASSES = declare(
    _CLAIMS,
    "deviceclasses",
    "DeviceClass",
    namespaced=False,
    generation="spec",
    return_deleted_object=True,
    columns=("Age",),
)
RESOURCE_CLAIMS = declare(
    _CLAIMS,
    "resourceclaims",
    "ResourceClaim",
    subresources="status",
    return_deleted_object=True,
    columns=("State", "Age"),
)
RESOURCE_CLAIM_TEMPLATES = declare(
    _CLAIMS, "resourceclaimtemplates", "ResourceClaimTemplate", return_deleted_object=True, columns=("Age",)
)
RESOURCE_SLICES = declare(
    _CLAIMS, "resourceslices", "ResourceSlice", namespaced=False, generation="spec", return_deleted_object=True,
    columns=("Node=spec.nodeName", "Driver=spec.driver", "Pool=spec.pool.name", "Age"),
)  # fmt: skip

# --- flowcontrol.apiserver.k8s.io: stored; this server does not queue requests ----------------------------------------

_FLOW = "flowcontrol.apiserver.k8s.io/v1"
FLOW_SCHEMAS = declare(
    _FLOW, "flowschemas", "FlowSchema", namespaced=False, subresources="status", generation="spec",
    columns=("PriorityLevel=spec.priorityLevelConfiguration.name", "MatchingPrecedence#=spec.matchingPrecedence",
             "DistinguisherMethod=spec.distinguisherMethod.type", "Age", "MissingPL"),
)  # fmt: skip
PRIORITY_LEVEL_CONFIGURATIONS = declare(
    _FLOW, "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False, subresources="status",
    generation="spec",
    columns=("Type=spec.type", "NominalConcurrencyShares=spec.limited.nominalConcurrencyShares",
             "Queues=spec.limited.limitResponse.queuing.queues",
             "HandSize=spec.limited.limitResponse.queuing.handSize",
             "QueueLengthLimit=spec.limited.limitResponse.queuing.queueLengthLimit", "Age"),
)  # fmt: skip


# --- lookups ----------------------------------------------------------------------------------------------------------


def get_served_resource(resource: Resource[Any]) -> ServedResource:
    """Raises KeyError for a resource that is not served."""
    return BY_PATH[resource.group, resource.version, resource.plural]


def storage_version_of(each: ServedResource) -> ServedResource:
    """The declaration in whose form this one's objects are kept: its own, but for second versions."""
    return each if each.storage_resource is None else get_served_resource(each.storage_resource)


def api_groups() -> list[str]:
    """Groups with a name, in the order of discovery."""
    return [group for group in VERSIONS if group]


def group_versions() -> list[tuple[str, str]]:
    """Every group and version, in the order of discovery."""
    return [(group, version) for group, versions in VERSIONS.items() for version in versions]


def resources_of_version(group: str, version: str) -> list[ServedResource]:
    """What a group version holds, by name."""
    here = [each for each in BY_PATH.values() if (each.resource.group, each.resource.version) == (group, version)]
    return sorted(here, key=lambda each: each.resource.plural)
