"""Kubernetes API objects with the fields that control logic reads.

One frozen msgspec Struct per API type; JSON names are the API's, attributes their snake_case. Data that must round-trip
unchanged (above all a pod template) is a plain JSON value. Objects come from caches shared by the whole process: they
are never changed, and a partial Struct is never written back.

`decode` and `convert` create objects. Volumes, claims and storage classes are in `storage_types`, Workloads and
PodGroups in `workload_types`. Imports msgspec, `kube.values.times` and the standard library only.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, dataclass_transform

import msgspec

from kubeloop.kube.values.times import readable_time

_INITIALISMS = {"ip": "IP", "ips": "IPs", "id": "ID", "pid": "PID", "ipc": "IPC", "cidr": "CIDR", "uri": "URI"}

T = TypeVar("T")
JSONValue = Any  # any JSON value: dict, list, str, int, float, bool or None


def _api_name(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename=_api_name):
    """Base of all API types: immutable, never part of a reference cycle; unknown fields are ignored."""


Quantity = str | int | float
"""A resource quantity as in JSON; `kubeloop.kube.values.quantities` parses it."""

IntOrString = int | str


class OwnerReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """metadata of every object, without managedFields."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Object(Struct):
    """Fields of every API object. `key` is "namespace/name", or "name" for cluster-scoped objects."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        metadata = self.metadata
        return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


class PartialObjectMetadata(Object):
    """Metadata of any object (meta.k8s.io/v1)."""


class ListMeta(Struct):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class StatusCause(Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ApiStatus(Struct):
    """metav1.Status: the body of every error response of the API server."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: ListMeta = ListMeta()
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


class Condition(Struct):
    """A condition of a Pod, Node, Deployment or ReplicaSet: the union of their fields."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_probe_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ObjectReference(Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


# --- Pod -----------------------------------------------------------------------------------------------------------


class ContainerResourceClaim(Struct):
    name: str = ""
    request: str = ""


class ResourceRequirements(Struct):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    claims: tuple[ContainerResourceClaim, ...] = ()


class ContainerPort(Struct):
    name: str = ""
    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"
    host_ip: str = ""


class Container(Struct):
    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""  # of an init container: "Always" makes it a sidecar
    restart_policy_rules: tuple[JSONValue, ...] = ()
    readiness_probe: JSONValue = None
    image_pull_policy: str = ""


class NodeSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(Struct):
    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(default=(), name=_PREFERRED)


class PodAffinityTerm(Struct):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct):
    """podAffinity or podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=_REQUIRED)
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(default=(), name=_PREFERRED)


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Struct):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: str = ""
    read_only: bool = False


class InTreeVolumeSources(Struct):
    """Sources of in-tree plugins, which are migrated to CSI drivers, and that of CSI drivers."""

    gce_persistent_disk: JSONValue = None
    aws_elastic_block_store: JSONValue = None
    azure_disk: JSONValue = None
    azure_file: JSONValue = None
    cinder: JSONValue = None
    vsphere_volume: JSONValue = None
    portworx_volume: JSONValue = None
    csi: JSONValue = None


class Volume(InTreeVolumeSources):
    """Only sources that the scheduler reads are typed; in-line disks are JSON, which it compares."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: JSONValue = None
    iscsi: JSONValue = None
    rbd: JSONValue = None
    image: JSONValue = None
    secret: JSONValue = None
    config_map: JSONValue = None


class PodSchedulingGate(Struct):
    name: str = ""


class PodOS(Struct):
    name: str = ""


class PodSchedulingGroup(Struct):
    pod_group_name: str | None = None


class PodResourceClaim(Struct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Struct):
    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] = {}
    service_account_name: str = ""
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    host_users: bool | None = None
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    overhead: dict[str, Quantity] = {}
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    os: PodOS | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    scheduling_group: PodSchedulingGroup | None = None


class ContainerStatus(Struct):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    started: bool | None = None
    state: JSONValue = None
    last_state: JSONValue = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] = {}


class PodIP(Struct):
    ip: str = ""


class NodeAllocatableResourceClaimStatus(Struct):
    """Resources of the node that a claim of the pod consumes."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: dict[str, Quantity] = {}


class PodStatus(Struct):
    observed_generation: int = 0
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = ""
    pod_ip: str = ""
    pod_ips: tuple[PodIP, ...] = ()
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    resize: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] = {}
    resource_claim_statuses: tuple[JSONValue, ...] = ()
    extended_resource_claim_status: JSONValue = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- Node and Namespace --------------------------------------------------------------------------------------------


class Taint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Struct):
    pod_cidr: str = ""
    provider_id: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Struct):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeAddress(Struct):
    type: str = ""
    address: str = ""


class AttachedVolume(Struct):
    name: str = ""
    device_path: str = ""


class NodeStatus(Struct):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(Struct):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Struct):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Object):
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


# --- Workloads -----------------------------------------------------------------------------------------------------


class RollingUpdateDeployment(Struct):
    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Struct):
    """`template` is the PodTemplateSpec as JSON: it is compared, hashed and copied, never interpreted."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, JSONValue] = {}
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(Struct):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: tuple[Condition, ...] = ()
    collision_count: int | None = None


class Deployment(Object):
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ReplicaSetSpec(Struct):
    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: dict[str, JSONValue] = {}


class ReplicaSetStatus(Struct):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(Object):
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class ReplicationControllerSpec(Struct):
    """The selector is a plain map; None and {} mean the template's labels."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: dict[str, str] = {}
    template: dict[str, JSONValue] = {}


class ReplicationController(Object):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdateDaemonSet(Struct):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class DaemonSetUpdateStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Struct):
    """`template` is the PodTemplateSpec as JSON, as it is compared, hashed and copied."""

    selector: LabelSelector | None = None
    template: dict[str, JSONValue] = {}
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(Struct):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None


class DaemonSet(Object):
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class RollingUpdateStatefulSetStrategy(Struct):
    partition: int | None = None
    max_unavailable: IntOrString | None = None


class StatefulSetUpdateStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateStatefulSetStrategy | None = None


class StatefulSetPersistentVolumeClaimRetentionPolicy(Struct):
    when_deleted: str = ""
    when_scaled: str = ""


class StatefulSetOrdinals(Struct):
    start: int = 0


class StatefulSetSpec(Struct):
    """`template` and `volume_claim_templates` are JSON, of which Pods, claims and revisions are created."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, JSONValue] = {}
    volume_claim_templates: tuple[dict[str, JSONValue], ...] = ()
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int | None = None
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: StatefulSetPersistentVolumeClaimRetentionPolicy | None = None
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()


class StatefulSetStatus(Struct):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: tuple[Condition, ...] = ()
    available_replicas: int = 0


class StatefulSet(Object):
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class PodFailurePolicyOnExitCodes(Struct):
    container_name: str | None = None
    operator: str = ""
    values: tuple[int, ...] = ()


class PodFailurePolicyOnPodCondition(Struct):
    type: str = ""
    status: str = ""


class PodFailurePolicyRule(Struct):
    action: str = ""
    on_exit_codes: PodFailurePolicyOnExitCodes | None = None
    on_pod_conditions: tuple[PodFailurePolicyOnPodCondition, ...] = ()


class PodFailurePolicy(Struct):
    rules: tuple[PodFailurePolicyRule, ...] = ()


class SuccessPolicyRule(Struct):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Struct):
    rules: tuple[SuccessPolicyRule, ...] = ()


class JobSpec(Struct):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, JSONValue] = {}
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = ""
    suspend: bool = False
    pod_replacement_policy: str = ""
    managed_by: str | None = None


class UncountedTerminatedPods(Struct):
    """UIDs of terminated pods that `succeeded` and `failed` do not count yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Struct):
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Object):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class CronJobSpec(Struct):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: dict[str, JSONValue] = {}
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(Struct):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: datetime | None = None
    last_successful_time: datetime | None = None


class CronJob(Object):
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


class CrossVersionObjectReference(Struct):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class HorizontalPodAutoscalerSpec(Struct):
    """spec of autoscaling/v2; its controller decodes `metrics` and `behavior`."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[JSONValue, ...] = ()
    behavior: JSONValue = None


class HorizontalPodAutoscalerStatus(Struct):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[JSONValue, ...] | None = None
    conditions: tuple[Condition, ...] = ()


class HorizontalPodAutoscaler(Object):
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


class ControllerRevision(Object):
    data: JSONValue = None
    revision: int = 0


class ServicePort(Struct):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: IntOrString = 0
    node_port: int = 0
    app_protocol: str | None = None


class ServiceSpec(Struct):
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    type: str = ""
    cluster_ip: str = ""
    allocate_load_balancer_node_ports: bool | None = None
    ip_families: tuple[str, ...] = ()
    publish_not_ready_addresses: bool = False
    traffic_distribution: str | None = None


class Service(Object):
    spec: ServiceSpec = ServiceSpec()


class PodDisruptionBudgetSpec(Struct):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Struct):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, datetime] = {}
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ResourceQuotaSpec(Struct):
    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: JSONValue = None


class ResourceQuotaStatus(Struct):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(Object):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PriorityClass(Object):
    value: int = 0
    preemption_policy: str | None = None


# --- Coordination and events ---------------------------------------------------------------------------------------


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object):
    spec: LeaseSpec = LeaseSpec()


class EventSource(Struct):
    component: str = ""
    host: str = ""


class Event(Object):
    """v1 Event."""

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    count: int = 0
    type: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


def without_nulls(value: JSONValue) -> JSONValue:
    """Return `value` without map members that are null: Kubernetes treats null as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value]
    return value


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(type_: type[T], data: bytes | msgspec.Raw) -> T:
    """Decode one JSON object as a `type_`. Raises msgspec.DecodeError (ValidationError if a field has another type).

    In places the API writes null for an empty list or map, which the Structs do not allow, and times outside of the
    years 1 to 9999, which datetime does not; such a document takes a second, slower path.
    """
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return convert(type_, msgspec.json.decode(data))


def convert(type_: type[T], value: JSONValue) -> T:
    """Convert a plain JSON value (dicts and lists) to a `type_`. Raises msgspec.ValidationError."""
    value = without_nulls(value)
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return msgspec.convert(_with_readable_times(value), type_)


def _with_readable_times(value: JSONValue) -> JSONValue:
    """Return `value` with times outside of the years 1 to 9999 replaced by the first or last second of these."""
    if isinstance(value, dict):
        return {name: _with_readable_times(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_readable_times(member) for member in value]
    return readable_time(value) if isinstance(value, str) else value


def to_json(value: Struct) -> JSONValue:
    """Return the fields of `value` that are set, as a plain JSON value."""
    return msgspec.to_builtins(value)
