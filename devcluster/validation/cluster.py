"""Kinds that hold no pod template. Sources: pkg/apis/{core,policy,scheduling,storage,coordination,...}/validation."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.name_checks import config_key, dns_label, label_value, qualified_name
from kubeloop.devcluster.serializer.go_json_errors import json_error
from kubeloop.devcluster.validation.conditions import conditions
from kubeloop.devcluster.validation.containers import resource_quantity, resource_requirements
from kubeloop.devcluster.validation.field import (
    NOT_POSITIVE,
    Errors,
    cidr,
    label_name,
    label_selector,
    labels,
    not_more_than_100_percent,
    positive_int_or_percent,
    sloppy_network,
)
from kubeloop.devcluster.validation.metadata import (
    NOT_STANDARD,
    STANDARD_FINALIZERS,
    kube_finalizers,
)
from kubeloop.devcluster.validation.scheduling import EFFECTS, preemption_policy, tolerations
from kubeloop.kube.json_object import JSON

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
    defaults: JSON = {"data": {}}
    _immutable(errors, defaults | obj, defaults | old, "data", "binaryData")
    if any(obj.get(name) != old.get(name) for name in ("data", "binaryData")):
        config_map_create(errors, obj)


def _immutable(errors: Errors, obj: JSON, old: JSON, *names: str) -> None:
    """What is once immutable stays so, and its data with it."""
    if not old.get("immutable"):
        return
    wrong = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        errors.forbidden("immutable", wrong)
    for name in names:
        if obj.get(name) != old.get(name):
            errors.forbidden(name, wrong)


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
    _immutable(errors, obj, old, "data")
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


def lease_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    lease_create(errors, obj)


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


SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priority classes that every cluster has, with their values."""
_HIGHEST_USER_PRIORITY = 1_000_000_000


def priority_class_create(errors: Errors, obj: JSON) -> None:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in SYSTEM_CLASSES:
            wrong = f"{name} is not a known system priority class"
        elif value != SYSTEM_CLASSES[name]:
            wrong = f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
        elif obj.get("globalDefault"):
            wrong = f"globalDefault of {name} PriorityClass must be false"
        else:
            wrong = ""
        if wrong:
            told = f"priority class names with 'system-' prefix are reserved for system use only. error: {wrong}"
            errors.forbidden("metadata.name", told)
    elif value > _HIGHEST_USER_PRIORITY:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")
    preemption_policy(errors, "preemptionPolicy", obj.get("preemptionPolicy"))


def priority_class_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj.get("value", 0) != old.get("value", 0):
        errors.forbidden("value", "may not be changed in an update.")
    errors.immutable("preemptionPolicy", obj.get("preemptionPolicy"), old.get("preemptionPolicy"))
