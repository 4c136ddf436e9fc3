"""Fields of disabled feature gates in the kinds of resource.k8s.io: see disabled_fields.

Source: pkg/registry/resource and pkg/api/resourceclaimspec of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kubeloop.kube.json_object import JSON

Parts = Callable[[JSON], Iterable[JSON]]
"""Returns the parts of an object that may have a field."""


def drop_fields(*fields: tuple[Parts, tuple[str, ...]]) -> Callable[[JSON, JSON], None]:
    """Return a function that drops fields from a new object unless the stored one has any of them."""

    def drop(new: JSON, old: JSON) -> None:
        users = [(part, name) for parts, names in fields for part in parts(new) for name in names if name in part]
        if users and not any(name in part for parts, names in fields for part in parts(old) for name in names):
            for part, name in users:
                del part[name]

    return drop


def _spec(obj: JSON) -> list[JSON]:
    return [obj.get("spec") or {}]


def _devices(obj: JSON) -> Iterator[JSON]:
    for spec in _spec(obj):
        yield from spec.get("devices") or ()


def _capacities(obj: JSON) -> Iterator[JSON]:
    for device in _devices(obj):
        yield from (device.get("capacity") or {}).values()


def _attributes(obj: JSON) -> Iterator[JSON]:
    for device in _devices(obj):
        yield from (device.get("attributes") or {}).values()


_SLICES = (
    ("DRADeviceTaints", drop_fields((_devices, ("taints",)))),
    (
        "DRAPartitionableDevices",
        drop_fields(
            (_spec, ("sharedCounters", "perDeviceNodeSelection")),
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


def _claims(*path: str) -> tuple[tuple[str, Callable[[JSON, JSON], None]], ...]:
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


OBJECTS = {
    "deviceclasses.resource.k8s.io": (("DRAExtendedResource", drop_fields((_spec, ("extendedResourceName",)))),),
    "resourceclaims.resource.k8s.io": _claims("spec"),
    "resourceclaimtemplates.resource.k8s.io": _claims("spec", "spec"),
    "resourceslices.resource.k8s.io": _SLICES,
}


# --- status of claims -------------------------------------------------------------------------------------------------


def _results(status: JSON) -> Iterable[JSON]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()


def _status_devices(status: JSON) -> Iterable[JSON]:
    return status.get("devices") or ()


STATUSES = {
    "resourceclaims.resource.k8s.io": (
        ("DRAResourceClaimDeviceStatus", drop_fields((lambda status: [status], ("devices",)))),
        (
            "DRAConsumableCapacity",
            drop_fields((_results, ("shareID", "consumedCapacity")), (_status_devices, ("shareID",))),
        ),
        (
            "DRADeviceBindingConditions",
            drop_fields((_results, ("bindingConditions", "bindingFailureConditions"))),
        ),
    )
}


def drop_deallocated_devices(status: JSON, old: JSON) -> None:
    """Drop, in place, the device statuses of devices that a claim no longer has."""
    deallocated = set(map(_shared_device, _results(old))) - set(map(_shared_device, _results(status)))
    if deallocated and status.get("devices"):
        status["devices"] = [device for device in status["devices"] if _shared_device(device) not in deallocated]
        if not status["devices"]:
            del status["devices"]


def _shared_device(result: JSON) -> tuple[str, ...]:
    return tuple(result.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
