"""Nodes. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.selectable_fields import NAME, field_getter
from kubeloop.devcluster.api.strategy import ComputedColumn, Strategy, Write
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, UNKNOWN, spec_of, status_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import sloppy_network, validate_cidr
from kubeloop.devcluster.validation.pod.containers import validate_resource_quantity
from kubeloop.devcluster.validation.pod.scheduling import TAINT_EFFECTS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import label_value, qualified_name


def validate_node(errors: ErrorList, obj: JSON) -> None:
    spec = obj.get("spec", {})
    _validate_avoid_pods_annotation(errors, obj)
    _validate_taints(errors, spec.get("taints", ()))
    _validate_node_resources(errors, obj)
    swap = obj.get("status", {}).get("nodeInfo", {}).get("swap", {}).get("capacity")
    if swap is not None and swap <= 0:
        errors.invalid("metadata.nodeSwapStatus.capacity", swap, NOT_POSITIVE)
    _validate_declared_features(errors, obj)
    ranges = spec.get("podCIDRs", [])
    for i, range_ in enumerate(ranges):
        validate_cidr(errors, f"spec.podCIDRs[{i}]", range_)
    invalid_index = next((i for i, range_ in enumerate(ranges) if sloppy_network(range_) is None), None)
    if len(ranges) > 1 and invalid_index is not None:
        reason = f"invalid CIDR[{invalid_index}]: <nil> (invalid CIDR address: {ranges[invalid_index]})"
        errors.internal("spec.podCIDRs", f"invalid PodCIDRs. failed to check with dual stack with error:{reason}")
        errors.invalid("spec.podCIDRs", ranges, _ONE_CIDR_PER_FAMILY)
    elif len(ranges) > 2 or (len(ranges) == 2 and len({":" in range_ for range_ in ranges}) == 1):
        errors.invalid("spec.podCIDRs", ranges, _ONE_CIDR_PER_FAMILY)


_ONE_CIDR_PER_FAMILY = "may specify no more than one CIDR for each IP family"


def _validate_avoid_pods_annotation(errors: ErrorList, obj: JSON) -> None:
    avoided = obj["metadata"].get("annotations", {}).get(_AVOID_PODS_ANNOTATION)
    if avoided and (detail := go_json_error(avoided.encode())):
        errors.invalid("metadata.annotations.AvoidPods", _AVOID_PODS_ANNOTATION, detail)


_AVOID_PODS_ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(?:/[a-zA-Z0-9]+)*")
_NO_FEATURE = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)


def _validate_declared_features(errors: ErrorList, obj: JSON) -> None:
    names = obj.get("status", {}).get("declaredFeatures", ())
    for i, name in enumerate(names):
        where = f"status.declaredFeatures[{i}]"
        if len(name) > 253:
            detail = "must be no more than 253 characters"
            errors.invalid(where, name, f"invalid feature name {quoted(name)}: {detail}")
        elif not _FEATURE.fullmatch(name):
            errors.invalid(where, name, f"invalid feature name {quoted(name)}: {_NO_FEATURE}")
        after = names[i + 1] if i + 1 < len(names) else None
        if after == name:
            errors.duplicate(f"status.declaredFeatures[{i + 1}]", after)
        elif after is not None and name > after:
            errors.invalid("status.declaredFeatures", list(names), "list must be sorted in lexicographical order")


def _validate_taints(errors: ErrorList, taints: Sequence[JSON]) -> None:
    seen = set()
    for i, taint in enumerate(taints):
        where, key, effect = f"metadata.taints[{i}]", taint.get("key", ""), taint.get("effect", "")
        errors.check(f"{where}.key", key, qualified_name)
        if bad := label_value(taint.get("value", "")):
            errors.invalid(f"{where}.value", taint.get("value", ""), ";".join(bad))
        errors.required_one_of(f"{where}.effect", effect, TAINT_EFFECTS)
        if (key, effect) in seen:
            errors.duplicate(where, taint, "taints must be unique by key and effect pair", "core/v1.Taint")
        seen.add((key, effect))


def _validate_node_resources(errors: ErrorList, obj: JSON) -> None:
    for kind in ("capacity", "allocatable"):
        for name, quantity in sorted(obj.get("status", {}).get(kind, {}).items()):
            validate_resource_quantity(errors, f"status.{kind}.{name}", name, quantity)


_CIDR_CHANGE = 'node updates may not change podCIDR except from "" to valid'
_PROVIDER_CHANGE = 'node updates may not change providerID except from "" to valid'


def validate_node_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """Validate the whole node, and then the changes, as the strategy of nodes does."""
    if all(obj.get(part) == old.get(part) for part in ("spec", "status")) and obj["metadata"] is old["metadata"]:
        return
    validate_node(errors, obj)
    validate_node_status_update(errors, obj, old)


def validate_node_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj.get("spec", {}), old.get("spec", {})
    status, status_before = obj.get("status", {}), old.get("status", {})
    _validate_avoid_pods_annotation(errors, obj)
    if any(status.get(kind) != status_before.get(kind) for kind in ("capacity", "allocatable")):
        _validate_node_resources(errors, obj)
    if status.get("declaredFeatures") != status_before.get("declaredFeatures"):
        _validate_declared_features(errors, obj)
    addresses = status.get("addresses", ())
    if addresses and addresses != status_before.get("addresses"):
        for i, address in enumerate(addresses):
            if address in addresses[:i]:
                errors.duplicate(f"status.addresses[{i}]", address, type_name="core/v1.NodeAddress")
    if spec == before:
        return
    cidrs, old_cidrs = spec.get("podCIDRs", ()), before.get("podCIDRs", ())
    if old_cidrs and len(cidrs) != len(old_cidrs):
        errors.forbidden("spec.podCIDRs", _CIDR_CHANGE)
    elif old_cidrs:
        for new, previous in zip(cidrs, old_cidrs, strict=True):
            if new != previous:
                errors.forbidden("spec.podCIDRs", _CIDR_CHANGE)
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        errors.forbidden("spec.providerID", _PROVIDER_CHANGE)
    _validate_taints(errors, spec.get("taints", ()))
    if before.get("externalID") != spec.get("externalID"):
        errors.forbidden("spec.externalID", "may not be updated")


def _default(obj: JSON) -> None:
    status, spec = obj.setdefault("status", {}), obj.setdefault("spec", {})
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])
    first, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if first and (not several or several[0] != first):
        spec["podCIDRs"] = [first]
    elif several and not first:
        spec["podCIDR"] = several[0]


def _roles(node: JSON, _now: datetime) -> str:
    roles: set[str] = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role":
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _ready(node: JSON, _now: datetime) -> str:
    ready = condition_of(node, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if spec_of(node).get("unschedulable") else status


def _address(kind: str) -> ComputedColumn:
    def cell(node: JSON, _now: datetime) -> str:
        addresses = status_of(node).get("addresses") or ()
        return next((entry["address"] for entry in addresses if entry.get("type") == kind), NONE)

    return cell


def _kernel(node: JSON, _now: datetime) -> str:
    info = status_of(node).get("nodeInfo") or {}
    architecture = info.get("architecture")
    return f"{info.get('kernelVersion') or UNKNOWN}{f' ({architecture})' if architecture else ''}"


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    spec = obj.get("spec", {})
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


def _drop_dynamic_configuration(node: JSON, *_: Any) -> None:
    """Drop dynamic kubelet configuration, a removed feature; kubelets may set all other fields of the status."""
    node.get("spec", {}).pop("configSource", None)
    node.get("status", {}).pop("config", None)


def _prepare_status(node: JSON, _old: JSON, _write: Write) -> None:
    if "config" in node.get("status", {}):
        node["status"] = {field: value for field, value in node["status"].items() if field != "config"}


def _status(obj: JSON) -> tuple[JSON]:
    return (obj.get("status") or {},)


def _admit_create(chain: AdmissionChain, _context: RequestContext, node: JSON) -> None:
    """Taint a new node until it is ready. Source: plugin/pkg/admission/nodetaint."""
    if "TaintNodesByCondition" not in chain.enabled:
        return
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    if not any({**not_ready, **taint}.items() >= not_ready.items() for taint in taints):
        taints.append(not_ready)


STRATEGY = Strategy(
    default=_default,
    gated_fields=(("NodeDeclaredFeatures", drop_fields((_status, ("declaredFeatures",)))),),
    gated_status_fields=(("NodeDeclaredFeatures", drop_fields((itself, ("declaredFeatures",)))),),
    prepare_create=_drop_dynamic_configuration,
    sets_initial_status=True,
    prepare_update=_drop_dynamic_configuration,
    prepare_status=_prepare_status,
    validate=validate_node,
    validate_update=validate_node_update,
    validate_subresources={"status": validate_node_status_update},
    update_steps="wus",
    warnings=_warnings,
    admit_create=_admit_create,
    cells=row(
        _ready,
        _roles,
        AGE,
        text_of("status.nodeInfo.kubeletVersion"),
        _address("InternalIP"),
        _address("ExternalIP"),
        text_of("status.nodeInfo.osImage", UNKNOWN),
        _kernel,
        text_of("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
    ),
    selectable_fields=NAME | {"spec.unschedulable": field_getter("spec.unschedulable", "false")},
)
