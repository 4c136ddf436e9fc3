"""Kinds that hold no pod template. Sources: pkg/apis/{core,policy,scheduling,storage,coordination,...}/validation."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from kubeloop.devcluster.errors import quoted
from kubeloop.devcluster.json_syntax import json_error
from kubeloop.devcluster.validation.containers import resource_quantity, resource_requirements
from kubeloop.devcluster.validation.field import (
    NOT_POSITIVE,
    Errors,
    cidr,
    config_key,
    dns_label,
    dns_subdomain,
    is_valid_selector,
    label_name,
    label_selector,
    label_value,
    labels,
    not_more_than_100_percent,
    positive_int_or_percent,
    qualified_name,
    sloppy_network,
)
from kubeloop.devcluster.validation.metadata import (
    NOT_STANDARD,
    STANDARD_FINALIZERS,
    kube_finalizers,
    object_meta,
    path_segment,
)
from kubeloop.devcluster.validation.scheduling import EFFECTS, tolerations

JSON = dict[str, Any]
_PROTOCOLS = ("SCTP", "TCP", "UDP")


# --- nodes ------------------------------------------------------------------------------------------------------------


def node_create(errors: Errors, obj: JSON) -> None:
    spec = obj.get("spec", {})
    _avoided_pods(errors, obj)
    _taints(errors, spec.get("taints", ()))
    _node_resources(errors, obj)
    swap = obj.get("status", {}).get("nodeInfo", {}).get("swap", {}).get("capacity")
    if swap is not None and swap <= 0:
        errors.invalid("metadata.nodeSwapStatus.capacity", swap, NOT_POSITIVE)
    _declared_features(errors, obj)
    ranges = spec.get("podCIDRs", [])
    for i, each in enumerate(ranges):
        cidr(errors, f"spec.podCIDRs[{i}]", each)
    bad = next((i for i, each in enumerate(ranges) if sloppy_network(each) is None), None)
    if len(ranges) > 1 and bad is not None:
        why = f"invalid CIDR[{bad}]: <nil> (invalid CIDR address: {ranges[bad]})"
        errors.internal("spec.podCIDRs", f"invalid PodCIDRs. failed to check with dual stack with error:{why}")
        errors.invalid("spec.podCIDRs", ranges, _ONE_RANGE)
    elif len(ranges) > 2 or (len(ranges) == 2 and len({":" in each for each in ranges}) == 1):
        errors.invalid("spec.podCIDRs", ranges, _ONE_RANGE)


_ONE_RANGE = "may specify no more than one CIDR for each IP family"


def _avoided_pods(errors: Errors, obj: JSON) -> None:
    avoided = obj["metadata"].get("annotations", {}).get(_AVOIDED)
    if avoided and (wrong := json_error(avoided.encode())):
        errors.invalid("metadata.annotations.AvoidPods", _AVOIDED, wrong)


_AVOIDED = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(?:/[a-zA-Z0-9]+)*")
_NO_FEATURE = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)


def _declared_features(errors: Errors, obj: JSON) -> None:
    names = obj.get("status", {}).get("declaredFeatures", ())
    for i, name in enumerate(names):
        where = f"status.declaredFeatures[{i}]"
        if len(name) > 253:
            wrong = "must be no more than 253 characters"
            errors.invalid(where, name, f"invalid feature name {quoted(name)}: {wrong}")
        elif not _FEATURE.fullmatch(name):
            errors.invalid(where, name, f"invalid feature name {quoted(name)}: {_NO_FEATURE}")
        after = names[i + 1] if i + 1 < len(names) else None
        if after == name:
            errors.duplicate(f"status.declaredFeatures[{i + 1}]", after)
        elif after is not None and name > after:
            errors.invalid("status.declaredFeatures", list(names), "list must be sorted in lexicographical order")


def _taints(errors: Errors, taints: Sequence[JSON]) -> None:
    seen = set()
    for i, taint in enumerate(taints):
        where, key, effect = f"metadata.taints[{i}]", taint.get("key", ""), taint.get("effect", "")
        label_name(errors, f"{where}.key", key)
        if bad := label_value(taint.get("value", "")):
            errors.invalid(f"{where}.value", taint.get("value", ""), ";".join(bad))
        if not effect:
            errors.required(f"{where}.effect")
        elif effect not in EFFECTS:
            errors.not_supported(f"{where}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            errors.duplicate(where, taint, "taints must be unique by key and effect pair", "core/v1.Taint")
        seen.add((key, effect))


def _node_resources(errors: Errors, obj: JSON) -> None:
    for kind in ("capacity", "allocatable"):
        for name, quantity in sorted(obj.get("status", {}).get(kind, {}).items()):
            resource_quantity(errors, f"status.{kind}.{name}", name, quantity)


_CIDR_CHANGE = 'node updates may not change podCIDR except from "" to valid'
_PROVIDER_CHANGE = 'node updates may not change providerID except from "" to valid'


def node_update(errors: Errors, obj: JSON, old: JSON) -> None:
    """The whole node, and then what changed, as the strategy of nodes does."""
    if all(obj.get(part) == old.get(part) for part in ("spec", "status")) and obj["metadata"] is old["metadata"]:
        return
    node_create(errors, obj)
    node_status_update(errors, obj, old)


def node_status_update(errors: Errors, obj: JSON, old: JSON) -> None:
    spec, before = obj.get("spec", {}), old.get("spec", {})
    status, status_before = obj.get("status", {}), old.get("status", {})
    _avoided_pods(errors, obj)
    if any(status.get(kind) != status_before.get(kind) for kind in ("capacity", "allocatable")):
        _node_resources(errors, obj)
    if status.get("declaredFeatures") != status_before.get("declaredFeatures"):
        _declared_features(errors, obj)
    addresses = status.get("addresses", ())
    if addresses and addresses != status_before.get("addresses"):
        for i, each in enumerate(addresses):
            if each in addresses[:i]:
                errors.duplicate(f"status.addresses[{i}]", each, type_name="core/v1.NodeAddress")
    if spec == before:
        return
    ours, theirs = spec.get("podCIDRs", ()), before.get("podCIDRs", ())
    if theirs and len(ours) != len(theirs):
        errors.forbidden("spec.podCIDRs", _CIDR_CHANGE)
    elif theirs:
        for new, was in zip(ours, theirs, strict=True):
            if new != was:
                errors.forbidden("spec.podCIDRs", _CIDR_CHANGE)
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        errors.forbidden("spec.providerID", _PROVIDER_CHANGE)
    _taints(errors, spec.get("taints", ()))
    if before.get("externalID") != spec.get("externalID"):
        errors.forbidden("spec.externalID", "may not be updated")


def namespace_create(errors: Errors, obj: JSON) -> None:
    names = obj.get("spec", {}).get("finalizers", ())
    for name in names:
        errors.invalid_each("spec.finalizers", name, qualified_name(name))
        if "/" not in name and name not in STANDARD_FINALIZERS:
            errors.invalid("spec.finalizers", name, NOT_STANDARD)


def namespace_status_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    phase = obj.get("status", {}).get("phase", "")
    if "deletionTimestamp" not in obj["metadata"]:
        if phase != "Active":
            errors.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif phase != "Terminating":
        errors.invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def namespace_finalize_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    names = obj.get("spec", {}).get("finalizers", ())
    for i, name in enumerate(names):
        errors.invalid_each(f"spec.finalizers[{i}]", name, qualified_name(name))
    kube_finalizers(errors, {"finalizers": names}, "spec")


# --- configuration ----------------------------------------------------------------------------------------------------

_DATA_LIMIT = 1 << 20


def config_map_create(errors: Errors, obj: JSON) -> None:
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    total = 0
    for key, value in sorted(data.items()):
        errors.invalid_each(f"data[{key}]", key, config_key(key))
        if key in binary:
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        total += len(value.encode())
    for key, value in sorted(binary.items()):
        errors.invalid_each(f"binaryData[{key}]", key, config_key(key))
        total += len(b64decode(value or ""))
    if total > _DATA_LIMIT:
        errors.too_long("[]", _DATA_LIMIT)


def config_map_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if old.get("immutable"):
        if not obj.get("immutable"):
            errors.forbidden("immutable", "field is immutable when `immutable` is set")
        if obj.get("data", {}) != old.get("data", {}):  # it is defaulted to an empty map
            errors.forbidden("data", "field is immutable when `immutable` is set")
        if obj.get("binaryData") != old.get("binaryData"):
            errors.forbidden("binaryData", "field is immutable when `immutable` is set")
    if any(obj.get(name) != old.get(name) for name in ("data", "binaryData")):
        config_map_create(errors, obj)


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret_create(errors: Errors, obj: JSON) -> None:
    data, kind = obj.get("data", {}), obj.get("type", "")
    total = 0
    for key, value in sorted(data.items()):
        errors.invalid_each(f"data[{key}]", key, config_key(key))
        total += len(b64decode(value or ""))
    if total > _DATA_LIMIT:
        errors.too_long("data", _DATA_LIMIT)
    if kind == "kubernetes.io/service-account-token":
        if not obj["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name"):
            errors.required("metadata.annotations[kubernetes.io/service-account.name]")
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            errors.required("data[username]")
            errors.required("data[password]")
    else:
        for key in _SECRET_KEYS.get(kind, ()):
            if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
                errors.required(f"data[{key}]")
            elif "docker" in kind and (wrong := _not_a_map(b64decode(data[key] or ""))):
                errors.invalid(f"data[{key}]", "<secret contents redacted>", wrong)


def _not_a_map(text: bytes) -> str:
    """Why this is no JSON object; "" if it is."""
    if wrong := json_error(text):
        return wrong
    kind = _JSON_KINDS.get(text.lstrip()[:1], "number")
    return "" if kind in ("object", "null") else f"{_NOT_A_MAP.format(kind)}"


_JSON_KINDS = {b"{": "object", b"[": "array", b'"': "string", b"t": "bool", b"f": "bool", b"n": "null"}
_NOT_A_MAP = "json: cannot unmarshal {} into Go value of type map[string]interface {{}}"


def secret_update(errors: Errors, obj: JSON, old: JSON) -> None:
    errors.immutable("type", obj.get("type", ""), old.get("type", ""))
    if old.get("immutable"):
        if not obj.get("immutable"):
            errors.forbidden("immutable", "field is immutable when `immutable` is set")
        if obj.get("data") != old.get("data"):
            errors.forbidden("data", "field is immutable when `immutable` is set")
    if obj.get("data") != old.get("data") or _annotations(obj) != _annotations(old):
        secret_create(errors, obj)


def _annotations(obj: JSON) -> JSON:
    found: JSON = obj["metadata"].get("annotations", {})
    return found


# --- the rest ---------------------------------------------------------------------------------------------------------


def disruption_budget_create(errors: Errors, obj: JSON) -> None:
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        wrong = "minAvailable and maxUnavailable cannot be both set"
        errors.invalid("spec", spec, wrong, "policy/v1.PodDisruptionBudgetSpec")
    for name in ("minAvailable", "maxUnavailable"):
        positive_int_or_percent(errors, f"spec.{name}", spec.get(name))
        not_more_than_100_percent(errors, f"spec.{name}", spec.get(name))
    label_selector(errors, "spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("IfHealthyBudget", "AlwaysAllow"):
        errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def disruption_budget_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        disruption_budget_create(errors, obj)


_CONDITION_STATUSES = ("False", "True", "Unknown")
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_MATCHES = re.compile(_REASON).fullmatch
_NO_REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name', or 'MY_NAME', or "
    f"'MyName', or 'ReasonA,ReasonB', or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def conditions(errors: Errors, path: str, given: Sequence[JSON]) -> None:
    """meta/v1 Conditions. Source: apimachinery pkg/apis/meta/v1/validation ValidateConditions."""
    seen: set[str] = set()
    for i, condition in enumerate(given):
        where, kind, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        if kind in seen:
            errors.duplicate(f"{where}.type", kind)
        seen.add(kind)
        errors.invalid_each(f"{where}.type", kind, qualified_name(kind))
        if condition.get("status", "") not in _CONDITION_STATUSES:
            errors.not_supported(f"{where}.status", condition.get("status", ""), _CONDITION_STATUSES)
        if condition.get("observedGeneration", 0) < 0:
            told = "must be greater than or equal to zero"
            errors.invalid(f"{where}.observedGeneration", condition["observedGeneration"], told)
        if not condition.get("lastTransitionTime"):
            errors.required(f"{where}.lastTransitionTime")
        if not reason:
            errors.required(f"{where}.reason")
        elif not _REASON_MATCHES(reason):
            errors.invalid(f"{where}.reason", reason, _NO_REASON)
        if len(reason) > _MAX_REASON:
            errors.too_long(f"{where}.reason", _MAX_REASON)
        if len(condition.get("message", "")) > _MAX_MESSAGE:
            errors.too_long(f"{where}.message", _MAX_MESSAGE)


_MAX_REASON, _MAX_MESSAGE = 1024, 32 * 1024


def disruption_budget_status(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    status = obj.get("status", {})
    conditions(errors, "status.conditions", status.get("conditions", ()))
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        errors.not_negative(f"status.{name}", status.get(name))


def lease_create(errors: Errors, obj: JSON) -> None:
    spec = obj.get("spec", {})
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    errors.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def runtime_class_create(errors: Errors, obj: JSON) -> None:
    handler, scheduling = obj.get("handler", ""), obj.get("scheduling") or {}
    if handler:
        errors.invalid_each("handler", handler, dns_label(handler))
    else:
        errors.required("handler")
    if obj.get("overhead") is not None:
        resource_requirements(errors, "overhead", {"limits": obj["overhead"].get("podFixed", {})})
    labels(errors, "scheduling.nodeSelector", scheduling.get("nodeSelector"))
    given = scheduling.get("tolerations", ())
    tolerations(errors, "scheduling.tolerations", given)
    seen = set()
    for i, each in enumerate(given):
        key = tuple(each.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.duplicate(f"scheduling.tolerations[{i}]", each, type_name="core/v1.Toleration")
        seen.add(key)


def runtime_class_update(errors: Errors, obj: JSON, old: JSON) -> None:
    runtime_class_create(errors, obj)
    errors.immutable("handler", obj.get("handler", ""), old.get("handler", ""))


def lease_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    lease_create(errors, obj)


_SYSTEM_CLASSES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
_HIGHEST_USER_PRIORITY = 1_000_000_000


def priority_class_create(errors: Errors, obj: JSON) -> None:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in _SYSTEM_CLASSES:
            wrong = f"{name} is not a known system priority class"
        elif value != _SYSTEM_CLASSES[name]:
            wrong = f"value of {name} PriorityClass must be {_SYSTEM_CLASSES[name]}"
        elif obj.get("globalDefault"):
            wrong = f"globalDefault of {name} PriorityClass must be false"
        else:
            wrong = ""
        if wrong:
            told = f"priority class names with 'system-' prefix are reserved for system use only. error: {wrong}"
            errors.forbidden("metadata.name", told)
    elif value > _HIGHEST_USER_PRIORITY:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")
    policy = obj.get("preemptionPolicy")
    if policy == "":
        errors.required("preemptionPolicy")
    elif policy is not None and policy not in ("PreemptLowerPriority", "Never"):
        errors.not_supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))


def priority_class_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj.get("value", 0) != old.get("value", 0):
        errors.forbidden("value", "may not be changed in an update.")
    errors.immutable("preemptionPolicy", obj.get("preemptionPolicy"), old.get("preemptionPolicy"))


def role_create(errors: Errors, obj: JSON) -> None:
    _rules(errors, obj, namespaced=True)


def cluster_role_create(errors: Errors, obj: JSON) -> None:
    _rules(errors, obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", ())
        if not selectors:
            errors.required("aggregationRule.clusterRoleSelectors", f"{_SELECTORS} if aggregationRule is non-nil")
        for i, each in enumerate(selectors):
            where = f"aggregationRule.clusterRoleSelectors[{i}]"
            label_selector(errors, where, each)
            if not is_valid_selector(each):
                errors.invalid(where, None, "invalid label selector.")


_SELECTORS = "at least one clusterRoleSelector required"


def _rules(errors: Errors, obj: JSON, *, namespaced: bool) -> None:
    """Source: rbac validation.ValidatePolicyRule."""
    for i, rule in enumerate(obj.get("rules") or ()):
        where = f"rules[{i}]"
        groups, resources, urls = (rule.get(name) for name in ("apiGroups", "resources", "nonResourceURLs"))
        if not rule.get("verbs"):
            errors.required(f"{where}.verbs", "verbs must contain at least one value")
        if urls:
            if namespaced:
                told = "namespaced rules cannot apply to non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, told)
            if groups or resources or rule.get("resourceNames"):
                told = "rules cannot apply to both regular resources and non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, told)
            continue
        if not groups:
            errors.required(f"{where}.apiGroups", "resource rules must supply at least one api group")
        if not resources:
            errors.required(f"{where}.resources", "resource rules must supply at least one resource")


def role_binding_create(errors: Errors, obj: JSON) -> None:
    _binding(errors, obj, ("Role", "ClusterRole"))


def cluster_role_binding_create(errors: Errors, obj: JSON) -> None:
    _binding(errors, obj, ("ClusterRole",))


_RBAC = "rbac.authorization.k8s.io"


def _binding(errors: Errors, obj: JSON, kinds: Sequence[str]) -> None:
    reference = obj.get("roleRef", {})
    if reference.get("apiGroup", "") != _RBAC:
        errors.not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_RBAC,))
    if reference.get("kind", "") not in kinds:
        errors.not_supported("roleRef.kind", reference.get("kind", ""), kinds)
    if name := reference.get("name", ""):
        errors.invalid_each("roleRef.name", name, path_segment(name))
    else:
        errors.required("roleRef.name")
    for i, subject in enumerate(obj.get("subjects", ())):
        _subject(errors, f"subjects[{i}]", subject, namespaced=len(kinds) > 1)


def _subject(errors: Errors, where: str, subject: JSON, *, namespaced: bool) -> None:
    name, kind, group = (subject.get(each, "") for each in ("name", "kind", "apiGroup"))
    if not name:
        errors.required(f"{where}.name")
    if kind == "ServiceAccount":
        if name:
            errors.invalid_each(f"{where}.name", name, dns_subdomain(name))
        if group:
            errors.not_supported(f"{where}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            errors.required(f"{where}.namespace")
    elif kind in ("User", "Group"):
        if group != _RBAC:
            errors.not_supported(f"{where}.apiGroup", group, (_RBAC,))
    else:
        errors.not_supported(f"{where}.kind", kind, ("ServiceAccount", "User", "Group"))


def role_binding_update(errors: Errors, obj: JSON, old: JSON) -> None:
    role_binding_create(errors, obj)
    _same_role(errors, obj, old)


def cluster_role_binding_update(errors: Errors, obj: JSON, old: JSON) -> None:
    cluster_role_binding_create(errors, obj)
    _same_role(errors, obj, old)


def _same_role(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj.get("roleRef") != old.get("roleRef"):
        errors.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef", "rbac/v1.RoleRef")


def event_create(errors: Errors, obj: JSON) -> None:
    """An event of the core group: those without eventTime come from older recorders, and little is asked of them."""
    _event(errors, obj, obj.get("involvedObject", {}), "reportingComponent")


def event_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    event_create(errors, obj)


def new_event_create(errors: Errors, obj: JSON) -> None:
    """An event of events.k8s.io, which has to be complete."""
    _event(errors, obj, obj.get("regarding", {}), "reportingController")
    object_meta(errors, obj["metadata"], namespaced=True, name_check=dns_subdomain)
    _event_series(errors, obj.get("series"))
    if obj.get("eventTime") is None:
        errors.required("eventTime")
    if obj.get("type", "") not in ("Normal", "Warning"):
        errors.invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for name, told in _DEPRECATED_IN_EVENTS.items():
        if obj.get(name):
            errors.invalid(told, "", "needs to be unset")


_DEPRECATED_IN_EVENTS = {
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "deprecatedSource": "source",
}
_FIXED_IN_EVENTS: tuple[tuple[str, str, Any, str], ...] = (
    ("regarding", "involvedObject", None, "core/v1.ObjectReference"),
    ("reason", "reason", "", ""),
    ("note", "message", "", ""),
    ("deprecatedSource", "source", None, "core/v1.EventSource"),
    ("deprecatedFirstTimestamp", "firstTimestamp", None, ""),
    ("deprecatedLastTimestamp", "lastTimestamp", None, ""),
    ("deprecatedCount", "count", 0, ""),
    ("reason", "reason", "", ""),
    ("type", "type", "", ""),
    ("eventTime", "eventTime", None, ""),
    ("action", "action", "", ""),
    ("related", "related", None, "core/v1.ObjectReference"),
    ("reportingController", "reportingController", "", ""),
    ("reportingInstance", "reportingInstance", "", ""),
)
"""What no update through events.k8s.io changes: field, its name in messages, what stands for none, type. The reason is
looked at twice, as in kube-apiserver."""


def new_event_update(errors: Errors, obj: JSON, old: JSON) -> None:
    _event(errors, obj, obj.get("regarding", {}), "reportingController")
    if obj.get("series") != old.get("series"):
        _event_series(errors, obj.get("series"))
    for name, told, absent, type_name in _FIXED_IN_EVENTS:
        errors.immutable(told, obj.get(name, absent), old.get(name, absent), type_name)


def _event_series(errors: Errors, series: JSON | None) -> None:
    if series is None:
        return
    if series.get("count", 0) < 2:
        errors.invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        errors.required("series.lastObservedTime")


def _event(errors: Errors, obj: JSON, involved: JSON, controller_field: str) -> None:
    theirs, ours = involved.get("namespace", ""), obj["metadata"].get("namespace", "")
    timed = obj.get("eventTime") is not None
    if theirs:
        strange = not timed and theirs != ours
    else:
        strange = ours not in (("default", "kube-system") if timed else ("", "default"))
    if strange:
        errors.invalid("involvedObject.namespace", theirs, "does not match event.namespace")
    if not timed:
        return
    controller = obj.get(controller_field, "")
    if not controller:
        errors.required(controller_field)
    label_name(errors, controller_field, controller)
    for name in ("reportingInstance", "action", "reason"):
        text = obj.get(name, "")
        if not text:
            errors.required(name)
        elif len(text) > 128:
            errors.invalid(name, "", "can have at most 128 characters")
    if len(obj.get("message") or obj.get("note") or "") > 1024:
        errors.invalid("message", "", "can have at most 1024 characters")
