"""Default values of kinds that extend the API: admission, CRDs, APIServices, flow control, devices.

Sources: pkg/apis/*/v1/defaults.go of Kubernetes v1.36, apiextensions-apiserver pkg/apis/apiextensions/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.kube.json_object import JSON

_ADMISSION, _FLOW = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
_CLAIMS = "resource.k8s.io"


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
        for device_request in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if device_request is None:
                continue
            device_request["allocationMode"] = device_request.get("allocationMode") or "ExactCount"
            if device_request["allocationMode"] == "ExactCount" and not device_request.get("count"):
                device_request["count"] = 1
            for toleration in device_request.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"


def _claim(claim: JSON) -> None:
    _device_requests(claim)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        for toleration in result.get("tolerations") or ():
            toleration["operator"] = toleration.get("operator") or "Equal"


def _slice_taint_times(obj: JSON, now: Callable[[], str]) -> None:
    for device in (obj.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            _taint_time(taint, now)


def _taint_time(taint: JSON, now: Callable[[], str]) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = now()


def _mapped_resources(slice_: JSON) -> None:
    for device in (slice_.get("spec") or {}).get("devices") or ():
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            if mapping.get("allocationMultiplier") is None:
                mapping["allocationMultiplier"] = "1"


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
    (_CLAIMS, "ResourceClaim"): _claim,
    (_CLAIMS, "ResourceSlice"): _mapped_resources,
    (_CLAIMS, "ResourceClaimTemplate"): lambda obj: _device_requests(obj.get("spec") or {}),
}
"""Defaulting functions by (group, kind), or by (apiVersion, kind) if versions differ."""

TIME_DEFAULTS: dict[tuple[str, str], Callable[[JSON, Callable[[], str]], None]] = {
    (_CLAIMS, "ResourceSlice"): _slice_taint_times,
    (_CLAIMS, "DeviceTaintRule"): lambda obj, now: _taint_time(obj["spec"]["taint"], now),
}
"""Functions that set times to the current one, by (group, kind)."""
