"""Admission: kube-apiserver's default plugins, which change or reject an object before it is stored.

Plugins that change objects run before validation (`admit_...`), those that check them after it (`check_...`); the last
is ResourceQuota (`charge_quota`). Policies and webhooks run after the other plugins of their phase
(`dynamic_admission`); they may take long. CertificateApproval and CertificateSigning are in
the strategy of CertificateSigningRequests. Source: plugin/pkg/admission of Kubernetes v1.36.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from kubeloop.devcluster.admission import pod_security, resource_quota
from kubeloop.devcluster.admission.default_toleration_seconds import DEFAULT_TOLERATION_SECONDS, TolerationSeconds
from kubeloop.devcluster.admission.plugin_settings import WITHOUT_ACCOUNTS
from kubeloop.devcluster.admission.pod_topology_labels import add_topology_labels
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.strategy import Strategy, strategy_of
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.server_objects import namespace_object, object_template, stamp_object
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
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label

_SERVED_QUOTAS = get_served_resource(RESOURCE_QUOTAS)
_API_SERVER = Writer("kube-apiserver")


class AdmissionChain:
    """The admission plugins over one store, in kube-apiserver's order, without the policies.

    enabled: names of the plugins that run.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        enabled: Collection[str] = WITHOUT_ACCOUNTS,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
        toleration_seconds: TolerationSeconds = DEFAULT_TOLERATION_SECONDS,
    ) -> None:
        self.store = store
        self.toleration_seconds = toleration_seconds
        self._counts_extended_resources = gates.enabled("DRAExtendedResource")
        self.gates = gates
        self.enabled = enabled
        self._provides_namespaces = "NamespaceAutoProvision" in enabled
        self.copies_topology_labels = "PodTopologyLabels" in self.enabled and gates.enabled(
            "PodTopologyLabelsAdmission"
        )

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def check_namespace(self, namespace: str) -> JSON:
        """Return the namespace of an object that is written. Raises StatusError 404."""
        namespace_object = self.store.get(NAMESPACES, "", namespace)
        if namespace_object is None:
            raise errors.not_found(NAMESPACES, namespace)
        return namespace_object

    def check_namespace_accepts_creates(self, context: RequestContext, name: str) -> None:
        """Raise StatusError 404 or 403 unless the request may create an object of this name in its namespace."""
        resource, namespace = context.info.served.resource, context.info.namespace
        if not resource.namespaced:
            return
        if self._provides_namespaces and not context.dry_run:
            self._provide_namespace(context, name)
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

    def _provide_namespace(self, context: RequestContext, name: str) -> None:
        """NamespaceAutoProvision: create the namespace of a create request unless it exists. Raises StatusError 403."""
        namespace = context.info.namespace
        if self.store.get(NAMESPACES, "", namespace) is not None:
            return
        if problems := dns_label(namespace):
            text = f"Invalid value: {quoted(namespace)}: {problems[0]}"
            causes = [errors.cause("FieldValueInvalid", "metadata.name", text)]
            reason = errors.invalid("", NAMESPACES.kind, namespace, causes).message
            raise errors.forbidden(context.info.served.resource, name, reason)
        template = object_template(NAMESPACES, namespace_object(namespace))
        self.store.create(NAMESPACES, stamp_object(template, context.new_uid(), context.now()))

    # --- plugins ------------------------------------------------------------------------------------------------------

    def admit_binding(self, binding: JSON) -> None:
        """Run the mutating plugins on a Binding that is sent to a pod; they change it in place."""
        target = binding.get("target") or {}
        if target.get("kind") == "Node" and target.get("name") and self.copies_topology_labels:
            add_topology_labels(self.store, binding["metadata"], target["name"])

    def check_create(self, strategy: Strategy, context: RequestContext, obj: JSON) -> None:
        """Run the validating plugins on a new, valid object. Raises StatusError 403."""
        if strategy.template_path and "PodSecurity" in self.enabled:
            request = context.request
            pod_security.check_template(self.store, obj, strategy.template_path, request.warnings, audit=request.audit)
        if strategy.check_create is not None:
            strategy.check_create(self, context, obj)

    def check_update(self, strategy: Strategy, context: RequestContext, obj: JSON, old: JSON) -> None:
        """Run the validating plugins on a valid update. Raises StatusError 403."""
        if strategy.template_path and not context.info.subresource and "PodSecurity" in self.enabled:
            request = context.request
            pod_security.check_template(self.store, obj, strategy.template_path, request.warnings, audit=request.audit)
        if strategy.check_update is not None:
            strategy.check_update(self, context, obj, old)

    def charge_quota(
        self, context: RequestContext, resource: Resource[Any], obj: JSON, old: JSON | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """ResourceQuota: on entering, reject a write that exceeds a quota; on leaving, store the new usage.

        old: the object before an update, None for a create.
        """
        if "ResourceQuota" not in self.enabled:
            return contextlib.nullcontext()
        if not resource.namespaced or not (quotas := self.store.list(RESOURCE_QUOTAS, context.info.namespace)):
            return contextlib.nullcontext()
        subresource = "" if old is None else context.info.subresource
        if not resource_quota.is_charged(resource, obj, old, subresource):
            return contextlib.nullcontext()
        devices = None
        if self._counts_extended_resources and strategy_of(resource).counts_devices:
            devices = self._device_quota(context.info.namespace)
        return self._count_in_quotas(context, resource_quota.charge(quotas, resource, obj, old, subresource, devices))

    def _device_quota(self, namespace: str) -> DeviceQuota:
        store = self.store
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
                old = self.store.get(RESOURCE_QUOTAS, quota["metadata"]["namespace"], quota["metadata"]["name"])
                updated_quota = {**quota, "metadata": dict(quota["metadata"])}
                if old is not None:
                    track_update(_SERVED_QUOTAS, updated_quota, old, _API_SERVER, context.now, subresource="status")
                self.store.update(RESOURCE_QUOTAS, updated_quota)


def add_finalizer(obj: JSON, finalizer: str) -> None:
    """Add a finalizer that protects a new object as long as it is in use, unless it has it."""
    finalizers = obj["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]
