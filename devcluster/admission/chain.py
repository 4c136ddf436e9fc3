"""Admission: what kube-apiserver's default plugins change or refuse before an object is stored.

Before an object is validated (`admit_...`): NamespaceLifecycle, LimitRanger's defaults, TaintNodesByCondition,
Priority, DefaultTolerationSeconds, DefaultStorageClass, StorageObjectInUseProtection, RuntimeClass and
DefaultIngressClass.
Afterwards (`check_...`): LimitRanger's bounds, PodSecurity, Priority, PersistentVolumeClaimResize, RuntimeClass,
PodResizeValidator, ValidatingAdmissionPolicy (`policies`) and, as the last, ResourceQuota (`charged`). Source:
plugin/pkg/admission of Kubernetes v1.36.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.admission import limit_ranger, pod_security, resource_quota
from kubeloop.devcluster.admission.default_classes import set_default_ingress_class, set_default_storage_class
from kubeloop.devcluster.admission.default_toleration_seconds import add_default_tolerations
from kubeloop.devcluster.admission.persistent_volume_claim_resize import check_claim_resize
from kubeloop.devcluster.admission.pod_resize import check_pod_resize
from kubeloop.devcluster.admission.policies.policy_plugin import Policies
from kubeloop.devcluster.admission.priority import check_single_default, set_priority
from kubeloop.devcluster.admission.runtime_class import apply_runtime_class, check_overhead
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import LIMIT_RANGES, get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    NAMESPACES,
    RESOURCE_QUOTAS,
    Resource,
)

_IMMORTAL = ("default", "kube-system", "kube-public")
_WITH_TEMPLATES = frozenset({
    "cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "podtemplates", "replicasets.apps",
    "replicationcontrollers", "statefulsets.apps",
})  # fmt: skip
_QUOTAS = get_served_resource(RESOURCE_QUOTAS)
_OURSELVES = Writer("kube-apiserver")


class Admission:
    """All plugins over one store."""

    def __init__(self, store: Store, clock: Clock, policies: Policies) -> None:
        self._store = store
        self._clock = clock
        self.policies = policies

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    # --- NamespaceLifecycle -------------------------------------------------------------------------------------------

    def check_namespace(self, namespace: str) -> JSON:
        """The namespace of an object that is written. Raises StatusError 404."""
        found = self._store.get(NAMESPACES, "", namespace)
        if found is None:
            raise errors.not_found(NAMESPACES, namespace)
        return found

    def check_open(self, resource: Resource[Any], name: str, namespace: str) -> None:
        """May something be created in this namespace? Raises StatusError 404 or 403."""
        if not resource.namespaced:
            return
        found = self.check_namespace(namespace)
        if found["status"].get("phase") == "Terminating" or "deletionTimestamp" in found["metadata"]:
            refusal = errors.forbidden(
                resource,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                causes=[
                    errors.cause(
                        "NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated"
                    )
                ],
            )
            raise refusal

    @staticmethod
    def check_delete(resource: Resource[Any], name: str) -> None:
        """Raises StatusError 403 for namespaces that must stay."""
        if resource is NAMESPACES and name in _IMMORTAL:
            raise errors.forbidden(resource, name, "this namespace may not be deleted")

    # --- changes ------------------------------------------------------------------------------------------------------

    def admit_create(self, resource: Resource[Any], obj: JSON, namespace: str) -> None:
        """Change `obj` in place as the mutating plugins do. Raises StatusError."""
        self._change_new(resource, obj, namespace)
        again = self.policies.mutate("CREATE", obj, None)
        if again is not None:
            self._change_new(resource, obj, namespace)
            self.policies.mutate("CREATE", obj, None, again)

    def _change_new(self, resource: Resource[Any], obj: JSON, namespace: str) -> None:
        match resource.group_resource:
            case "pods":
                limit_ranger.default_pod(self._store.list(LIMIT_RANGES, namespace), obj)
                set_priority(self._store, obj)
                add_default_tolerations(obj)
                if "runtimeClassName" in obj["spec"]:
                    apply_runtime_class(self._store, obj)
            case "nodes":
                taints = obj.setdefault("spec", {}).setdefault("taints", [])
                if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
                    taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
            case "persistentvolumeclaims":
                _protect(obj, "kubernetes.io/pvc-protection")
                set_default_storage_class(self._store, obj)
            case "persistentvolumes":
                _protect(obj, "kubernetes.io/pv-protection")
            case "volumeattributesclasses.storage.k8s.io":
                _protect(obj, "kubernetes.io/vac-protection")
            case "ingresses.networking.k8s.io":
                set_default_ingress_class(self._store, obj)

    def check_create(self, resource: Resource[Any], obj: JSON, namespace: str, warnings: list[str]) -> None:
        """What plugins have against a new object that is valid. Raises StatusError 403.

        warnings: grows by what they allow with a warning.
        """
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
            case made_of_pods if made_of_pods in _WITH_TEMPLATES:
                pod_security.check_template(self._store, obj, warnings)
        self.policies.check("CREATE", obj, None)

    def admit_update(self, resource: Resource[Any], obj: JSON, old: JSON, subresource: str = "") -> None:
        """As admit_create, for the next version of an object."""
        self._change_next(resource, obj, old, subresource)
        again = self.policies.mutate("UPDATE", obj, old)
        if again is not None:
            self._change_next(resource, obj, old, subresource)
            self.policies.mutate("UPDATE", obj, old, again)

    def _change_next(self, resource: Resource[Any], obj: JSON, old: JSON, subresource: str) -> None:
        if subresource:
            return
        match resource.group_resource:
            case "pods":
                add_default_tolerations(obj)
            case "namespaces":
                labels = obj["metadata"].setdefault("labels", {})
                labels["kubernetes.io/metadata.name"] = old["metadata"]["name"]

    def check_update(
        self, resource: Resource[Any], obj: JSON, old: JSON, warnings: list[str], subresource: str = ""
    ) -> None:
        """As check_create, for the next version of an object."""
        match resource.group_resource:
            case "pods" if subresource != "status":
                is_resize = subresource == "resize"
                if is_resize and "deletionTimestamp" not in old["metadata"]:
                    limit_ranger.check_pod(self._store.list(LIMIT_RANGES, old["metadata"]["namespace"]), obj)
                pod_security.check_pod(self._store, obj, warnings, old)
                if is_resize:
                    check_pod_resize(self._store, obj, old)
            case "persistentvolumeclaims" if not subresource:
                if "deletionTimestamp" not in old["metadata"]:
                    limit_ranger.check_claim(self._store.list(LIMIT_RANGES, old["metadata"]["namespace"]), obj)
                check_claim_resize(self._store, resource, obj, old)
            case "namespaces" if not subresource:
                pod_security.check_changed_namespace(self._store, obj, old, warnings)
            case "priorityclasses.scheduling.k8s.io":
                check_single_default(self._store, obj, new=False)
            case made_of_pods if made_of_pods in _WITH_TEMPLATES and not subresource:
                pod_security.check_template(self._store, obj, warnings)
        self.policies.check("UPDATE", obj, old)

    def charged(
        self,
        resource: Resource[Any],
        obj: JSON,
        namespace: str,
        *,
        dry_run: bool,
        old: JSON | None = None,
        subresource: str = "",
    ) -> contextlib.AbstractContextManager[None]:
        """ResourceQuota: refuse what exceeds it (on entering), count what was stored (on leaving)."""
        if not resource.namespaced or not (quotas := self._store.list(RESOURCE_QUOTAS, namespace)):
            return contextlib.nullcontext()
        if not resource_quota.is_charged(resource, obj, old, subresource):
            return contextlib.nullcontext()
        return self._charged(resource_quota.charge(quotas, resource, obj, old, subresource), dry_run=dry_run)

    @contextlib.contextmanager
    def _charged(self, updated: list[JSON], *, dry_run: bool) -> Iterator[None]:
        yield
        if not dry_run:
            for each in updated:
                old = self._store.get(RESOURCE_QUOTAS, each["metadata"]["namespace"], each["metadata"]["name"])
                counted = {**each, "metadata": dict(each["metadata"])}
                if old is not None:
                    track_update(_QUOTAS, counted, old, _OURSELVES, self._now, subresource="status")
                self._store.update(RESOURCE_QUOTAS, counted)


def _protect(obj: JSON, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]
