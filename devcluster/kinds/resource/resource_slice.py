"""ResourceSlices. Source: pkg/apis/resource/validation of Kubernetes v1.36."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubeloop.devcluster.api.selectable_fields import fields
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.resource.common import (
    name_of,
    validate_attribute_name,
    validate_binding_conditions,
    validate_driver_name,
    validate_label,
    validate_list,
    validate_pool_name,
    validate_taint,
)
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.registry.disabled_fields import drop_fields, spec_part
from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, ErrorList
from kubeloop.devcluster.validation.pod.containers import is_native
from kubeloop.devcluster.validation.pod.scheduling import validate_node_selector
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_subdomain
from kubeloop.kube.values.quantities import Quantity, parse_quantity

_MAX_DEVICES, _MAX_ADVANCED_DEVICES, _MAX_COUNTER_SETS, _MAX_COUNTERS = 128, 64, 8, 32
_MAX_ATTRIBUTES, _MAX_VALUES, _MAX_VALUE, _MAX_TAINTS, _MAX_CONSUMED_SETS, _MAX_OPTIONS = 32, 48, 64, 16, 2, 10
_LISTS = ("bools", "ints", "strings", "versions")
_NUMBER = r"(0|[1-9]\d*)"
_PRE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_ONE_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_DEVICE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def validate_resource_slice(errors: ErrorList, obj: JSON, stored: JSON | None = None) -> None:
    spec, old = obj["spec"], {} if stored is None else stored["spec"]
    validate_driver_name(errors, "spec.driver", spec.get("driver", ""))
    pool = spec.get("pool") or {}
    validate_pool_name(errors, "spec.pool.name", pool.get("name", ""))
    if (count := pool.get("resourceSliceCount", 0)) <= 0:
        errors.invalid("spec.pool.resourceSliceCount", count, NOT_POSITIVE)
    if (generation := pool.get("generation", 0)) < 0:
        errors.invalid("spec.pool.generation", generation, "must be greater than or equal to zero")
    if old:
        errors.immutable("spec.pool.name", pool.get("name", ""), old["pool"].get("name", ""))
        errors.immutable("spec.driver", spec.get("driver", ""), old.get("driver", ""))
        errors.immutable("spec.nodeName", spec.get("nodeName"), old.get("nodeName"))
    names = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    selections = _node_selections(errors, "spec", spec, names, "must be either unset or set to a non-empty string")
    if (terms := (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []) and len(terms) != 1:
        where, type_name = "spec.nodeSelector.nodeSelectorTerms", "core/v1.NodeSelectorTerm"
        errors.invalid(where, terms, "must have exactly one node selector term", type_name)
    if errors.require("spec", selections, _ONE_SELECTION) and len(selections) > 1:
        errors.invalid("spec", f"{{{', '.join(selections)}}}", f"{_ONE_SELECTION}, but multiple fields are set")
    devices, counter_sets = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and counter_sets:
        errors.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    old_devices = {device.get("name", ""): device for device in reversed(old.get("devices") or ())}
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def validate_device(errors: ErrorList, path: str, device: JSON) -> None:
        _validate_device(errors, path, device, old_devices.get(device.get("name", "")), per_device=per_device)

    limit = _MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices)) else _MAX_DEVICES
    validate_list(errors, "spec.devices", devices, limit, validate_device, key=name_of)
    validate_list(
        errors,
        "spec.sharedCounters",
        counter_sets,
        _MAX_COUNTER_SETS,
        lambda errors, path, counter_set: _validate_counters(errors, path, "name", counter_set),
        key=name_of,
    )


def _is_advanced(device: JSON) -> bool:
    """Return True for a device of which a slice has fewer."""
    has_lists = any(attribute.keys() & {*_LISTS} for attribute in (device.get("attributes") or {}).values())
    return bool(device.get("taints") or device.get("consumesCounters")) or has_lists


def _node_selections(errors: ErrorList, path: str, value: JSON, names: Sequence[str], empty_name: str) -> list[str]:
    """Validate the fields of a slice or device that select nodes, and return those that are set."""
    present = []
    for name in names:
        selection = value.get(name)
        if selection is None:
            continue
        if name == "nodeSelector":
            validate_node_selector(errors, f"{path}.{name}", selection)
        elif name == "nodeName" and selection:
            errors.check(f"{path}.{name}", selection, dns_subdomain)
        elif not selection:
            detail = empty_name if name == "nodeName" else "must be either unset or set to true"
            errors.invalid(f"{path}.{name}", selection, detail)
            continue
        present.append(f"`{name}`")
    return present


def _validate_device(errors: ErrorList, path: str, device: JSON, old: JSON | None, *, per_device: bool) -> None:
    validate_label(errors, f"{path}.name", name_of(device))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        errors.invalid(path, count, detail)
    if (count := sum(sum(len(it.get(name) or ()) for name in _LISTS) or 1 for it in attributes.values())) > _MAX_VALUES:
        errors.invalid(path, count, f"the total number of attribute values must not exceed {_MAX_VALUES}")
    for name, attribute in attributes.items():
        validate_attribute_name(errors, f"{path}.attributes", name)
        _validate_attribute(errors, f"{path}.attributes[{name}]", attribute)
    for name, amount in capacity.items():
        validate_attribute_name(errors, f"{path}.capacity", name)
        if (policy := amount.get("requestPolicy")) is not None:
            where = f"{path}.capacity[{name}].requestPolicy"
            if device.get("allowMultipleAllocations"):
                _validate_request_policy(errors, where, policy, parse_quantity(amount["value"]))
            else:
                errors.forbidden(where, "allowMultipleAllocations must be true")
    if old is None or (old.get("taints") or ()) != (device.get("taints") or ()):
        validate_list(errors, f"{path}.taints", device.get("taints"), _MAX_TAINTS, validate_taint)
    consumed, where = device.get("consumesCounters"), f"{path}.consumesCounters"
    validate_list(
        errors,
        where,
        consumed,
        _MAX_CONSUMED_SETS,
        lambda errors, path, consumption: _validate_counters(errors, path, "counterSet", consumption),
        key=lambda it: it.get("counterSet", ""),
    )
    names = ("nodeName", "nodeSelector", "allNodes")
    if per_device:
        selections = _node_selections(errors, path, device, names, "must not be empty")
        if errors.require(path, selections, _ONE_DEVICE_SELECTION) and len(selections) > 1:
            errors.invalid(path, f"{{{', '.join(selections)}}}", _ONE_DEVICE_SELECTION)
    elif any(device.get(name) is not None for name in names):
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        errors.invalid(path, None, detail)
    validate_binding_conditions(errors, path, device)
    for name, mapping in (device.get("nodeAllocatableResourceMappings") or {}).items():
        _validate_mapping(errors, f"{path}.nodeAllocatableResourceMappings[{name}]", name, mapping, capacity)


def _validate_attribute(errors: ErrorList, path: str, attribute: JSON) -> None:
    for name in ("string", "strings", "version", "versions"):
        value = attribute.get(name)
        for i, text in enumerate(value if type(value) is list else [] if value is None else [value]):
            where = f"{path}.{name}[{i}]" if type(value) is list else f"{path}.{name}"
            if name.startswith("version") and not _SEMVER.fullmatch(text):
                errors.invalid(where, text, "must be a string compatible with semver.org spec 2.0.0")
            errors.at_most_bytes(where, text, _MAX_VALUE)
    if len([value for value in attribute.values() if value is not None]) != 1:
        shown: Any = attribute or ""
        errors.invalid(path, shown, "exactly one value must be specified", "resource/v1.DeviceAttribute")


def _validate_request_policy(errors: ErrorList, path: str, policy: JSON, capacity: Quantity) -> None:
    options, limits = policy.get("validValues"), policy.get("validRange")
    default = None if policy.get("default") is None else parse_quantity(policy["default"])
    if options and limits is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        errors.forbidden(path, detail)
    elif (options or limits is not None) and default is None:
        errors.required(f"{path}.default", f"required when {'validValues' if options else 'validRange'} is defined")
    elif options and default is not None:
        _validate_options(errors, f"{path}.validValues", [*map(parse_quantity, options)], default, capacity)
    elif limits is not None and default is not None:
        _validate_range(errors, f"{path}.validRange", limits, default, capacity)


def _validate_options(
    errors: ErrorList, path: str, options: list[Quantity], default: Quantity, capacity: Quantity
) -> None:
    for i, (option, following) in enumerate(itertools.pairwise(options), start=1):
        if option.compare(following) > 0:
            errors.invalid(f"{path}[{i}]", str(following), "values must be sorted in ascending order")

    def validate_option(errors: ErrorList, path: str, option: Quantity) -> None:
        if option.compare(capacity) > 0:
            detail = f"option is larger than capacity value: {capacity}"
            errors.invalid(path, str(option), detail)

    validate_list(errors, path, options, _MAX_OPTIONS, validate_option, key=lambda option: str(option.value()))
    if len(options) > _MAX_OPTIONS or all(option.compare(default) for option in options):
        errors.invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _validate_range(errors: ErrorList, path: str, limits: JSON, default: Quantity, capacity: Quantity) -> None:
    least, most, step = (
        None if limits.get(name) is None else parse_quantity(limits[name]) for name in ("min", "max", "step")
    )
    if least is None:
        errors.required(f"{path}.min", "required when validRange is defined")
        return

    def check(field: str, value: Quantity, limit: Quantity, comparison: str) -> None:
        if value.compare(limit) > 0:
            errors.invalid(f"{path}.{field}", str(value), f"{comparison}: {limit}")

    check("min", least, capacity, "min is larger than capacity value")
    if default.compare(least) < 0:
        errors.invalid(f"{path}.min", str(default), f"default is less than min: {least}")
    if most is not None:
        check("max", least, most, "min is larger than max")
        check("max", most, capacity, "max is larger than capacity value")
        check("max", default, most, "default is more than max")
    if step is not None:
        if (first := least + step).compare(capacity) > 0:
            detail = f"one step {first} is larger than capacity value: {capacity}"
            errors.invalid(f"{path}.step", str(step), detail)
        for value in (default, most):
            if value is not None and (not step.value() or (value.value() - least.value()) % step.value()):
                origin = f"({step}) from ({least})"
                detail = f"value is not a multiple of a given step {origin}"
                errors.invalid(f"{path}.step", str(value), detail)


def _validate_counters(errors: ErrorList, path: str, name_field: str, value: JSON) -> None:
    if name := value.get(name_field, ""):
        validate_label(errors, f"{path}.{name_field}", name)
    else:
        errors.required(f"{path}.{name_field}")
    counters, where = value.get("counters") or {}, f"{path}.counters"
    if not counters:
        errors.required(where)
    elif len(counters) > _MAX_COUNTERS:
        errors.too_many(where, len(counters), _MAX_COUNTERS)
    else:
        for name in counters:
            validate_label(errors, where, name)


def _validate_mapping(errors: ErrorList, path: str, resource: str, mapping: JSON, capacity: JSON) -> None:
    multiplier, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
    if not is_native(resource):
        errors.invalid(path, resource, "must be a node allocatable resource name")
    if multiplier is None and key is None:
        errors.invalid(path, "", "at least one of allocationMultiplier or capacityKey must be set")
    if multiplier is not None and (amount := parse_quantity(multiplier)).sign <= 0:
        errors.invalid(f"{path}.allocationMultiplier", str(amount), "must be positive")
    if key == "":
        errors.invalid(f"{path}.capacityKey", "", "capacityKey must not be an empty string")
    elif key is not None and key not in capacity:
        errors.not_found(f"{path}.capacityKey", key)


def _default_times(obj: JSON, now: Callable[[], str]) -> None:
    for device in (obj.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            default_taint_time(taint, now)


def default_taint_time(taint: JSON, now: Callable[[], str]) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = now()


def _default(slice_: JSON) -> None:
    for device in (slice_.get("spec") or {}).get("devices") or ():
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            if mapping.get("allocationMultiplier") is None:
                mapping["allocationMultiplier"] = "1"


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    driver = obj["spec"].get("driver", "")
    if driver != driver.lower():
        yield f"spec.driver: driver names should be lowercase; {quoted(driver)} contains uppercase characters"


def _devices(obj: JSON) -> Iterator[JSON]:
    for spec in spec_part(obj):
        yield from spec.get("devices") or ()


def _capacities(obj: JSON) -> Iterator[JSON]:
    for device in _devices(obj):
        yield from (device.get("capacity") or {}).values()


def _attributes(obj: JSON) -> Iterator[JSON]:
    for device in _devices(obj):
        yield from (device.get("attributes") or {}).values()


_GATED_FIELDS = (
    ("DRADeviceTaints", drop_fields((_devices, ("taints",)))),
    (
        "DRAPartitionableDevices",
        drop_fields(
            (spec_part, ("sharedCounters", "perDeviceNodeSelection")),
            (_devices, ("consumesCounters", "nodeName", "nodeSelector", "allNodes")),
        ),
    ),
    (
        "DRADeviceBindingConditions",  # depends on DRAResourceClaimDeviceStatus
        drop_fields((_devices, ("bindingConditions", "bindingFailureConditions", "bindsToNode"))),
    ),
    (
        "DRAConsumableCapacity",
        drop_fields((_devices, ("allowMultipleAllocations",)), (_capacities, ("requestPolicy",))),
    ),
    ("DRANodeAllocatableResources", drop_fields((_devices, ("nodeAllocatableResourceMappings",)))),
    ("DRAListTypeAttributes", drop_fields((_attributes, ("bools", "ints", "strings", "versions")))),
)


STRATEGY = Strategy(
    default=_default,
    default_times=_default_times,
    gated_fields=_GATED_FIELDS,
    validate=validate_resource_slice,
    validate_update=validate_resource_slice,
    warnings=_warnings,
    selectable_fields=fields("metadata.name", "spec.driver", "spec.nodeName"),
    unknown_field="field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {field}",
    cells=row(text_of("spec.nodeName", NONE), text_of("spec.driver", NONE), text_of("spec.pool.name", NONE), AGE),
)
