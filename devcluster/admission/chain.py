"""Admission: kube-apiserver's default plugins, which change or reject an object before it is stored.

Before validation (`admit_...`): NamespaceLifecycle, LimitRanger's defaults, the name of the default ServiceAccount,
TaintNodesByCondition, Priority, DefaultTolerationSeconds, DefaultStorageClass, StorageObjectInUseProtection,
PodGroupProtection, RuntimeClass, DefaultIngressClass. After it (`check_...`): LimitRanger's bounds, PodSecurity,
Priority, PersistentVolumeClaimResize, RuntimeClass, PodResizeValidator, PodGroupWorkloadExists, JobValidation, and
admin access to devices. The last is ResourceQuota (`charge_quota`). Admission policies run after the other plugins of
their phase (`policies.policy_plugin`); they may take long. Source: plugin/pkg/admission of Kubernetes v1.36.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.admission import device_admin_access, limit_ranger, pod_security, resource_quota
from kubeloop.devcluster.admission.default_classes import set_default_ingress_class, set_default_storage_class
from kubeloop.devcluster.admission.default_toleration_seconds import add_default_tolerations
from kubeloop.devcluster.admission.persistent_volume_claim_resize import check_claim_resize
from kubeloop.devcluster.admission.pod_groups import check_gang_parallelism, check_template_exists
from kubeloop.devcluster.admission.pod_resize import check_declared_features, check_pod_resize
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
_MIRROR = "kubernetes.io/config.mirror"


class AdmissionChain:
    """The admission plugins over one store, in kube-apiserver's order, without the policies.

    has_default_accounts: namespaces have a ServiceAccount `default`, which pods use by default.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        has_default_accounts: bool = False,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
    ) -> None:
        self._store = store
        self._counts_extended_resources = gates.enabled("DRAExtendedResource")
        self._checks_declared_features = gates.enabled("NodeDeclaredFeatures")
        self._has_pod_groups = gates.enabled("GenericWorkload")
        self._sets_group_priority = gates.enabled("WorkloadAwarePreemption")
        self._has_default_accounts = has_default_accounts

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

    def admit_create(self, resource: Resource[Any], obj: JSON, namespace: str) -> None:
        """Run the mutating plugins on a new object; they change it in place. Raises StatusError."""
        match resource.group_resource:
            case "pods":
                if self._has_default_accounts:
                    set_default_service_account(obj)
                limit_ranger.set_pod_defaults(self._store.list(LIMIT_RANGES, namespace), obj)
                set_priority(self._store, obj)
                add_default_tolerations(obj)
                if "runtimeClassName" in obj["spec"]:
                    apply_runtime_class(self._store, obj)
            case "nodes":
                taints = obj.setdefault("spec", {}).setdefault("taints", [])
                if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
                    taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
            case "persistentvolumeclaims":
                _add_finalizer(obj, "kubernetes.io/pvc-protection")
                set_default_storage_class(self._store, obj)
            case "persistentvolumes":
                _add_finalizer(obj, "kubernetes.io/pv-protection")
            case "volumeattributesclasses.storage.k8s.io":
                _add_finalizer(obj, "kubernetes.io/vac-protection")
            case "ingresses.networking.k8s.io":
                set_default_ingress_class(self._store, obj)
            case "podgroups.scheduling.k8s.io":
                if self._sets_group_priority:
                    set_group_priority(self._store, obj)
                _add_finalizer(obj, "scheduling.k8s.io/podgroup-protection")

    def check_create(self, context: RequestContext, resource: Resource[Any], obj: JSON) -> None:
        """Run the validating plugins on a new, valid object. Raises StatusError 403."""
        namespace, warnings = context.info.namespace, context.request.warnings
        match resource.group_resource:
            case "pods":
                limit_ranger.check_pod(self._store.list(LIMIT_RANGES, namespace), obj)
                pod_security.check_pod(self._store, obj, warnings)
                check_overhead(self._store, obj)
            case "persistentvolumeclaims":
                limit_ranger.check_claim(self._store.list(LIMIT_RANGES, namespace), obj)
            case "namespaces":
                pod_security.check_new_namespace(obj)
            case "priorityclasses.scheduling.k8s.io":
                check_single_default(self._store, obj, new=True)
            case "podgroups.scheduling.k8s.io":
                check_template_exists(self._store, obj)
            case "resourceclaims.resource.k8s.io" | "resourceclaimtemplates.resource.k8s.io":
                device_admin_access.check_requests(self._store, resource, obj)
            case workload if workload in _KINDS_WITH_POD_TEMPLATE:
                pod_security.check_template(self._store, obj, warnings)

    def admit_update(self, resource: Resource[Any], obj: JSON, old: JSON, subresource: str) -> None:
        """Run the mutating plugins on an update; they change `obj` in place."""
        if subresource:
            return
        match resource.group_resource:
            case "pods":
                add_default_tolerations(obj)
            case "namespaces":
                labels = obj["metadata"].setdefault("labels", {})
                labels["kubernetes.io/metadata.name"] = old["metadata"]["name"]

    def check_update(self, context: RequestContext, resource: Resource[Any], obj: JSON, old: JSON) -> None:
        """Run the validating plugins on a valid update. Raises StatusError 403."""
        subresource, warnings = context.info.subresource, context.request.warnings
        match resource.group_resource:
            case "pods" if subresource != "status":
                is_resize = subresource == "resize"
                if is_resize and "deletionTimestamp" not in old["metadata"]:
                    limit_ranger.check_pod(self._store.list(LIMIT_RANGES, old["metadata"]["namespace"]), obj)
                pod_security.check_pod(self._store, obj, warnings, old)
                if is_resize and self._checks_declared_features:
                    check_declared_features(self._store, obj, old)
                if is_resize:
                    check_pod_resize(self._store, obj, old)
            case "persistentvolumeclaims" if not subresource:
                if "deletionTimestamp" not in old["metadata"]:
                    limit_ranger.check_claim(self._store.list(LIMIT_RANGES, old["metadata"]["namespace"]), obj)
                check_claim_resize(self._store, resource, obj, old)
            case "namespaces" if not subresource:
                pod_security.check_namespace_update(self._store, obj, old, warnings)
            case "priorityclasses.scheduling.k8s.io":
                check_single_default(self._store, obj, new=False)
            case "resourceclaims.resource.k8s.io" if subresource == "status":
                device_admin_access.check_allocation(self._store, resource, obj, old)
            case workload if workload in _KINDS_WITH_POD_TEMPLATE and not subresource:
                pod_security.check_template(self._store, obj, warnings)
                if workload == "jobs.batch" and self._has_pod_groups:
                    check_gang_parallelism(self._store, obj, old)

    def charge_quota(
        self, context: RequestContext, resource: Resource[Any], obj: JSON, old: JSON | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """ResourceQuota: on entering, reject a write that exceeds a quota; on leaving, store the new usage.

        old: the object before an update, None for a create.
        """
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


def set_default_service_account(pod: JSON) -> None:
    """Set the ServiceAccount `default`, except for mirror pods; no token is mounted."""
    spec = pod["spec"]
    if not spec.get("serviceAccountName") and _MIRROR not in pod["metadata"].get("annotations", {}):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"


def _add_finalizer(obj: JSON, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]
