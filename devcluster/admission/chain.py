"""Admission: kube-apiserver's default plugins, which change or reject an object before it is stored.

Plugins that change objects run before validation (`admit_...`), those that check them after it (`check_...`); the last
is ResourceQuota (`charge_quota`). Admission policies run after the other plugins of their phase
(`policies.policy_plugin`); they may take long. CertificateApproval, CertificateSigning and ClusterTrustBundleAttest ask
whether the user is authorized, which every user is. Source: plugin/pkg/admission of Kubernetes v1.36.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.admission import (
    device_admin_access,
    limit_ranger,
    pod_security,
    resource_quota,
    service_account,
)
from kubeloop.devcluster.admission.certificate_subject import check_subject
from kubeloop.devcluster.admission.default_classes import set_default_ingress_class, set_default_storage_class
from kubeloop.devcluster.admission.default_plugins import DEFAULT_PLUGINS, WITHOUT_ACCOUNTS
from kubeloop.devcluster.admission.default_toleration_seconds import add_default_tolerations
from kubeloop.devcluster.admission.persistent_volume_claim_resize import check_claim_resize
from kubeloop.devcluster.admission.pod_groups import check_gang_parallelism, check_template_exists
from kubeloop.devcluster.admission.pod_resize import check_declared_features, check_pod_resize
from kubeloop.devcluster.admission.pod_topology_labels import add_topology_labels
from kubeloop.devcluster.admission.priority import check_single_default, set_group_priority, set_priority
from kubeloop.devcluster.admission.runtime_class import apply_runtime_class, check_overhead
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import LIMIT_RANGES, get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.quota_usage import DeviceQuota
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    Resource,
)

_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
_KINDS_WITH_POD_TEMPLATE = frozenset({
    "cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "podtemplates", "replicasets.apps",
    "replicationcontrollers", "statefulsets.apps",
})  # fmt: skip
_SERVED_QUOTAS = get_served_resource(RESOURCE_QUOTAS)
_API_SERVER = Writer("kube-apiserver")


class AdmissionChain:
    """The admission plugins over one store, in kube-apiserver's order, without the policies.

    disabled: names of plugins that do not run.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        disabled: frozenset[str] = WITHOUT_ACCOUNTS,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
    ) -> None:
        self._store = store
        self._counts_extended_resources = gates.enabled("DRAExtendedResource")
        self._checks_declared_features = gates.enabled("NodeDeclaredFeatures")
        self._has_pod_groups = gates.enabled("GenericWorkload")
        self._sets_group_priority = gates.enabled("WorkloadAwarePreemption")
        self._enabled = DEFAULT_PLUGINS.keys() - disabled
        self._copies_topology_labels = "PodTopologyLabels" in self._enabled and gates.enabled(
            "PodTopologyLabelsAdmission"
        )

    # --- NamespaceLifecycle -------------------------------------------------------------------------------------------

    def check_namespace(self, namespace: str) -> JSON:
        """Return the namespace of an object that is written. Raises StatusError 404."""
        namespace_object = self._store.get(NAMESPACES, "", namespace)
        if namespace_object is None:
            raise errors.not_found(NAMESPACES, namespace)
        return namespace_object

    def check_namespace_accepts_creates(self, resource: Resource[Any], name: str, namespace: str) -> None:
        """Raise StatusError 404 or 403 unless objects may be created in the namespace."""
        if not resource.namespaced:
            return
        namespace_object = self.check_namespace(namespace)
        if (
            namespace_object["status"].get("phase") == "Terminating"
            or "deletionTimestamp" in namespace_object["metadata"]
        ):
            error = errors.forbidden(
                resource,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                causes=[
                    errors.cause(
                        "NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated"
                    )
                ],
            )
            raise error

    @staticmethod
    def check_delete(resource: Resource[Any], name: str) -> None:
        """Raise StatusError 403 for namespaces that may not be deleted."""
        if resource is NAMESPACES and name in _PROTECTED_NAMESPACES:
            raise errors.forbidden(resource, name, "this namespace may not be deleted")

    # --- mutation and validation --------------------------------------------------------------------------------------

    def admit_create(self, context: RequestContext, resource: Resource[Any], obj: JSON) -> None:
        """Run the mutating plugins on a new object; they change it in place. Raises StatusError."""
        enabled, store, namespace = self._enabled, self._store, context.info.namespace
        match resource.group_resource:
            case "pods":
                if "LimitRanger" in enabled:
                    limit_ranger.set_pod_defaults(store.list(LIMIT_RANGES, namespace), obj)
                if "ServiceAccount" in enabled:
                    service_account.admit_pod(store, obj, namespace, context.rng)
                if "Priority" in enabled:
                    set_priority(store, obj)
                if "DefaultTolerationSeconds" in enabled:
                    add_default_tolerations(obj)
                if "runtimeClassName" in obj["spec"] and "RuntimeClass" in enabled:
                    apply_runtime_class(store, obj)
                if "nodeName" in obj["spec"] and self._copies_topology_labels:
                    add_topology_labels(store, obj["metadata"], obj["spec"]["nodeName"])
            case "nodes" if "TaintNodesByCondition" in enabled:
                taints = obj.setdefault("spec", {}).setdefault("taints", [])
                not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
                if not any({**not_ready, **taint}.items() >= not_ready.items() for taint in taints):
                    taints.append(not_ready)
            case "persistentvolumeclaims":
                if "DefaultStorageClass" in enabled:
                    set_default_storage_class(store, obj)
                if "StorageObjectInUseProtection" in enabled:
                    _add_finalizer(obj, "kubernetes.io/pvc-protection")
            case "persistentvolumes" if "StorageObjectInUseProtection" in enabled:
                _add_finalizer(obj, "kubernetes.io/pv-protection")
            case "volumeattributesclasses.storage.k8s.io" if "StorageObjectInUseProtection" in enabled:
                _add_finalizer(obj, "kubernetes.io/vac-protection")
            case "ingresses.networking.k8s.io" if "DefaultIngressClass" in enabled:
                set_default_ingress_class(store, obj)
            case "podgroups.scheduling.k8s.io":
                if self._sets_group_priority and "Priority" in enabled:
                    set_group_priority(store, obj)
                if "PodGroupProtection" in enabled:
                    _add_finalizer(obj, "scheduling.k8s.io/podgroup-protection")

    def admit_binding(self, binding: JSON) -> None:
        """Run the mutating plugins on a Binding that is sent to a pod; they change it in place."""
        target = binding.get("target") or {}
        if target.get("kind") == "Node" and target.get("name") and self._copies_topology_labels:
            add_topology_labels(self._store, binding["metadata"], target["name"])

    def check_create(self, context: RequestContext, resource: Resource[Any], obj: JSON) -> None:
        """Run the validating plugins on a new, valid object. Raises StatusError 403."""
        enabled, store = self._enabled, self._store
        namespace, warnings = context.info.namespace, context.request.warnings
        match resource.group_resource:
            case "pods":
                if "LimitRanger" in enabled:
                    limit_ranger.check_pod(store.list(LIMIT_RANGES, namespace), obj)
                if "ServiceAccount" in enabled:
                    service_account.check_pod(store, obj, namespace)
                if "PodSecurity" in enabled:
                    pod_security.check_pod(store, obj, warnings)
                if "RuntimeClass" in enabled:
                    check_overhead(store, obj)
            case "persistentvolumeclaims" if "LimitRanger" in enabled:
                limit_ranger.check_claim(store.list(LIMIT_RANGES, namespace), obj)
            case "namespaces" if "PodSecurity" in enabled:
                pod_security.check_new_namespace(obj)
            case "priorityclasses.scheduling.k8s.io" if "Priority" in enabled:
                check_single_default(store, obj, new=True)
            case "podgroups.scheduling.k8s.io" if "PodGroupWorkloadExists" in enabled:
                check_template_exists(store, obj)
            case "resourceclaims.resource.k8s.io" | "resourceclaimtemplates.resource.k8s.io":
                device_admin_access.check_requests(store, resource, obj)
            case "certificatesigningrequests.certificates.k8s.io" if "CertificateSubjectRestriction" in enabled:
                check_subject(obj)
            case workload if workload in _KINDS_WITH_POD_TEMPLATE and "PodSecurity" in enabled:
                pod_security.check_template(store, obj, warnings)

    def admit_update(self, resource: Resource[Any], obj: JSON, old: JSON, subresource: str) -> None:
        """Run the mutating plugins on an update; they change `obj` in place."""
        if subresource:
            return
        match resource.group_resource:
            case "pods":
                if "DefaultTolerationSeconds" in self._enabled:
                    add_default_tolerations(obj)
            case "namespaces":
                labels = obj["metadata"].setdefault("labels", {})
                labels["kubernetes.io/metadata.name"] = old["metadata"]["name"]

    def check_update(self, context: RequestContext, resource: Resource[Any], obj: JSON, old: JSON) -> None:
        """Run the validating plugins on a valid update. Raises StatusError 403."""
        enabled, store = self._enabled, self._store
        subresource, warnings = context.info.subresource, context.request.warnings
        match resource.group_resource:
            case "pods" if subresource != "status":
                is_resize, namespace = subresource == "resize", old["metadata"]["namespace"]
                if is_resize and "deletionTimestamp" not in old["metadata"] and "LimitRanger" in enabled:
                    limit_ranger.check_pod(store.list(LIMIT_RANGES, namespace), obj)
                if subresource == "ephemeralcontainers" and "ServiceAccount" in enabled:
                    service_account.check_ephemeral_containers(store, obj, namespace)
                if "PodSecurity" in enabled:
                    pod_security.check_pod(store, obj, warnings, old)
                if is_resize and self._checks_declared_features and "NodeDeclaredFeatureValidator" in enabled:
                    check_declared_features(store, obj, old)
                if is_resize and "PodResizeValidator" in enabled:
                    check_pod_resize(store, obj, old)
            case "persistentvolumeclaims" if not subresource:
                if "deletionTimestamp" not in old["metadata"] and "LimitRanger" in enabled:
                    limit_ranger.check_claim(store.list(LIMIT_RANGES, old["metadata"]["namespace"]), obj)
                if "PersistentVolumeClaimResize" in enabled:
                    check_claim_resize(store, resource, obj, old)
            case "namespaces" if not subresource and "PodSecurity" in enabled:
                pod_security.check_namespace_update(store, obj, old, warnings)
            case "priorityclasses.scheduling.k8s.io" if "Priority" in enabled:
                check_single_default(store, obj, new=False)
            case "resourceclaims.resource.k8s.io" if subresource == "status":
                device_admin_access.check_allocation(store, resource, obj, old)
            case workload if workload in _KINDS_WITH_POD_TEMPLATE and not subresource:
                if "PodSecurity" in enabled:
                    pod_security.check_template(store, obj, warnings)
                if workload == "jobs.batch" and self._has_pod_groups and "JobValidation" in enabled:
                    check_gang_parallelism(store, obj, old)

    def charge_quota(
        self, context: RequestContext, resource: Resource[Any], obj: JSON, old: JSON | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """ResourceQuota: on entering, reject a write that exceeds a quota; on leaving, store the new usage.

        old: the object before an update, None for a create.
        """
        if "ResourceQuota" not in self._enabled:
            return contextlib.nullcontext()
        if not resource.namespaced or not (quotas := self._store.list(RESOURCE_QUOTAS, context.info.namespace)):
            return contextlib.nullcontext()
        subresource = "" if old is None else context.info.subresource
        if not resource_quota.is_charged(resource, obj, old, subresource):
            return contextlib.nullcontext()
        devices = None
        if self._counts_extended_resources and resource.group_resource == RESOURCE_CLAIMS.group_resource:
            devices = self._device_quota(context.info.namespace)
        return self._count_in_quotas(context, resource_quota.charge(quotas, resource, obj, old, subresource, devices))

    def _device_quota(self, namespace: str) -> DeviceQuota:
        store = self._store
        return DeviceQuota(
            {
                device_class["metadata"]["name"]: (device_class.get("spec") or {}).get("extendedResourceName") or ""
                for device_class in store.list(DEVICE_CLASSES, "")
            },
            lambda name: store.get(PODS, namespace, name),
            lambda uid: [
                claim
                for claim in store.list(RESOURCE_CLAIMS, namespace)
                if any(owner["uid"] == uid for owner in claim["metadata"].get("ownerReferences") or ())
            ],
        )

    @contextlib.contextmanager
    def _count_in_quotas(self, context: RequestContext, updated: list[JSON]) -> Iterator[None]:
        yield
        if not context.dry_run:
            for quota in updated:
                old = self._store.get(RESOURCE_QUOTAS, quota["metadata"]["namespace"], quota["metadata"]["name"])
                updated_quota = {**quota, "metadata": dict(quota["metadata"])}
                if old is not None:
                    track_update(_SERVED_QUOTAS, updated_quota, old, _API_SERVER, context.now, subresource="status")
                self._store.update(RESOURCE_QUOTAS, updated_quota)


def _add_finalizer(obj: JSON, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]
