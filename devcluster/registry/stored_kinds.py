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

_ADMISSION, _FLOW = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
_CLAIMS = "resource.k8s.io"


# --- defaults ---------------------------------------------------------------------------------------------------------


def _service_port(service: JSON | None) -> None:
    if service is not None:
        service.setdefault("port", 443)


def _webhooks(obj: JSON) -> None:
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if obj.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        _service_port((webhook.get("clientConfig") or {}).get("service"))
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def _match_resources(match: JSON | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rules in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(rules) or ():
            rule.setdefault("scope", "*")


def _policy(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def _policy_binding(obj: JSON) -> None:
    _match_resources(obj.setdefault("spec", {}).get("matchResources"))


def _definition(obj: JSON) -> None:
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    conversion = spec.setdefault("conversion", {})
    conversion.setdefault("strategy", "None")
    _service_port(((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service"))


def _api_service(obj: JSON) -> None:
    _service_port(obj["spec"].get("service"))


def _flow_schema(obj: JSON) -> None:
    if not obj["spec"].get("matchingPrecedence"):
        obj["spec"]["matchingPrecedence"] = 1000


def _priority_level(obj: JSON) -> None:
    limited = obj["spec"].get("limited")
    if limited is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        queuing = limited.get("limitResponse", {}).get("queuing")
        if queuing is not None:
            for name, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = value


def _device_requests(claim: JSON) -> None:
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        for asked in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if asked is None:
                continue
            asked["allocationMode"] = asked.get("allocationMode") or "ExactCount"
            if asked["allocationMode"] == "ExactCount" and not asked.get("count"):
                asked["count"] = 1


def _autoscaler_v1(obj: JSON) -> None:
    obj["spec"].setdefault("minReplicas", 1)


DEFAULTS: dict[tuple[str, str], Callable[[JSON], None]] = {
    (_ADMISSION, "MutatingWebhookConfiguration"): _webhooks,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _webhooks,
    (_ADMISSION, "MutatingAdmissionPolicy"): _policy,
    (_ADMISSION, "ValidatingAdmissionPolicy"): _policy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _policy_binding,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _policy_binding,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    (_FLOW, "FlowSchema"): _flow_schema,
    (_FLOW, "PriorityLevelConfiguration"): _priority_level,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _autoscaler_v1,
    (_CLAIMS, "ResourceClaim"): _device_requests,
    (_CLAIMS, "ResourceClaimTemplate"): lambda obj: _device_requests(obj.get("spec") or {}),
}
"""By group and kind; by apiVersion where versions differ."""


# --- strategies -------------------------------------------------------------------------------------------------------


def _create_signing_request(obj: JSON, _now: str) -> None:
    obj["status"] = {}


def _note_requester(obj: JSON, user: JSON) -> None:
    """Whoever asks, and not whom he says that he is: a signer goes by it."""
    spec = {name: value for name, value in obj["spec"].items() if name not in _USER_FIELDS}
    obj["spec"] = {**spec, **{name: user[name] for name in _USER_FIELDS if user.get(name)}}


def _keep_signing_request(obj: JSON, old: JSON) -> None:
    """What is asked for stays; only its subresources are written to."""
    obj["spec"] = old["spec"]


_USER_FIELDS = ("username", "uid", "groups", "extra")


def _condition(type_: str, now: str, reason: str, message: str, *, status: str = "False") -> JSON:
    return {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _storage_version(definition: JSON) -> list[str]:
    return [each.get("name", "") for each in definition["spec"].get("versions") or () if each.get("storage")][:1]


def _create_definition(obj: JSON, _now: str) -> None:
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_version(obj) or None,
    }


def _update_definition(obj: JSON, _old: JSON) -> None:
    """A version in which objects are stored from now on is noted until somebody says that none is left in it."""
    stored = obj["status"].get("storedVersions") or []
    new = [name for name in _storage_version(obj) if name not in stored]
    if new:
        obj["status"] = {**obj["status"], "storedVersions": [*stored, *new]}


def _create_api_service(obj: JSON, now: str) -> None:
    if obj["spec"].get("service"):
        told = "this server stores APIServices and does not pass requests on to them"
        condition = _condition("Available", now, "NotServed", told)
    else:
        told = "Local APIServices are always available"
        condition = _condition("Available", now, "Local", told, status="True")
    obj["status"] = {"conditions": [condition]}


CREATE: dict[str, Callable[[JSON, str], None]] = {
    "apiservices.apiregistration.k8s.io": _create_api_service,
    "certificatesigningrequests.certificates.k8s.io": _create_signing_request,
    "customresourcedefinitions.apiextensions.k8s.io": _create_definition,
}
"""What a new object's status and server-owned fields are, by group resource. The second argument is the time."""

REQUESTERS: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _note_requester,
}
"""What a new object records of its creator, by group resource. The second argument is the user, as UserInfo."""

UPDATE: dict[str, Callable[[JSON, JSON], None]] = {
    "certificatesigningrequests.certificates.k8s.io": _keep_signing_request,
    "customresourcedefinitions.apiextensions.k8s.io": _update_definition,
}
"""What an update makes of the parts that the server owns, by group resource. The second argument is the old object."""


def approved(obj: JSON, old: JSON) -> JSON:
    """What a write to the approval subresource of a certificate signing request stores: its conditions, no more."""
    metadata = dict(old["metadata"])
    if "managedFields" in obj["metadata"]:
        metadata["managedFields"] = obj["metadata"]["managedFields"]
    status = dict(old.get("status") or {})
    conditions = (obj.get("status") or {}).get("conditions")
    if conditions:
        # who leaves the time of the transition open means that of the update
        status["conditions"] = [
            {**each, "lastTransitionTime": each.get("lastTransitionTime") or each.get("lastUpdateTime")}
            for each in conditions
        ]
    else:
        status.pop("conditions", None)
    return {**old, "metadata": metadata, "status": status}


def warnings_of(resource: Resource[Any], *, new: bool) -> list[str]:
    """What a client hears that creates an object of which it may expect more than storage."""
    told = _WARNINGS.get((resource.group, resource.kind))
    return [told] if told and new else []


_WARNINGS = {
    (_ADMISSION, "MutatingWebhookConfiguration"): "this server stores webhook configurations and calls no webhooks",
    (_ADMISSION, "ValidatingWebhookConfiguration"): "this server stores webhook configurations and calls no webhooks",
}
