"""Table of the controllers, named as in kube-controller-manager v1.36. A new controller is one row of CONTROLLER_TABLE.

Imports no controller: options, help and errors of the command line come from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec.structs import force_setattr, replace

if TYPE_CHECKING:
    from kubeloop.kube.objects.api_types import Node, Pod, Service
    from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceClaim, ResourceSlice
    from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
    from kubeloop.kube.objects.workload_types import PodGroup

_FIRST = "first"  # of the resources that a controller watches

SCHEDULER = "scheduler"
ROOT_CA_PUBLISHER = "root-ca-cert-publisher"
SERVICE_ACCOUNT_TOKEN = "serviceaccount-token"
CSR_SIGNING = "csrsigning"


class ControllerOption(msgspec.Struct, frozen=True):
    """An option of `kubeloop run` and `kubeloop up`, with kube-controller-manager's name and default.

    name: without the leading dashes. kind: "count" is an integer from 1, "duration" seconds or a text such as 1m30s.
    maximum: of a count, None if there is none.
    """

    name: str
    default: int | float | str
    help: str
    kind: Literal["count", "integer", "number", "duration", "text"] = "count"
    maximum: int | None = None

    @property
    def key(self) -> str:
        """Key in ControllerContext.options: the name with underscores."""
        return self.name.replace("-", "_")


class ControllerDescriptor(msgspec.Struct, frozen=True):
    """One controller.

    name: kube-controller-manager's alias, as which logs and messages show it.
    factory: module below kubeloop.controllers and function or class in it, which takes a ControllerContext and returns
      the controller; or a subclass of kubeloop.controllers.api.Controller.
    watches: the resources that the factory requests informers of, whose lists start before the module is imported.
    kubernetes_name: its name since v1.28, by default NAME-controller.
    starts_with: resources whose first object starts the controller in development and test clusters, by default the
      first of `watches`; "" starts it with the process, as `kubeloop run` always does.
    starts_when: only an object for which it returns True counts.
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
    factory: str
    watches: str
    kubernetes_name: str = ""
    starts_with: str = _FIRST
    starts_when: Callable[[Any], bool] | None = None
    starts_after: float = 0.0
    creates_pods_for: str = ""
    event_component: str = ""
    feature_gate: str = ""
    development_server: bool = False
    concurrency: ControllerOption | None = None
    options: tuple[ControllerOption, ...] = ()

    def __post_init__(self) -> None:
        if not self.kubernetes_name:
            force_setattr(self, "kubernetes_name", f"{self.name}-controller")
        if self.starts_with == _FIRST:
            force_setattr(self, "starts_with", self.watches.partition(" ")[0])

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


def _concurrency(name: str, default: int, subject: str, maximum: int | None = None) -> ControllerOption:
    return ControllerOption(name, default, f"Number of concurrent {subject}.", maximum=maximum)


def _options(text: str) -> tuple[ControllerOption, ...]:
    """Return the options of a text: a line of name, kind, default (none for a text) and maximum of a count, if it has
    one; then help, indented further."""
    options: list[ControllerOption] = []
    lines = [line for line in text.splitlines() if line.strip()]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    for indent, line in zip(indents, lines, strict=True):
        if indent > indents[0]:
            options[-1] = replace(options[-1], help=f"{options[-1].help} {line.strip()}".lstrip())
            continue
        name, kind, *numbers = line.split()
        default = float(numbers[0]) if kind in ("duration", "number") else int(numbers[0]) if numbers else ""
        maximum = int(numbers[1]) if len(numbers) > 1 else None
        options.append(ControllerOption(name, default, "", cast("Any", kind), maximum))
    return tuple(options)


CONTROLLER_TABLE = (
    ControllerDescriptor(
        "deployment",
        "deployment.deployment_controller:DeploymentController",
        "deployments.apps replicasets.apps pods",
        starts_with="",
        concurrency=_concurrency("concurrent-deployment-syncs", 5, "Deployment reconciles"),
    ),
    ControllerDescriptor(
        "replicaset",
        "replicaset.replica_set_controller:ReplicaSetController",
        "replicasets.apps pods",
        starts_with="",
        creates_pods_for="ReplicaSet",
        concurrency=_concurrency("concurrent-replicaset-syncs", 5, "ReplicaSet reconciles"),
    ),
    ControllerDescriptor(
        "replicationcontroller",
        "replicaset.replica_set_controller:new_replication_controller",
        "replicationcontrollers pods",
        creates_pods_for="ReplicationController",
        event_component="replication-controller",
        concurrency=_concurrency("concurrent-rc-syncs", 5, "ReplicationController reconciles"),
    ),
    ControllerDescriptor(
        "daemonset",
        "daemonset.daemon_set_controller:DaemonSetController",
        "daemonsets.apps controllerrevisions.apps pods nodes",
        creates_pods_for="DaemonSet",
        concurrency=_concurrency("concurrent-daemonset-syncs", 2, "DaemonSet reconciles"),
    ),
    ControllerDescriptor(
        "garbagecollector",
        "garbagecollector.garbage_collector:GarbageCollector",
        "",
        kubernetes_name="garbage-collector-controller",
        starts_after=0.5,
        concurrency=_concurrency("concurrent-gc-syncs", 20, "workers per queue of the garbage collector"),
    ),
    ControllerDescriptor(
        "namespace",
        "namespace.namespace_controller:NamespaceController",
        "namespaces pods",
        starts_with="",
        concurrency=_concurrency("concurrent-namespace-syncs", 10, "Namespace reconciles"),
    ),
    ControllerDescriptor(
        "resourcequota",
        "resourcequota.resource_quota_controller:ResourceQuotaController",
        "resourcequotas",
        concurrency=_concurrency("concurrent-resource-quota-syncs", 5, "ResourceQuota reconciles"),
    ),
    ControllerDescriptor(
        "serviceaccount",
        "serviceaccount.service_accounts_controller:ServiceAccountsController",
        "namespaces serviceaccounts",
        starts_with="",
        development_server=True,
    ),
    ControllerDescriptor(
        SERVICE_ACCOUNT_TOKEN,
        "serviceaccount.tokens_controller:TokensController",
        "secrets serviceaccounts",
        starts_when=lambda secret: secret.get("type") == "kubernetes.io/service-account-token",
        concurrency=_concurrency("concurrent-serviceaccount-token-syncs", 5, "reconciles of service account tokens"),
        options=_options("""
            service-account-private-key-file text
                File of the private key, in PEM, that signs the tokens of Secrets; serviceaccount-token needs it.
        """),
    ),
    ControllerDescriptor(
        ROOT_CA_PUBLISHER,
        "rootcacertpublisher.publisher:RootCACertificatePublisher",
        "namespaces configmaps",
        kubernetes_name="root-ca-certificate-publisher-controller",
        starts_with="",
        development_server=True,
        options=_options("""
            root-ca-file text
                File of the certificates for kube-root-ca.crt and token Secrets (default: those of the kubeconfig).
        """),
    ),
    ControllerDescriptor(
        "job",
        "job.job_controller:JobController",
        "jobs.batch pods",
        creates_pods_for="Job",
        concurrency=_concurrency("concurrent-job-syncs", 5, "Job reconciles"),
    ),
    ControllerDescriptor(
        "statefulset",
        "statefulset.stateful_set_controller:StatefulSetController",
        "statefulsets.apps pods persistentvolumeclaims controllerrevisions.apps",
        creates_pods_for="StatefulSet",
        concurrency=_concurrency("concurrent-statefulset-syncs", 5, "StatefulSet reconciles"),
    ),
    ControllerDescriptor(
        "cronjob",
        "cronjob.cron_job_controller:CronJobController",
        "cronjobs.batch jobs.batch",
        concurrency=_concurrency("concurrent-cron-job-syncs", 5, "CronJob reconciles"),
    ),
    ControllerDescriptor(
        "ttl-after-finished",
        "ttlafterfinished.ttl_after_finished_controller:TTLAfterFinishedController",
        "jobs.batch",
        concurrency=_concurrency("concurrent-ttl-after-finished-syncs", 5, "deletions of expired Jobs"),
    ),
    ControllerDescriptor(
        "podgc",
        "podgc.pod_garbage_collector:PodGarbageCollector",
        "pods nodes",
        kubernetes_name="pod-garbage-collector-controller",
        options=_options("""
            terminated-pod-gc-threshold integer 12500
                Number of terminated pods above which the oldest are deleted; 0 or less for no limit.
        """),
    ),
    ControllerDescriptor(
        "horizontalpodautoscaling",
        "podautoscaler.horizontal_controller:HorizontalController",
        "horizontalpodautoscalers.autoscaling pods",
        kubernetes_name="horizontal-pod-autoscaler-controller",
        event_component="horizontal-pod-autoscaler",
        concurrency=_concurrency("concurrent-horizontal-pod-autoscaler-syncs", 5, "HorizontalPodAutoscaler reconciles"),
        options=_options("""
            horizontal-pod-autoscaler-sync-period duration 15.0
                Interval at which the metrics of a HorizontalPodAutoscaler are evaluated.
            horizontal-pod-autoscaler-downscale-stabilization duration 300.0
                Time for which the highest recommendation of a HorizontalPodAutoscaler prevents a scale-down.
            horizontal-pod-autoscaler-tolerance number 0.1
                Deviation of a metric from its target, as a fraction, that causes no scaling.
            horizontal-pod-autoscaler-cpu-initialization-period duration 300.0
                Time after the start of a pod during which its CPU samples count only while it is ready.
            horizontal-pod-autoscaler-initial-readiness-delay duration 30.0
                Time after the start of a pod during which changes of its readiness count as its first readiness.
        """),
    ),
    ControllerDescriptor(
        "disruption",
        "disruption.disruption_controller:DisruptionController",
        "poddisruptionbudgets.policy pods replicasets.apps statefulsets.apps deployments.apps replicationcontrollers",
        event_component="controllermanager",
    ),
    ControllerDescriptor(
        "endpoint",
        "endpoint.endpoints_controller:EndpointsController",
        "services pods endpoints",
        kubernetes_name="endpoints-controller",
        starts_when=lambda service: bool(service.spec.selector),
        event_component="endpoint-controller",
        concurrency=_concurrency("concurrent-endpoint-syncs", 5, "reconciles of the Endpoints of Services"),
        options=_options("""
            endpoint-updates-batch-period duration 0.0
                Time by which Endpoints follow changes of pods later, to join several changes in one update.
        """),
    ),
    ControllerDescriptor(
        "endpointslice",
        "endpointslice.endpoint_slice_controller:EndpointSliceController",
        "services pods nodes endpointslices.discovery.k8s.io",
        starts_when=lambda service: bool(service.spec.selector),
        event_component="endpoint-slice-controller",
        concurrency=_concurrency(
            "concurrent-service-endpoint-syncs", 5, "reconciles of the EndpointSlices of Services", 50
        ),
        options=_options("""
            max-endpoints-per-slice count 100 1000
                Maximum number of endpoints in an EndpointSlice.
            endpointslice-updates-batch-period duration 0.0
                Time by which EndpointSlices follow changes of pods later, to join several changes in one update.
        """),
    ),
    ControllerDescriptor(
        "endpointslicemirroring",
        "endpointslicemirroring.mirroring_controller:EndpointSliceMirroringController",
        "services endpoints endpointslices.discovery.k8s.io",
        kubernetes_name="endpointslice-mirroring-controller",
        starts_when=_has_own_endpoints,
        event_component="endpoint-slice-mirroring-controller",
        concurrency=_concurrency(
            "mirroring-concurrent-service-endpoint-syncs", 5, "reconciles of mirrored Endpoints", 50
        ),
        options=_options("""
            mirroring-max-endpoints-per-subset count 1000 1000
                Maximum number of addresses of a subset that are mirrored to an EndpointSlice.
            mirroring-endpointslice-updates-batch-period duration 0.0
                Time by which slices follow changes of other writers later, to join several changes in one update.
        """),
    ),
    ControllerDescriptor(
        "nodelifecycle",
        "nodelifecycle.node_lifecycle_controller:NodeLifecycleController",
        "nodes pods leases.coordination.k8s.io",
        kubernetes_name="node-lifecycle-controller",
        starts_when=_needs_lifecycle,
        event_component="node-controller",
        options=_options("""
            node-monitor-period duration 5.0
                Interval at which the heartbeats of nodes are checked.
            node-monitor-grace-period duration 50.0
                Time without a heartbeat after which a node becomes Unknown.
            node-startup-grace-period duration 60.0
                Time without a heartbeat after which a node that has never reported becomes Unknown.
            node-eviction-rate number 0.1
                Number of nodes per second of a healthy zone that get a NoExecute taint.
            secondary-node-eviction-rate number 0.01
                Number of nodes per second of an unhealthy zone that get a NoExecute taint; 0 for zones of at most
                --large-cluster-size-threshold nodes.
            large-cluster-size-threshold integer 50
                Number of nodes above which an unhealthy zone gets NoExecute taints.
            unhealthy-zone-threshold number 0.55
                Fraction of nodes, and at least three, that are not ready in an unhealthy zone.
        """),
    ),
    ControllerDescriptor(
        "taint-eviction",
        "tainteviction.taint_eviction_controller:TaintEvictionController",
        "nodes pods",
        starts_when=lambda node: any(taint.effect == "NoExecute" for taint in node.spec.taints),
    ),
    ControllerDescriptor(
        "device-taint-eviction",
        "devicetainteviction.device_taint_eviction_controller:DeviceTaintEvictionController",
        "pods resourceclaims.resource.k8s.io resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io",
        starts_with="resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io",
        starts_when=_evicts_by_devices,
        feature_gate="DRADeviceTaints",
        concurrency=_concurrency(
            "concurrent-device-taint-eviction-syncs",
            8,
            "evictions of pods and updates of the status of DeviceTaintRules",
        ),
    ),
    ControllerDescriptor(
        "persistentvolume-binder",
        "persistentvolume.persistent_volume_binder:PersistentVolumeBinder",
        "persistentvolumeclaims persistentvolumes storageclasses.storage.k8s.io pods",
        starts_with="persistentvolumeclaims persistentvolumes",
        event_component="persistentvolume-controller",
    ),
    ControllerDescriptor(
        "persistentvolume-expander",
        "volumeexpand.volume_expander:VolumeExpander",
        "persistentvolumeclaims",
        starts_when=_requests_more_storage,
        event_component="volume_expand",
    ),
    ControllerDescriptor(
        "pvc-protection",
        "pvcprotection.claim_protection_controller:ClaimProtectionController",
        "persistentvolumeclaims pods",
        kubernetes_name="persistentvolumeclaim-protection-controller",
    ),
    ControllerDescriptor(
        "pv-protection",
        "pvprotection.volume_protection_controller:VolumeProtectionController",
        "persistentvolumes",
        kubernetes_name="persistentvolume-protection-controller",
    ),
    ControllerDescriptor(
        "volumeattributesclass-protection",
        "vacprotection.class_protection_controller:VolumeAttributesClassProtectionController",
        "volumeattributesclasses.storage.k8s.io persistentvolumes persistentvolumeclaims",
    ),
    ControllerDescriptor(
        "ephemeral-volume",
        "ephemeral.ephemeral_volume_controller:EphemeralVolumeController",
        "pods persistentvolumeclaims",
        starts_when=lambda pod: any(volume.ephemeral is not None for volume in pod.spec.volumes),
        event_component="ephemeral_volume",
        concurrency=_concurrency("concurrent-ephemeralvolume-syncs", 5, "creations of claims of ephemeral volumes"),
    ),
    ControllerDescriptor(
        "resource-claim-controller",
        "resourceclaim.resource_claim_controller:ResourceClaimController",
        "pods resourceclaims.resource.k8s.io resourceclaimtemplates.resource.k8s.io",
        kubernetes_name="resourceclaim-controller",
        starts_with="pods podgroups.scheduling.k8s.io resourceclaims.resource.k8s.io",
        starts_when=_has_claims,
        event_component="resource_claim",
        concurrency=_concurrency("concurrent-resourceclaim-syncs", 50, "reconciles of ResourceClaims and their pods"),
    ),
    ControllerDescriptor(
        "clusterrole-aggregation",
        "clusterroleaggregation.aggregation_controller:ClusterRoleAggregationController",
        "clusterroles.rbac.authorization.k8s.io",
        starts_with="",
        starts_after=1.0,
    ),
    ControllerDescriptor(
        "csrapproving",
        "certificates.approver:CertificateSigningRequestApprover",
        "certificatesigningrequests.certificates.k8s.io",
        kubernetes_name="certificatesigningrequest-approving-controller",
    ),
    ControllerDescriptor(
        CSR_SIGNING,
        "certificates.signer:CertificateSigningRequestSigner",
        "certificatesigningrequests.certificates.k8s.io",
        kubernetes_name="certificatesigningrequest-signing-controller",
        options=_options("""
            cluster-signing-cert-file text
                File of the certificate authority, in PEM, whose signers issue the certificates of approved requests;
                csrsigning needs it, or those of single signers.
            cluster-signing-key-file text
                File of the private key of --cluster-signing-cert-file, in PEM.
            cluster-signing-duration duration 31536000.0
                Longest validity of a certificate.
            cluster-signing-kube-apiserver-client-cert-file text
                File of the authority of the signer kubernetes.io/kube-apiserver-client.
            cluster-signing-kube-apiserver-client-key-file text
                File of its private key.
            cluster-signing-kubelet-client-cert-file text
                File of the authority of the signer kubernetes.io/kube-apiserver-client-kubelet.
            cluster-signing-kubelet-client-key-file text
                File of its private key.
            cluster-signing-kubelet-serving-cert-file text
                File of the authority of the signer kubernetes.io/kubelet-serving.
            cluster-signing-kubelet-serving-key-file text
                File of its private key.
            cluster-signing-legacy-unknown-cert-file text
                File of the authority of the signer kubernetes.io/legacy-unknown.
            cluster-signing-legacy-unknown-key-file text
                File of its private key.
        """),
    ),
    ControllerDescriptor(
        "csrcleaner",
        "certificates.cleaner:CertificateSigningRequestCleaner",
        "certificatesigningrequests.certificates.k8s.io",
        kubernetes_name="certificatesigningrequest-cleaner-controller",
    ),
    ControllerDescriptor(
        "service-cidr",
        "servicecidrs.service_cidr_controller:ServiceCIDRController",
        "servicecidrs.networking.k8s.io ipaddresses.networking.k8s.io",
        starts_with="",
        starts_after=1.0,
    ),
    ControllerDescriptor(
        "svm",
        "storageversionmigrator.storage_version_migrator:StorageVersionMigrator",
        "storageversionmigrations.storagemigration.k8s.io",
        kubernetes_name="storage-version-migrator-controller",
        feature_gate="StorageVersionMigrator",
    ),
    ControllerDescriptor(
        "validatingadmissionpolicy-status",
        "validatingadmissionpolicystatus.policy_status_controller:PolicyStatusController",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        concurrency=_concurrency(
            "concurrent-validating-admission-policy-status-syncs", 5, "type checks of ValidatingAdmissionPolicies"
        ),
    ),
    ControllerDescriptor(
        "podgroup-protection",
        "podgroupprotection.pod_group_protection_controller:PodGroupProtectionController",
        "podgroups.scheduling.k8s.io pods",
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
