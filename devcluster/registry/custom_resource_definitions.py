"""Conditions, cleanup finalizer and API approval of CustomResourceDefinitions.

Pure functions on JSON. Sources: apiextensions-apiserver pkg/apihelpers, pkg/registry/customresourcedefinition/etcd.go.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from kubeloop.kube.json_object import JSON

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL_ANNOTATION = "api-approved.kubernetes.io"
_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


def with_condition(
    conditions: list[JSON], type_: str, status: str, reason: str, message: str, *, now: str
) -> list[JSON]:
    """Return the conditions with this one set; its lastTransitionTime changes only with its status."""
    new = {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    result = []
    for condition in conditions:
        if condition["type"] == type_:
            if condition["status"] == status:
                new["lastTransitionTime"] = condition["lastTransitionTime"]
            result.append(new)
        else:
            result.append(condition)
    return result if new in result else [*result, new]


def mark_for_cleanup(definition: JSON, now: str) -> JSON:
    """Return a definition that is being deleted: the finalizer retains it until its objects are deleted."""
    metadata = {**definition["metadata"], "deletionTimestamp": now}
    if CLEANUP_FINALIZER not in metadata.get("finalizers", ()):
        metadata["finalizers"] = [*metadata.get("finalizers", ()), CLEANUP_FINALIZER]
    status = dict(definition["status"])
    pending = ("Terminating", "True", "InstanceDeletionPending", _PENDING)
    status["conditions"] = with_condition(status.get("conditions") or [], *pending, now=now)
    return {**definition, "metadata": metadata, "status": status}


# --- protected groups -------------------------------------------------------------------------------------------------


def is_protected_group(group: str) -> bool:
    """Return True for a group whose APIs the Kubernetes community reviews."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval_condition(definition: JSON) -> tuple[str, str, str]:
    """Return status, reason and message of the approval that a definition's annotation states."""
    text = (definition["metadata"].get("annotations") or {}).get(APPROVAL_ANNOTATION, "")
    reference = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not text:
        detail = f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}", {reference}'
        return "False", "MissingAnnotation", detail
    if text.startswith("unapproved"):
        return "False", "UnapprovedAnnotation", f'not approved: "{text}"'
    try:
        url = urlsplit(text)
    except ValueError:
        url = urlsplit("")
    if url.scheme and url.netloc:
        return "True", "ApprovedAnnotation", f"approved in {text}"
    detail = f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}" with either a URL or a reason'
    return "False", "InvalidAnnotation", f'{detail} starting with "unapproved", {reference}'
