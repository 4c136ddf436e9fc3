"""Defaults and strategies of the kinds that are stored for others to read: nothing in this server acts on them.

Webhooks are not called, requests not queued, certificates not signed, and other API servers not served; where a status
can say so, it does. Sources: pkg/apis/*/v1/defaults.go and pkg/registry of Kubernetes v1.36, apiextensions-apiserver
pkg/apis/apiextensions/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_ADMISSION = "admissionregistration.k8s.io"

# --- strategies -------------------------------------------------------------------------------------------------------


def _create_signing_request(obj: JSON, _now: str) -> None:
    obj["status"] = {}


def _set_requester(obj: JSON, user: JSON) -> None:
    """Whoever asks, and not whom he says that he is: a signer goes by it."""
    spec = {name: value for name, value in obj["spec"].items() if name not in _USER_FIELDS}
    obj["spec"] = {**spec, **{name: user[name] for name in _USER_FIELDS if user.get(name)}}


def _update_signing_request(obj: JSON, old: JSON) -> None:
    """What is asked for stays; only its subresources are written to."""
    obj["spec"] = old["spec"]


_USER_FIELDS = ("username", "uid", "groups", "extra")


def _condition(type_: str, now: str, reason: str, message: str, *, status: str = "False") -> JSON:
    return {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _storage_versions(definition: JSON) -> list[str]:
    return [version.get("name", "") for version in definition["spec"].get("versions") or () if version.get("storage")][:1]


def _create_definition(obj: JSON, _now: str) -> None:
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(obj) or None,
    }


def _update_definition(obj: JSON, _old: JSON) -> None:
    """A version in which objects are stored from now on is noted until somebody says that none is left in it."""
    stored = obj["status"].get("storedVersions") or []
    new = [name for name in _storage_versions(obj) if name not in stored]
    if new:
        obj["status"] = {**obj["status"], "storedVersions": [*stored, *new]}


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
"""What a new object's status and server-owned fields are, by group resource. The second argument is the time."""

SET_REQUESTER: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _set_requester,
}
"""What a new object records of its creator, by group resource. The second argument is the user, as UserInfo."""

PREPARE_UPDATE: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _update_signing_request,
    "customresourcedefinitions.apiextensions.k8s.io": _update_definition,
}
"""What an update makes of the parts that the server owns, by group resource. The second argument is the old object."""


def prepare_for_approval_update(obj: JSON, old: JSON) -> JSON:
    """What a write to the approval subresource of a certificate signing request stores: its conditions, no more."""
    metadata = dict(old["metadata"])
    if "managedFields" in obj["metadata"]:
        metadata["managedFields"] = obj["metadata"]["managedFields"]
    status = dict(old.get("status") or {})
    conditions = (obj.get("status") or {}).get("conditions")
    if conditions:
        # who leaves the time of the transition open means that of the update
        status["conditions"] = [
            {**condition, "lastTransitionTime": condition.get("lastTransitionTime") or condition.get("lastUpdateTime")}
            for condition in conditions
        ]
    else:
        status.pop("conditions", None)
    return {**old, "metadata": metadata, "status": status}


def unsupported_kind_warnings(resource: Resource[Any], *, new: bool) -> list[str]:
    """What a client hears that creates an object of which it may expect more than storage."""
    detail = _WARNINGS.get((resource.group, resource.kind))
    return [detail] if detail and new else []


_WARNINGS = {
    (_ADMISSION, "MutatingWebhookConfiguration"): "this server stores webhook configurations and calls no webhooks",
    (_ADMISSION, "ValidatingWebhookConfiguration"): "this server stores webhook configurations and calls no webhooks",
}
