"""Strategies of certificate signing requests, CustomResourceDefinitions and APIServices.

This server signs no certificates, calls no webhooks and serves no requests for other API servers; statuses and warnings
state this where Kubernetes has a field for it. Sources: pkg/registry of Kubernetes v1.36, apiextensions-apiserver
pkg/registry.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.kube.json_object import JSON

_ADMISSION = "admissionregistration.k8s.io"

# --- strategies -------------------------------------------------------------------------------------------------------


def _create_signing_request(obj: JSON, _now: str) -> None:
    obj["status"] = {}


def _set_requester(obj: JSON, user: JSON) -> None:
    """Set the requester fields from the authenticated user, never from the body: signers rely on them."""
    spec = {name: value for name, value in obj["spec"].items() if name not in _USER_FIELDS}
    obj["spec"] = {**spec, **{name: user[name] for name in _USER_FIELDS if user.get(name)}}


def _update_signing_request(obj: JSON, old: JSON) -> None:
    """Keep the spec; only the subresources of a signing request may change."""
    obj["spec"] = old["spec"]


_USER_FIELDS = ("username", "uid", "groups", "extra")


def _condition(type_: str, now: str, reason: str, message: str, *, status: str = "False") -> JSON:
    return {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _storage_versions(definition: JSON) -> list[str]:
    return [version.get("name", "") for version in definition["spec"].get("versions") or () if version.get("storage")][
        :1
    ]


def _create_definition(obj: JSON, _now: str) -> None:
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(obj) or None,
    }


def _update_definition(obj: JSON, _old: JSON) -> None:
    """Add a new storage version to storedVersions; only a status update removes one."""
    stored_versions = obj["status"].get("storedVersions") or []
    new = [name for name in _storage_versions(obj) if name not in stored_versions]
    if new:
        obj["status"] = {**obj["status"], "storedVersions": [*stored_versions, *new]}


def _create_api_service(obj: JSON, now: str) -> None:
    if obj["spec"].get("service"):
        detail = "this server stores APIServices and does not pass requests on to them"
        condition = _condition("Available", now, "NotServed", detail)
    else:
        detail = "Local APIServices are always available"
        condition = _condition("Available", now, "Local", detail, status="True")
    obj["status"] = {"conditions": [condition]}


PREPARE_CREATE: dict[str, Callable[[JSON, str], None]] = {
    "apiservices.apiregistration.k8s.io": _create_api_service,
    "certificatesigningrequests.certificates.k8s.io": _create_signing_request,
    "customresourcedefinitions.apiextensions.k8s.io": _create_definition,
}
"""Functions that set a new object's status and server-owned fields, by group resource; second argument: the time."""

SET_REQUESTER: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _set_requester,
}
"""Functions that record the creator in a new object, by group resource; second argument: the UserInfo."""

PREPARE_UPDATE: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _update_signing_request,
    "customresourcedefinitions.apiextensions.k8s.io": _update_definition,
}
"""Functions that restore or set server-owned fields on update, by group resource; second argument: the old object."""


def update_taint_time(taint: JSON, old: JSON, now: Callable[[], str]) -> None:
    """Set when the effect of a DeviceTaintRule was added, unless the client does."""
    if taint.get("effect") != old.get("effect") and taint.get("timeAdded") == old.get("timeAdded"):
        taint["timeAdded"] = now()


def prepare_for_approval_update(obj: JSON, old: JSON) -> JSON:
    """Return the object that a write to certificatesigningrequests/approval stores: only its conditions change."""
    metadata = dict(old["metadata"])
    if "managedFields" in obj["metadata"]:
        metadata["managedFields"] = obj["metadata"]["managedFields"]
    status = dict(old.get("status") or {})
    conditions = (obj.get("status") or {}).get("conditions")
    if conditions:
        # the time of the update replaces a missing transition time
        status["conditions"] = [
            {**condition, "lastTransitionTime": condition.get("lastTransitionTime") or condition.get("lastUpdateTime")}
            for condition in conditions
        ]
    else:
        status.pop("conditions", None)
    return {**old, "metadata": metadata, "status": status}
