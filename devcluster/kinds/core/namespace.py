"""Namespaces. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission import pod_security
from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.selectable_fields import fields
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import (
    NOT_STANDARD,
    STANDARD_FINALIZERS,
    validate_core_finalizers,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES
from kubeloop.kube.validation.name_checks import dns_label, qualified_name


def validate_namespace(errors: ErrorList, obj: JSON) -> None:
    names = obj.get("spec", {}).get("finalizers", ())
    for name in names:
        errors.check("spec.finalizers", name, qualified_name)
        if "/" not in name and name not in STANDARD_FINALIZERS:
            errors.invalid("spec.finalizers", name, NOT_STANDARD)


def validate_namespace_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    phase = obj.get("status", {}).get("phase", "")
    if "deletionTimestamp" not in obj["metadata"]:
        if phase != "Active":
            errors.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif phase != "Terminating":
        errors.invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def validate_namespace_finalize_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    names = obj.get("spec", {}).get("finalizers", ())
    for i, name in enumerate(names):
        errors.check(f"spec.finalizers[{i}]", name, qualified_name)
    validate_core_finalizers(errors, {"finalizers": names}, "spec")


def _default(obj: JSON) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _prepare_create(namespace: JSON, _write: Write) -> None:
    if name := namespace["metadata"].get("name"):  # validation reports a missing name
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    spec = namespace.setdefault("spec", {})
    if "kubernetes" not in spec.get("finalizers", ()):
        spec["finalizers"] = [*spec.get("finalizers", ()), "kubernetes"]


def _prepare_update(namespace: JSON, old: JSON, _write: Write) -> None:
    namespace["spec"] = old.get("spec", {})


def _admit_update(_chain: AdmissionChain, namespace: JSON, old: JSON) -> None:
    namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]


def _check_create(chain: AdmissionChain, _context: RequestContext, namespace: JSON) -> None:
    if "PodSecurity" in chain.enabled:
        pod_security.check_new_namespace(namespace)


def _check_update(chain: AdmissionChain, context: RequestContext, namespace: JSON, old: JSON) -> None:
    if not context.info.subresource and "PodSecurity" in chain.enabled:
        pod_security.check_namespace_update(chain.store, namespace, old, context.request.warnings)


def _check_delete(name: str) -> None:
    if name in ("default", "kube-system", "kube-public"):
        raise errors.forbidden(NAMESPACES, name, "this namespace may not be deleted")


def _mark_deleted(namespace: JSON, finalizers: list[str], now: str) -> JSON:
    metadata = {name: value for name, value in namespace["metadata"].items() if name != "finalizers"}
    metadata |= {"finalizers": finalizers} if finalizers else {}
    metadata["deletionTimestamp"] = now
    return {**namespace, "metadata": metadata, "status": {**namespace.get("status", {}), "phase": "Terminating"}}


STRATEGY = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    name_check=dns_label,
    validate=validate_namespace,
    validate_subresources={"status": validate_namespace_status_update, "finalize": validate_namespace_finalize_update},
    update_steps="wus",
    admit_update=_admit_update,
    check_create=_check_create,
    check_update=_check_update,
    check_delete=_check_delete,
    mark_deleted=_mark_deleted,
    is_finalizing=lambda namespace: bool((namespace.get("spec") or {}).get("finalizers")),
    cells=row(text_of("status.phase"), AGE),
    selectable_fields=fields("metadata.name", "status.phase"),
)
