"""Table of the controllers, named as in kube-controller-manager v1.36. A new controller is one row of CONTROLLER_TABLE.

Imports no controller: options, help and errors of the command line come from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

if TYPE_CHECKING:
    from kubeloop.kube.objects.api_types import Node, Pod, Service
    from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceClaim, ResourceSlice
    from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
    from kubeloop.kube.objects.workload_types import PodGroup

SCHEDULER = "scheduler"
ROOT_CA_PUBLISHER = "root-ca-cert-publisher"
SERVICE_ACCOUNT_TOKEN = "serviceaccount-token"


class ControllerOption(msgspec.Struct, frozen=True):
    """An option of `kubeloop run` and `kubeloop up`, with kube-controller-manager's name and default.

    name: without the leading dashes. kind: "count" is an integer from 1, "duration" seconds or a text such as 1m30s.
    """

    name: str
    default: int | float | str
    help: str
    kind: Literal["count", "integer", "number", "duration", "text"] = "count"

    @property
    def key(self) -> str:
        """Key in ControllerContext.options: the name with underscores."""
        return self.name.replace("-", "_")


class ControllerDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One controller.

    name: kube-controller-manager's alias, as which logs and messages show it. kubernetes_name: its name since v1.28.
    factory: module below kubeloop.controllers and function or class in it, which takes a ControllerContext and returns
      the controller.
    watches: the resources that the factory requests informers of, whose lists start before the module is imported.
    starts_with: resources whose first object starts the controller in development and test clusters; "" starts it with
      the process, as `kubeloop run` always does. starts_when: only an object for which it returns True counts.
    starts_after: seconds after the start of the process, in such clusters, in which the first pods start undisturbed by
      the lists of this controller.
    feature_gate: the gate that must be on for the controller to run, "" for controllers that always run.
    development_server: True if kubeloop's API server itself does the work of this controller in such clusters.
    creates_pods_for: kind of the owner whose pods it creates, for their traces.
    event_component: source.component of its events, by default kubernetes_name.
    concurrency: the option that sets ControllerContext.workers. options: all others.

    watches and starts_with are separated by spaces; a resource is written as kubectl does ("deployments.apps"). Those
    that are not served because of a feature gate do not count.
    """

    name: str
    kubernetes_name: str
    factory: str
    watches: str = ""
    starts_with: str = ""
    starts_when: Callable[[Any], bool] | None = None
    starts_after: float = 0.0
    creates_pods_for: str = ""
    event_component: str = ""
    feature_gate: str = ""
    development_server: bool = False
    concurrency: ControllerOption | None = None
    options: tuple[ControllerOption, ...] = ()

    @property
    def starts_late(self) -> bool:
        """True if a development or test cluster starts without the controller."""
        return bool(self.starts_with or self.starts_after or self.development_server)

    @property
    def module(self) -> str:
        return f"kubeloop.controllers.{self.factory.partition(':')[0]}"


def _needs_lifecycle(node: Node) -> bool:
    """Return False for a simulated node without failure, which the node lifecycle controller would leave unchanged."""
    annotations = node.metadata.annotations
    return (
        annotations.get("kubeloop.dev/node") != "simulated"
        or "kubeloop.dev/fail" in annotations
        or node.spec.unschedulable
        or any(taint.key.startswith("node.kubernetes.io/") for taint in node.spec.taints)
        or any(condition.status != str(condition.type == "Ready") for condition in node.status.conditions)
    )


def _requests_more_storage(claim: PersistentVolumeClaim) -> bool:
    """Return True for a bound claim that may request more storage than it has."""
    capacity, requested = claim.status.capacity.get("storage"), claim.spec.resources.requests.get("storage")
    return claim.status.phase == "Bound" and capacity != requested


def _is_token_secret(secret: Mapping[str, Any]) -> bool:
    return secret.get("type") == "kubernetes.io/service-account-token"


def _has_own_endpoints(service: Service) -> bool:
    """Return True for a Service without selector, except for that of the API server, whose Endpoints say so."""
    return not service.spec.selector and service.key != "default/kubernetes"


def _has_claims(obj: Pod | PodGroup | ResourceClaim) -> bool:
    """Return True for a claim, and for a Pod or PodGroup with claims."""
    if obj.kind == "ResourceClaim":
        return True
    if obj.kind == "PodGroup":
        return bool(cast("PodGroup", obj).spec.resource_claims)
    pod = cast("Pod", obj)
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _evicts_by_devices(obj: ResourceSlice | DeviceTaintRule) -> bool:
    """Return True for a DeviceTaintRule, whatever its effect, and for a slice with a taint that evicts pods."""
    if obj.kind == "DeviceTaintRule":
        return True
    devices = cast("ResourceSlice", obj).spec.devices
    return any(taint.effect == "NoExecute" for device in devices for taint in device.taints)


CONTROLLER_TABLE = (
    ControllerDescriptor(
        name="deployment",
        kubernetes_name="deployment-controller",
        factory="deployment.deployment_controller:DeploymentController",
        watches="deployments.apps replicasets.apps pods",
        concurrency=ControllerOption("concurrent-deployment-syncs", 5, "Number of concurrent Deployment reconciles."),
    ),
    ControllerDescriptor(
        name="replicaset",
        kubernetes_name="replicaset-controller",
        factory="replicaset.replica_set_controller:ReplicaSetController",
        watches="replicasets.apps pods",
        creates_pods_for="ReplicaSet",
        concurrency=ControllerOption("concurrent-replicaset-syncs", 5, "Number of concurrent ReplicaSet reconciles."),
    ),
    ControllerDescriptor(
        name="replicationcontroller",
        kubernetes_name="replicationcontroller-controller",
        factory="replicaset.replica_set_controller:new_replication_controller",
        watches="replicationcontrollers pods",
        starts_with="replicationcontrollers",
        creates_pods_for="ReplicationController",
        event_component="replication-controller",
        concurrency=ControllerOption(
            "concurrent-rc-syncs", 5, "Number of concurrent ReplicationController reconciles."
        ),
    ),
    ControllerDescriptor(
        name="daemonset",
        kubernetes_name="daemonset-controller",
        factory="daemonset.daemon_set_controller:DaemonSetController",
        watches="daemonsets.apps controllerrevisions.apps pods nodes",
        starts_with="daemonsets.apps",
        creates_pods_for="DaemonSet",
        concurrency=ControllerOption("concurrent-daemonset-syncs", 2, "Number of concurrent DaemonSet reconciles."),
    ),
    ControllerDescriptor(
        name="garbagecollector",
        kubernetes_name="garbage-collector-controller",
        factory="garbagecollector.garbage_collector:GarbageCollector",
        starts_after=0.5,
        concurrency=ControllerOption(
            "concurrent-gc-syncs", 20, "Number of concurrent workers per queue of the garbage collector."
        ),
    ),
    ControllerDescriptor(
        name="namespace",
        kubernetes_name="namespace-controller",
        factory="namespace.namespace_controller:NamespaceController",
        watches="namespaces pods",
        concurrency=ControllerOption("concurrent-namespace-syncs", 10, "Number of concurrent Namespace reconciles."),
    ),
    ControllerDescriptor(
        name="resourcequota",
        kubernetes_name="resourcequota-controller",
        factory="resourcequota.resource_quota_controller:ResourceQuotaController",
        watches="resourcequotas",
        starts_with="resourcequotas",
        concurrency=ControllerOption(
            "concurrent-resource-quota-syncs", 5, "Number of concurrent ResourceQuota reconciles."
        ),
    ),
    ControllerDescriptor(
        name="serviceaccount",
        kubernetes_name="serviceaccount-controller",
        factory="serviceaccount.service_accounts_controller:ServiceAccountsController",
        watches="namespaces serviceaccounts",
        development_server=True,
    ),
    ControllerDescriptor(
        name=SERVICE_ACCOUNT_TOKEN,
        kubernetes_name="serviceaccount-token-controller",
        factory="serviceaccount.tokens_controller:TokensController",
        watches="serviceaccounts secrets",
        starts_with="secrets",
        starts_when=_is_token_secret,
        concurrency=ControllerOption(
            "concurrent-serviceaccount-token-syncs", 5, "Number of concurrent reconciles of service account tokens."
        ),
        options=(
            ControllerOption(
                "service-account-private-key-file",
                "",
                "File of the private key, in PEM, that signs the tokens of Secrets; serviceaccount-token needs it.",
                "text",
            ),
        ),
    ),
    ControllerDescriptor(
        name=ROOT_CA_PUBLISHER,
        kubernetes_name="root-ca-certificate-publisher-controller",
        factory="rootcacertpublisher.publisher:RootCACertificatePublisher",
        watches="namespaces configmaps",
        development_server=True,
        options=(
            ControllerOption(
                "root-ca-file",
                "",
                "File of the certificates for kube-root-ca.crt and token Secrets (default: those of the kubeconfig).",
                "text",
            ),
        ),
    ),
    ControllerDescriptor(
        name="job",
        kubernetes_name="job-controller",
        factory="job.job_controller:JobController",
        watches="jobs.batch pods",
        starts_with="jobs.batch",
        creates_pods_for="Job",
        concurrency=ControllerOption("concurrent-job-syncs", 5, "Number of concurrent Job reconciles."),
    ),
    ControllerDescriptor(
        name="statefulset",
        kubernetes_name="statefulset-controller",
        factory="statefulset.stateful_set_controller:StatefulSetController",
        watches="statefulsets.apps pods persistentvolumeclaims controllerrevisions.apps",
        starts_with="statefulsets.apps",
        creates_pods_for="StatefulSet",
        concurrency=ControllerOption("concurrent-statefulset-syncs", 5, "Number of concurrent StatefulSet reconciles."),
    ),
    ControllerDescriptor(
        name="cronjob",
        kubernetes_name="cronjob-controller",
        factory="cronjob.cron_job_controller:CronJobController",
        watches="cronjobs.batch jobs.batch",
        starts_with="cronjobs.batch",
        concurrency=ControllerOption("concurrent-cron-job-syncs", 5, "Number of concurrent CronJob reconciles."),
    ),
    ControllerDescriptor(
        name="ttl-after-finished",
        kubernetes_name="ttl-after-finished-controller",
        factory="ttlafterfinished.ttl_after_finished_controller:TTLAfterFinishedController",
        watches="jobs.batch",
        starts_with="jobs.batch",
        concurrency=ControllerOption(
            "concurrent-ttl-after-finished-syncs", 5, "Number of concurrent deletions of expired Jobs."
        ),
    ),
    ControllerDescriptor(
        name="podgc",
        kubernetes_name="pod-garbage-collector-controller",
        factory="podgc.pod_garbage_collector:PodGarbageCollector",
        watches="pods nodes",
        starts_with="pods",
        options=(
            ControllerOption(
                "terminated-pod-gc-threshold",
                12500,
                "Number of terminated pods above which the oldest are deleted; 0 or less for no limit.",
                "integer",
            ),
        ),
    ),
    ControllerDescriptor(
        name="horizontalpodautoscaling",
        kubernetes_name="horizontal-pod-autoscaler-controller",
        factory="podautoscaler.horizontal_controller:HorizontalController",
        watches="horizontalpodautoscalers.autoscaling pods",
        starts_with="horizontalpodautoscalers.autoscaling",
        event_component="horizontal-pod-autoscaler",
        concurrency=ControllerOption(
            "concurrent-horizontal-pod-autoscaler-syncs", 5, "Number of concurrent HorizontalPodAutoscaler reconciles."
        ),
        options=(
            ControllerOption(
                "horizontal-pod-autoscaler-sync-period",
                15.0,
                "Interval at which the metrics of a HorizontalPodAutoscaler are evaluated.",
                "duration",
            ),
            ControllerOption(
                "horizontal-pod-autoscaler-downscale-stabilization",
                300.0,
                "Time for which the highest recommendation of a HorizontalPodAutoscaler prevents a scale-down.",
                "duration",
            ),
            ControllerOption(
                "horizontal-pod-autoscaler-tolerance",
                0.1,
                "Deviation of a metric from its target, as a fraction, that causes no scaling.",
                "number",
            ),
            ControllerOption(
                "horizontal-pod-autoscaler-cpu-initialization-period",
                300.0,
                "Time after the start of a pod during which its CPU samples count only while it is ready.",
                "duration",
            ),
            ControllerOption(
                "horizontal-pod-autoscaler-initial-readiness-delay",
                30.0,
                "Time after the start of a pod during which changes of its readiness count as its first readiness.",
                "duration",
            ),
        ),
    ),
    ControllerDescriptor(
        name="disruption",
        kubernetes_name="disruption-controller",
        factory="disruption.disruption_controller:DisruptionController",
        watches="poddisruptionbudgets.policy pods replicasets.apps statefulsets.apps deployments.apps"
        " replicationcontrollers",
        starts_with="poddisruptionbudgets.policy",
        event_component="controllermanager",
    ),
    ControllerDescriptor(
        name="endpoint",
        kubernetes_name="endpoints-controller",
        factory="endpoint.endpoints_controller:EndpointsController",
        watches="services pods endpoints",
        starts_with="services",
        starts_when=lambda service: bool(service.spec.selector),
        event_component="endpoint-controller",
        concurrency=ControllerOption(
            "concurrent-endpoint-syncs", 5, "Number of concurrent reconciles of the Endpoints of Services."
        ),
        options=(
            ControllerOption(
                "endpoint-updates-batch-period",
                0.0,
                "Time by which Endpoints follow changes of pods later, to join several changes in one update.",
                "duration",
            ),
        ),
    ),
    ControllerDescriptor(
        name="endpointslice",
        kubernetes_name="endpointslice-controller",
        factory="endpointslice.endpoint_slice_controller:EndpointSliceController",
        watches="services pods nodes endpointslices.discovery.k8s.io",
        starts_with="services",
        starts_when=lambda service: bool(service.spec.selector),
        event_component="endpoint-slice-controller",
        concurrency=ControllerOption(
            "concurrent-service-endpoint-syncs", 5, "Number of concurrent reconciles of the EndpointSlices of Services."
        ),
        options=(
            ControllerOption("max-endpoints-per-slice", 100, "Maximum number of endpoints in an EndpointSlice."),
            ControllerOption(
                "endpointslice-updates-batch-period",
                0.0,
                "Time by which EndpointSlices follow changes of pods later, to join several changes in one update.",
                "duration",
            ),
        ),
    ),
    ControllerDescriptor(
        name="endpointslicemirroring",
        kubernetes_name="endpointslice-mirroring-controller",
        factory="endpointslicemirroring.mirroring_controller:EndpointSliceMirroringController",
        watches="endpoints endpointslices.discovery.k8s.io services",
        starts_with="services",
        starts_when=_has_own_endpoints,
        event_component="endpoint-slice-mirroring-controller",
        concurrency=ControllerOption(
            "mirroring-concurrent-service-endpoint-syncs", 5, "Number of concurrent reconciles of mirrored Endpoints."
        ),
        options=(
            ControllerOption(
                "mirroring-max-endpoints-per-subset",
                1000,
                "Maximum number of addresses of a subset that are mirrored to an EndpointSlice.",
            ),
            ControllerOption(
                "mirroring-endpointslice-updates-batch-period",
                0.0,
                "Time by which slices follow changes of other writers later, to join several changes in one update.",
                "duration",
            ),
        ),
    ),
    ControllerDescriptor(
        name="nodelifecycle",
        kubernetes_name="node-lifecycle-controller",
        factory="nodelifecycle.node_lifecycle_controller:NodeLifecycleController",
        watches="nodes pods leases.coordination.k8s.io",
        starts_with="nodes",
        starts_when=_needs_lifecycle,
        event_component="node-controller",
        options=(
            ControllerOption(
                "node-monitor-period", 5.0, "Interval at which the heartbeats of nodes are checked.", "duration"
            ),
            ControllerOption(
                "node-monitor-grace-period",
                50.0,
                "Time without a heartbeat after which a node becomes Unknown.",
                "duration",
            ),
            ControllerOption(
                "node-startup-grace-period",
                60.0,
                "Time without a heartbeat after which a node that has never reported becomes Unknown.",
                "duration",
            ),
            ControllerOption(
                "node-eviction-rate",
                0.1,
                "Number of nodes per second of a healthy zone that get a NoExecute taint.",
                "number",
            ),
            ControllerOption(
                "secondary-node-eviction-rate",
                0.01,
                "Number of nodes per second of an unhealthy zone that get a NoExecute taint; 0 for zones of at most"
                " --large-cluster-size-threshold nodes.",
                "number",
            ),
            ControllerOption(
                "large-cluster-size-threshold",
                50,
                "Number of nodes above which an unhealthy zone gets NoExecute taints.",
                "integer",
            ),
            ControllerOption(
                "unhealthy-zone-threshold",
                0.55,
                "Fraction of nodes, and at least three, that are not ready in an unhealthy zone.",
                "number",
            ),
        ),
    ),
    ControllerDescriptor(
        name="taint-eviction",
        kubernetes_name="taint-eviction-controller",
        factory="tainteviction.taint_eviction_controller:TaintEvictionController",
        watches="nodes pods",
        starts_with="nodes",
        starts_when=lambda node: any(taint.effect == "NoExecute" for taint in node.spec.taints),
    ),
    ControllerDescriptor(
        name="device-taint-eviction",
        kubernetes_name="device-taint-eviction-controller",
        factory="devicetainteviction.device_taint_eviction_controller:DeviceTaintEvictionController",
        watches="pods resourceclaims.resource.k8s.io resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io",
        starts_with="resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io",
        starts_when=_evicts_by_devices,
        feature_gate="DRADeviceTaints",
        concurrency=ControllerOption(
            "concurrent-device-taint-eviction-syncs",
            8,
            "Number of concurrent evictions of pods and updates of the status of DeviceTaintRules.",
        ),
    ),
    ControllerDescriptor(
        name="persistentvolume-binder",
        kubernetes_name="persistentvolume-binder-controller",
        factory="persistentvolume.persistent_volume_binder:PersistentVolumeBinder",
        watches="persistentvolumeclaims persistentvolumes storageclasses.storage.k8s.io pods",
        starts_with="persistentvolumeclaims persistentvolumes",
        event_component="persistentvolume-controller",
    ),
    ControllerDescriptor(
        name="persistentvolume-expander",
        kubernetes_name="persistentvolume-expander-controller",
        factory="volumeexpand.volume_expander:VolumeExpander",
        watches="persistentvolumeclaims",
        starts_with="persistentvolumeclaims",
        starts_when=_requests_more_storage,
        event_component="volume_expand",
    ),
    ControllerDescriptor(
        name="pvc-protection",
        kubernetes_name="persistentvolumeclaim-protection-controller",
        factory="pvcprotection.claim_protection_controller:ClaimProtectionController",
        watches="persistentvolumeclaims pods",
        starts_with="persistentvolumeclaims",
    ),
    ControllerDescriptor(
        name="pv-protection",
        kubernetes_name="persistentvolume-protection-controller",
        factory="pvprotection.volume_protection_controller:VolumeProtectionController",
        watches="persistentvolumes",
        starts_with="persistentvolumes",
    ),
    ControllerDescriptor(
        name="volumeattributesclass-protection",
        kubernetes_name="volumeattributesclass-protection-controller",
        factory="vacprotection.class_protection_controller:VolumeAttributesClassProtectionController",
        watches="volumeattributesclasses.storage.k8s.io persistentvolumes persistentvolumeclaims",
        starts_with="volumeattributesclasses.storage.k8s.io",
    ),
    ControllerDescriptor(
        name="ephemeral-volume",
        kubernetes_name="ephemeral-volume-controller",
        factory="ephemeral.ephemeral_volume_controller:EphemeralVolumeController",
        watches="pods persistentvolumeclaims",
        starts_with="pods",
        starts_when=lambda pod: any(volume.ephemeral is not None for volume in pod.spec.volumes),
        event_component="ephemeral_volume",
        concurrency=ControllerOption(
            "concurrent-ephemeralvolume-syncs", 5, "Number of concurrent creations of claims of ephemeral volumes."
        ),
    ),
    ControllerDescriptor(
        name="resource-claim-controller",
        kubernetes_name="resourceclaim-controller",
        factory="resourceclaim.resource_claim_controller:ResourceClaimController",
        watches="pods resourceclaims.resource.k8s.io resourceclaimtemplates.resource.k8s.io",
        starts_with="pods podgroups.scheduling.k8s.io resourceclaims.resource.k8s.io",
        starts_when=_has_claims,
        event_component="resource_claim",
        concurrency=ControllerOption(
            "concurrent-resourceclaim-syncs", 50, "Number of concurrent reconciles of ResourceClaims and their pods."
        ),
    ),
    ControllerDescriptor(
        name="clusterrole-aggregation",
        kubernetes_name="clusterrole-aggregation-controller",
        factory="clusterroleaggregation.aggregation_controller:ClusterRoleAggregationController",
        watches="clusterroles.rbac.authorization.k8s.io",
        starts_after=1.0,
    ),
    ControllerDescriptor(
        name="csrapproving",
        kubernetes_name="certificatesigningrequest-approving-controller",
        factory="certificates.approver:CertificateSigningRequestApprover",
        watches="certificatesigningrequests.certificates.k8s.io",
        starts_with="certificatesigningrequests.certificates.k8s.io",
    ),
    ControllerDescriptor(
        name="csrcleaner",
        kubernetes_name="certificatesigningrequest-cleaner-controller",
        factory="certificates.cleaner:CertificateSigningRequestCleaner",
        watches="certificatesigningrequests.certificates.k8s.io",
        starts_with="certificatesigningrequests.certificates.k8s.io",
    ),
    ControllerDescriptor(
        name="service-cidr",
        kubernetes_name="service-cidr-controller",
        factory="servicecidrs.service_cidr_controller:ServiceCIDRController",
        watches="servicecidrs.networking.k8s.io ipaddresses.networking.k8s.io",
        starts_after=1.0,
    ),
    ControllerDescriptor(
        name="svm",
        kubernetes_name="storage-version-migrator-controller",
        factory="storageversionmigrator.storage_version_migrator:StorageVersionMigrator",
        watches="storageversionmigrations.storagemigration.k8s.io",
        starts_with="storageversionmigrations.storagemigration.k8s.io",
        feature_gate="StorageVersionMigrator",
    ),
    ControllerDescriptor(
        name="validatingadmissionpolicy-status",
        kubernetes_name="validatingadmissionpolicy-status-controller",
        factory="validatingadmissionpolicystatus.policy_status_controller:PolicyStatusController",
        watches="validatingadmissionpolicies.admissionregistration.k8s.io",
        starts_with="validatingadmissionpolicies.admissionregistration.k8s.io",
        concurrency=ControllerOption(
            "concurrent-validating-admission-policy-status-syncs",
            5,
            "Number of concurrent type checks of ValidatingAdmissionPolicies.",
        ),
    ),
    ControllerDescriptor(
        name="podgroup-protection",
        kubernetes_name="podgroup-protection-controller",
        factory="podgroupprotection.pod_group_protection_controller:PodGroupProtectionController",
        watches="podgroups.scheduling.k8s.io pods",
        starts_with="podgroups.scheduling.k8s.io",
        feature_gate="GenericWorkload",
    ),
)
"""All controllers, in order of creation."""

CONTROLLERS_BY_NAME = {descriptor.name: descriptor for descriptor in CONTROLLER_TABLE}

CONTROLLERS = (*CONTROLLERS_BY_NAME, SCHEDULER)
"""Names for --controllers, in order of creation; the scheduler takes longest to import."""


def controller_options() -> tuple[ControllerOption, ...]:
    """Return the options of all controllers, in the order of the table."""
    return tuple(
        option
        for descriptor in CONTROLLER_TABLE
        for option in (descriptor.concurrency, *descriptor.options)
        if option is not None
    )


def default_options() -> dict[str, Any]:
    """Return the default value of each option, by its key."""
    return {option.key: option.default for option in controller_options()}
