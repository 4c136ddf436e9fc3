"""Device files: the devices of simulated nodes (`--devices FILE`), parsed and validated.

    - nodes: "node-*"          # pattern of node names; all nodes if it is missing
      driver: gpu.example.com
      pool: large              # the pool is named NODE/large; without it, NODE
      devices:
        - name: gpu            # with count: gpu-0, gpu-1, ...
          count: 8
          attributes: {model: A100, numa: 0}
          capacity: {memory: 40Gi}

The fields of devices and sharedCounters are those of a ResourceSlice (resource.k8s.io/v1), and validated as such;
attributes, capacities and counters may be plain values.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.serializer.decoding import DecodeError, decode, decode_named
from kubeloop.devcluster.validation.validate import validate_create
from kubeloop.kube import yaml
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import RESOURCE_SLICES
from kubeloop.kube.user_error import UserError, read_text
from kubeloop.kube.values.quantities import QuantityError, parse_quantity

_HINT = "--devices takes a file as in docs/devices.md"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Part of a device file: an unknown field is an error."""


class Counters(_Struct, frozen=True, kw_only=True):
    """A counter set of a pool: name and amounts."""

    name: str
    counters: dict[str, Any] = {}


class CounterConsumption(_Struct, frozen=True, kw_only=True):
    counter_set: str
    counters: dict[str, Any] = {}


class Devices(_Struct, frozen=True, kw_only=True):
    """A device, or `count` equal devices whose names have a number."""

    name: str
    count: Annotated[int, Meta(ge=1, le=1024)] | None = None
    attributes: dict[str, Any] = {}
    capacity: dict[str, Any] = {}
    taints: tuple[JSON, ...] = ()
    consumes_counters: tuple[CounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    def names(self) -> list[str]:
        return [self.name] if self.count is None else [f"{self.name}-{number}" for number in range(self.count)]


class DevicePool(_Struct, frozen=True, kw_only=True):
    """The devices of one driver on each node whose name matches `nodes`."""

    driver: str
    nodes: Annotated[str, Meta(min_length=1)] = "*"
    pool: Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)] = ""
    devices: Annotated[tuple[Devices, ...], Meta(min_length=1)]
    shared_counters: tuple[Counters, ...] = ()

    def pool_name(self, node: str) -> str:
        return f"{node}/{self.pool}" if self.pool else node


def read_devices(path: Path) -> tuple[DevicePool, ...]:
    """Return the pools of a device file. Raises UserError, which names the file and the place in it."""
    try:
        documents, _ = yaml.read_all(read_text(path, hint=_HINT))
    except yaml.InvalidYaml as error:
        raise UserError(f"{path}: {error.place}", hint=_HINT) from None
    entries: list[Any] = []
    for document in filter(None, documents):
        entries += document if isinstance(document, list) else [document]
    try:
        pools = msgspec.convert(entries, tuple[DevicePool, ...])
    except msgspec.ValidationError as error:
        what, _, where = str(error).rstrip("`").partition(" - at `$")
        raise UserError(f"{path}{f' at {where}' if where else ''}: {what}", hint=_HINT) from None
    if not pools:
        raise UserError(f"{path} has no devices", hint=_HINT)
    for number, pool in enumerate(pools):
        for place, problem in _problems(pool):
            raise UserError(f"{path} at [{number}].{place}: {problem}", hint=_HINT)
        for other in pools[:number]:
            if (pool.driver, pool.pool, pool.nodes) == (other.driver, other.pool, other.nodes):
                problem = f"entry [{pools.index(other)}] has the same driver, pool and nodes"
                raise UserError(f"{path} at [{number}]: {problem}", hint=_HINT)
    return pools


def pools_of(pools: Iterable[DevicePool], node: str) -> list[DevicePool]:
    """Return the pools of a node: of those with the same driver and name, the first whose pattern matches."""
    selected: dict[tuple[str, str], DevicePool] = {}
    for pool in pools:
        if fnmatch.fnmatchcase(node, pool.nodes):
            selected.setdefault((pool.driver, pool.pool), pool)
    return list(selected.values())


def device_objects(devices: Devices) -> list[JSON]:
    """Return the devices as in spec.devices of a ResourceSlice. Raises DecodeError."""
    device, _ = decode_named("resource/v1.Device", _device(devices))
    return [{**device, "name": name} for name in devices.names()]


def counter_objects(pool: DevicePool) -> list[JSON]:
    """Return spec.sharedCounters of a ResourceSlice. Raises DecodeError."""
    return [decode_named("resource/v1.CounterSet", counter_set)[0] for counter_set in _counter_sets(pool)]


def _counter_sets(pool: DevicePool) -> list[JSON]:
    return [{"name": it.name, "counters": _amounts(it.counters)} for it in pool.shared_counters]


def _device(devices: Devices) -> JSON:
    fields: JSON = {
        "attributes": {name: _attribute(value) for name, value in devices.attributes.items()},
        "capacity": _amounts(devices.capacity),
        "taints": list(devices.taints),
        "consumesCounters": [
            {"counterSet": entry.counter_set, "counters": _amounts(entry.counters)}
            for entry in devices.consumes_counters
        ],
        "allowMultipleAllocations": devices.allow_multiple_allocations,
        "bindingConditions": list(devices.binding_conditions),
        "bindingFailureConditions": list(devices.binding_failure_conditions),
    }
    return {"name": devices.names()[-1]} | {name: value for name, value in fields.items() if value}


_ATTRIBUTE_KINDS = {bool: "bool", int: "int", str: "string"}


def _attribute(value: Any) -> JSON:
    return value if isinstance(value, dict) else {_ATTRIBUTE_KINDS[type(value)]: value}


def _amounts(values: dict[str, Any]) -> JSON:
    return {name: value if isinstance(value, dict) else {"value": value} for name, value in values.items()}


def _problems(pool: DevicePool) -> Iterator[tuple[str, str]]:
    """Yield the place and text of what is wrong in a pool."""
    for number, counters in enumerate(pool.shared_counters):
        yield from _invalid_amounts(f"sharedCounters[{number}].counters", counters.counters)
    yield from _slice_problems(pool, {"sharedCounters": _counter_sets(pool)}, "sharedCounters")
    sets = {counters.name: counters.counters for counters in pool.shared_counters}
    names: set[str] = set()
    for number, devices in enumerate(pool.devices):
        place = f"devices[{number}]"
        if repeated := names.intersection(devices.names()):
            yield f"{place}.name", f"the pool has another device {min(repeated)}"
        names.update(devices.names())
        for name, value in devices.attributes.items():
            if type(value) not in _ATTRIBUTE_KINDS and not _is_typed_attribute(value):
                yield f"{place}.attributes.{name}", "must be a string, an integer, a boolean, or {version: 1.2.3}"
        yield from _invalid_amounts(f"{place}.capacity", devices.capacity)
        for index, entry in enumerate(devices.consumes_counters):
            where = f"{place}.consumesCounters[{index}]"
            yield from _invalid_amounts(f"{where}.counters", entry.counters)
            missing = entry.counters.keys() - sets.get(entry.counter_set, {}).keys()
            if entry.counter_set not in sets:
                yield f"{where}.counterSet", f"sharedCounters has no set {entry.counter_set}"
            elif missing:
                yield f"{where}.counters", f"the set {entry.counter_set} has no counter {min(missing)}"
        yield from _slice_problems(pool, {"devices": [_device(devices)]}, place)


def _slice_problems(pool: DevicePool, content: JSON, place: str) -> Iterator[tuple[str, str]]:
    """Yield the errors of a ResourceSlice with this content, whose place is in the pool."""
    described = {"name": pool.pool_name("node"), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": pool.driver, "nodeName": "node", "pool": described, **content}
    try:
        obj, unknown = decode(RESOURCE_SLICES, {"metadata": {"name": "node", "uid": "u"}, "spec": spec})
    except DecodeError as error:
        yield place, str(error)
        return
    for field in unknown:
        yield place, field
    for cause in validate_create(strategy_of(RESOURCE_SLICES), RESOURCE_SLICES, obj):
        yield cause["field"].removeprefix("spec.").replace("devices[0]", place), cause["message"]


def _invalid_amounts(place: str, amounts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, amount in _amounts(amounts).items():
        try:
            parse_quantity(str(amount.get("value", "")))
        except QuantityError as error:
            yield f"{place}.{name}", str(error)


def _is_typed_attribute(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= {"bool", "int", "string", "version"}
