"""ResourceClaims. Source: pkg/apis/resource/validation of Kubernetes v1.36."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache

import msgspec

from kubeloop.devcluster.admission import device_admin_access
from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.resource.claim_status_access import check_binding, check_devices
from kubeloop.devcluster.kinds.resource.common import (
    Validator,
    name_of,
    validate_attribute_name,
    validate_binding_conditions,
    validate_driver_name,
    validate_label,
    validate_list,
    validate_pool_name,
    validate_raw_object,
    validate_toleration,
)
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.printers.formatting import status_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.devcluster.validation.common.error_list import NOT_POSITIVE, ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import sloppy_network
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.devcluster.validation.pod.scheduling import validate_node_selector
from kubeloop.kube.json_object import JSON
from kubeloop.kube.selectors.device_selectors import DeviceSelectorError, compile_device_selector
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_subdomain
from kubeloop.kube.values.ip_addresses import sloppy_ip

_MAX_REQUESTS, _MAX_CONSTRAINTS, MAX_CONFIG, MAX_SELECTORS = 32, 32, 32, 32
_MAX_ALTERNATIVES, _MAX_EXPRESSION, _MAX_CONSUMERS = 8, 10 * 1024, 256
_MAX_STATUS_CONDITIONS, _MAX_IPS, _MAX_INTERFACE_NAME, _MAX_HARDWARE_ADDRESS = 8, 16, 256, 128
_UID_LENGTHS = (36, 32, 38, 45)
_UID = re.compile(r"(urn:uuid:)?\{?[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\}?", re.IGNORECASE)
_NOT_NORMALIZED = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
    "characters"
)
_NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
_EITHER_REQUEST = "exactly one of `exactly` or `firstAvailable` is required"
_EITHER_ATTRIBUTE = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'  # as in v1.36
)


def validate_resource_claim(errors: ErrorList, obj: JSON) -> None:
    validate_devices(errors, "spec.devices", obj["spec"].get("devices") or {})


def validate_devices(errors: ErrorList, path: str, devices: JSON) -> None:
    reference = _request_reference(devices)

    def validate_configuration(errors: ErrorList, path: str, config: JSON) -> None:
        validate_list(errors, f"{path}.requests", config.get("requests"), _MAX_REQUESTS, reference, key=str)
        validate_opaque_configuration(errors, path, config)

    def validate_constraint(errors: ErrorList, path: str, constraint: JSON) -> None:
        validate_list(errors, f"{path}.requests", constraint.get("requests"), _MAX_REQUESTS, reference, key=str)
        _validate_constraint(errors, path, constraint)

    requests = devices.get("requests")
    validate_list(errors, f"{path}.requests", requests, _MAX_REQUESTS, _validate_request, key=name_of)
    constraints = devices.get("constraints")
    validate_list(errors, f"{path}.constraints", constraints, _MAX_CONSTRAINTS, validate_constraint)
    validate_list(errors, f"{path}.config", devices.get("config"), MAX_CONFIG, validate_configuration)


def _request_reference(devices: JSON) -> Validator:
    """Return the validator of names that must be those of requests of a claim: "request" or "request/subrequest"."""
    names = set()
    for request in devices.get("requests") or ():
        names.add(name_of(request))
        names.update(f"{name_of(request)}/{name_of(other)}" for other in request.get("firstAvailable") or ())

    def validate(errors: ErrorList, path: str, name: str) -> None:
        parts = name.split("/")
        if len(parts) <= 2:
            for part in parts:
                validate_label(errors, path, part)
        if name not in names:
            errors.invalid(path, name, _NO_REQUEST)

    return validate


def _validate_request(errors: ErrorList, path: str, request: JSON) -> None:
    validate_label(errors, f"{path}.name", name_of(request))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and alternatives:
        errors.invalid(path, None, f"{_EITHER_REQUEST}, but multiple fields are set")
    elif alternatives:
        where = f"{path}.firstAvailable"
        validate_list(errors, where, alternatives, _MAX_ALTERNATIVES, _validate_alternative, key=name_of)
    elif exactly is not None:
        _validate_requested_devices(errors, f"{path}.exactly", exactly)
    else:
        errors.required(path, _EITHER_REQUEST)


def _validate_alternative(errors: ErrorList, path: str, alternative: JSON) -> None:
    validate_label(errors, f"{path}.name", name_of(alternative))
    _validate_requested_devices(errors, path, alternative)


def _validate_requested_devices(errors: ErrorList, path: str, request: JSON) -> None:
    errors.check_required(f"{path}.deviceClassName", request.get("deviceClassName", ""), dns_subdomain)
    validate_list(errors, f"{path}.selectors", request.get("selectors"), MAX_SELECTORS, validate_selector)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All" and count:
        errors.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        errors.invalid(f"{path}.count", count, NOT_POSITIVE)
    elif mode not in ("All", "ExactCount"):
        errors.not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    validate_list(errors, f"{path}.tolerations", request.get("tolerations"), None, validate_toleration)


def validate_selector(errors: ErrorList, path: str, selector: JSON) -> None:
    cel = selector.get("cel")
    if cel is None:
        errors.required(f"{path}.cel")
        return
    where, expression = f"{path}.cel.expression", cel.get("expression", "")
    if len(expression.encode()) > _MAX_EXPRESSION:
        errors.too_long(where, _MAX_EXPRESSION)
        return
    gates = (errors.gates.enabled(name) for name in ("DRAConsumableCapacity", "DRAListTypeAttributes"))
    if problem := _compile_error(expression, *gates):
        errors.invalid(where, expression, problem)


@lru_cache(maxsize=256)
def _compile_error(expression: str, consumable_capacity: bool, list_attributes: bool) -> str:
    try:
        compile_device_selector(expression, consumable_capacity=consumable_capacity, list_attributes=list_attributes)
    except DeviceSelectorError as error:
        return str(error)
    return ""


def _validate_constraint(errors: ErrorList, path: str, constraint: JSON) -> None:
    for name in ("matchAttribute", "distinctAttribute"):
        if (attribute := constraint.get(name)) is not None:
            validate_attribute_name(errors, f"{path}.{name}", attribute)
            if "/" not in attribute:
                detail = "a fully qualified name must be a domain and a name separated by a slash"
                errors.invalid(f"{path}.{name}", attribute, detail)
            return
    if errors.gates.enabled("DRAConsumableCapacity"):
        errors.required(path, _EITHER_ATTRIBUTE)
    else:
        errors.required(f"{path}.matchAttribute")


def validate_opaque_configuration(errors: ErrorList, path: str, config: JSON) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errors.required(f"{path}.opaque")
        return
    validate_driver_name(errors, f"{path}.opaque.driver", opaque.get("driver", ""))
    validate_raw_object(errors, f"{path}.opaque.parameters", opaque.get("parameters"))


# --- status --------------------------------------------------------------------------------------------------------


def validate_resource_claim_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    path = "status.reservedFor"
    validate_list(
        errors,
        path,
        consumers,
        _MAX_CONSUMERS,
        lambda errors, path, consumer: errors.required_fields(path, consumer, "resource", "name", "uid"),
        key=lambda it: it.get("uid", ""),
    )
    _validate_device_statuses(errors, status.get("devices"), allocation)
    if consumers and allocation is None:
        errors.forbidden(path, "may not be specified when `allocated` is not set")
    elif "deletionTimestamp" in obj["metadata"] and any(
        it not in (before.get("reservedFor") or ()) for it in consumers
    ):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.forbidden(path, detail)
    if allocation is not None and before.get("allocation") is not None:
        errors.immutable("status.allocation", allocation, before["allocation"], "resource/v1.AllocationResult")
    elif allocation is not None:
        _validate_allocation(errors, "status.allocation", allocation, _request_reference(obj["spec"]["devices"]))


def _validate_allocation(errors: ErrorList, path: str, allocation: JSON, reference: Validator) -> None:
    def validate_result(errors: ErrorList, path: str, result: JSON) -> None:
        reference(errors, f"{path}.request", result.get("request", ""))
        _validate_device(errors, path, result)
        validate_binding_conditions(errors, path, result)

    def validate_configuration(errors: ErrorList, path: str, config: JSON) -> None:
        source, sources = config.get("source", ""), ("FromClaim", "FromClass")
        errors.required_one_of(f"{path}.source", source, sources)
        validate_list(errors, f"{path}.requests", config.get("requests"), _MAX_REQUESTS, reference, key=str)
        validate_opaque_configuration(errors, path, config)

    devices = allocation.get("devices") or {}
    validate_list(errors, f"{path}.devices.results", devices.get("results"), _MAX_REQUESTS, validate_result)
    validate_list(errors, f"{path}.devices.config", devices.get("config"), 2 * MAX_CONFIG, validate_configuration)
    if (selector := allocation.get("nodeSelector")) is not None:
        validate_node_selector(errors, f"{path}.nodeSelector", selector)


def _validate_device(errors: ErrorList, path: str, device: JSON) -> None:
    validate_driver_name(errors, f"{path}.driver", device.get("driver", ""))
    validate_pool_name(errors, f"{path}.pool", device.get("pool", ""))
    validate_label(errors, f"{path}.device", device.get("device", ""))
    if (share := device.get("shareID")) is not None:
        _validate_uid(errors, f"{path}.shareID", share)


def _validate_uid(errors: ErrorList, path: str, uid: str) -> None:
    if len(uid) not in _UID_LENGTHS:
        errors.invalid(path, uid, f"error validating uid: invalid UUID length: {len(uid)}")
    elif not _UID.fullmatch(uid):
        errors.invalid(path, uid, "error validating uid: invalid UUID format")
    elif len(uid) != _UID_LENGTHS[0] or uid != uid.lower():
        errors.invalid(path, uid, _NOT_NORMALIZED)


_DEVICE_ID = ("Driver", "Pool", "Device", "ShareID")


def _device_id(device: JSON) -> tuple[str, ...]:
    return tuple([device.get(name) or "" for name in ("driver", "pool", "device", "shareID")])


def _validate_device_statuses(errors: ErrorList, statuses: list[JSON] | None, allocation: JSON | None) -> None:
    allocated = {_device_id(result) for result in _results({"allocation": allocation})}

    def validate(errors: ErrorList, path: str, device: JSON) -> None:
        _validate_device(errors, path, device)
        if _device_id(device) not in allocated:
            shown = msgspec.json.encode(dict(zip(_DEVICE_ID, _device_id(device), strict=True))).decode()
            errors.invalid_without_value(path, f"{shown}: must be an allocated device in the claim")
        conditions = device.get("conditions") or ()
        errors.at_most(f"{path}.conditions", conditions, _MAX_STATUS_CONDITIONS)
        validate_conditions(errors, f"{path}.conditions", conditions)
        if device.get("data") is not None:
            validate_raw_object(errors, f"{path}.data", device["data"])
        network = device.get("networkData") or {}
        limits = {"interfaceName": _MAX_INTERFACE_NAME, "hardwareAddress": _MAX_HARDWARE_ADDRESS}
        for name, limit in limits.items():
            errors.at_most_bytes(f"{path}.networkData.{name}", network.get(name, ""), limit)
        ips = network.get("ips")
        validate_list(errors, f"{path}.networkData.ips", ips, _MAX_IPS, _validate_interface_address, key=str)

    validate_list(errors, "status.devices", statuses, None, validate, key=lambda it: "/".join(_device_id(it)))


def _validate_interface_address(errors: ErrorList, path: str, text: str) -> None:
    network = sloppy_network(text)
    if network is None:
        errors.invalid(path, text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
        return
    canonical = f"{sloppy_ip(text.partition('/')[0])}/{network.prefixlen}"
    if text != canonical:
        errors.invalid(path, text, f"must be in canonical form ({quoted(canonical)})")


def default_device_requests(claim: JSON) -> None:
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        for device_request in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if device_request is None:
                continue
            device_request["allocationMode"] = device_request.get("allocationMode") or "ExactCount"
            if device_request["allocationMode"] == "ExactCount" and not device_request.get("count"):
                device_request["count"] = 1
            for toleration in device_request.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"


def _default(claim: JSON) -> None:
    default_device_requests(claim)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        for toleration in result.get("tolerations") or ():
            toleration["operator"] = toleration.get("operator") or "Equal"


def _state(obj: JSON, _now: datetime) -> str:
    status = status_of(obj)
    states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    if status.get("allocation"):
        states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states if status.get("allocation") or status.get("reservedFor") else [*states, "pending"])


def gated_claim_fields(*path: str) -> tuple[tuple[str, Callable[[JSON, JSON], None]], ...]:
    """Return the fields of claims, or of their templates. path: to the claim's spec."""

    def devices(obj: JSON) -> JSON:
        for name in path:
            obj = obj.get(name) or {}
        claimed: JSON = obj.get("devices") or {}
        return claimed

    def requests(obj: JSON) -> Iterable[JSON]:
        return devices(obj).get("requests") or ()

    def device_requests(obj: JSON) -> Iterator[JSON]:
        for request in requests(obj):
            if request.get("exactly"):
                yield request["exactly"]
            yield from request.get("firstAvailable") or ()

    def constraints(obj: JSON) -> Iterable[JSON]:
        return devices(obj).get("constraints") or ()

    return (
        ("DRAPrioritizedList", drop_fields((requests, ("firstAvailable",)))),
        ("DRADeviceTaints", drop_fields((device_requests, ("tolerations",)))),
        (
            "DRAConsumableCapacity",
            drop_fields((constraints, ("distinctAttribute",)), (device_requests, ("capacity",))),
        ),
    )


def _results(status: JSON) -> Iterable[JSON]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()


def _drop_deallocated_devices(status: JSON, old: JSON) -> None:
    """Drop, in place, the device statuses of devices that a claim no longer has."""
    deallocated = set(map(_device_id, _results(old))) - set(map(_device_id, _results(status)))
    if deallocated and status.get("devices"):
        status["devices"] = [device for device in status["devices"] if _device_id(device) not in deallocated]
        if not status["devices"]:
            del status["devices"]


def _prepare_status(claim: JSON, old: JSON, _write: Write) -> None:
    claim["status"] = {**(claim.get("status") or {})}
    _drop_deallocated_devices(claim["status"], old.get("status") or {})


def _check_access(
    chain: AdmissionChain, context: RequestContext, claim: JSON, old: JSON | None, causes: list[JSON]
) -> list[JSON]:
    if old is None:
        return [*device_admin_access.check_requests(chain.store, claim, claim.get("spec") or {}), *causes]
    if context.info.subresource != "status":
        return causes
    access = device_admin_access.check_allocation(chain.store, claim, old)
    if chain.gates.enabled("DRAResourceClaimGranularStatusAuthorization"):
        status, old_status = claim.get("status") or {}, old.get("status") or {}
        access += check_binding(context, status, old_status)
        if status.get("allocation") is not None and chain.gates.enabled("DRAResourceClaimDeviceStatus"):
            access += check_devices(context, status, old_status)
    return [*access, *causes]


def _is_charged(_claim: JSON, _old: JSON, subresource: str) -> bool:
    return not subresource


STRATEGY = Strategy(
    default=_default,
    gated_fields=gated_claim_fields("spec"),
    gated_status_fields=(
        ("DRAResourceClaimDeviceStatus", drop_fields((itself, ("devices",)))),
        (
            "DRAConsumableCapacity",
            drop_fields(
                (_results, ("shareID", "consumedCapacity")), (lambda status: status.get("devices") or (), ("shareID",))
            ),
        ),
        (
            "DRADeviceBindingConditions",
            drop_fields((_results, ("bindingConditions", "bindingFailureConditions"))),
        ),
    ),
    prepare_status=_prepare_status,
    status_metadata=(),
    validate=validate_resource_claim,
    validate_update=lambda errors, obj, old: errors.immutable(
        "spec", obj["spec"], old["spec"], "resource/v1.ResourceClaimSpec"
    ),
    validate_subresources={"status": validate_resource_claim_status_update},
    update_steps="wus",
    check_access=_check_access,
    is_charged=_is_charged,
    counts_devices=True,
    cells=row(_state, AGE),
)
