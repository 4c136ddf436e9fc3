"""Device files: the devices of simulated nodes (`--devices FILE`), parsed and validated.

    - nodes: "node-*"          # pattern of node names; all nodes if it is missing
      driver: gpu.example.com
      pool: large              # the pool is named NODE/large; without it, NODE
      devices:
        - name: gpu            # with count: gpu-0, gpu-1, ...
          count: 8
          attributes: {model: A100, numa: 0}
          capacity: {memory: 40Gi}

The fields of devices and sharedCounters are those of a ResourceSlice (resource.k8s.io/v1); attributes, capacities and
counters may be plain values.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kubeloop.kube import yaml
from kubeloop.kube.errors import UserError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import QuantityError, parse_quantity

_Label = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
_Subdomain = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")]
_QualifiedName = Annotated[str, Meta(pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}$")]
_HINT = "see docs/devices.md"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Part of a device file: an unknown field is an error."""


class Counters(_Struct, frozen=True, kw_only=True):
    """A counter set of a pool: name and amounts."""

    name: _Label
    counters: Annotated[dict[_Label, Any], Meta(min_length=1, max_length=32)]


class CounterConsumption(_Struct, frozen=True, kw_only=True):
    counter_set: _Label
    counters: Annotated[dict[_Label, Any], Meta(min_length=1, max_length=32)]


class DeviceTaint(_Struct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["None", "NoSchedule", "NoExecute"]


class Devices(_Struct, frozen=True, kw_only=True):
    """A device, or `count` equal devices whose names have a number."""

    name: _Label
    count: Annotated[int, Meta(ge=1, le=1024)] | None = None
    attributes: Annotated[dict[_QualifiedName, Any], Meta(max_length=32)] = {}
    capacity: Annotated[dict[_QualifiedName, Any], Meta(max_length=32)] = {}
    taints: Annotated[tuple[DeviceTaint, ...], Meta(max_length=16)] = ()
    consumes_counters: Annotated[tuple[CounterConsumption, ...], Meta(max_length=2)] = ()
    allow_multiple_allocations: bool = False
    binding_conditions: Annotated[tuple[str, ...], Meta(max_length=4)] = ()
    binding_failure_conditions: Annotated[tuple[str, ...], Meta(max_length=4)] = ()

    def names(self) -> list[str]:
        return [self.name] if self.count is None else [f"{self.name}-{number}" for number in range(self.count)]


class DevicePool(_Struct, frozen=True, kw_only=True):
    """The devices of one driver on each node whose name matches `nodes`."""

    driver: Annotated[_Subdomain, Meta(max_length=63)]
    nodes: Annotated[str, Meta(min_length=1)] = "*"
    pool: _Label = ""
    devices: Annotated[tuple[Devices, ...], Meta(min_length=1)]
    shared_counters: Annotated[tuple[Counters, ...], Meta(max_length=8)] = ()

    def pool_name(self, node: str) -> str:
        return f"{node}/{self.pool}" if self.pool else node


def read_devices(path: Path) -> tuple[DevicePool, ...]:
    """Return the pools of a device file. Raises UserError, which names the file and the place in it."""
    try:
        documents, _ = yaml.read_all(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not text"
        raise UserError(f"cannot read {path}: {problem}", hint=_HINT) from None
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
    for number, pool in enumerate(pools):
        for place, problem in _problems(pool):
            raise UserError(f"{path} at [{number}].{place}: {problem}", hint=_HINT)
    return pools


def pools_of(pools: Iterable[DevicePool], node: str) -> list[DevicePool]:
    """Return the pools of a node: of those with the same driver and name, the first whose pattern matches."""
    selected: dict[tuple[str, str], DevicePool] = {}
    for pool in pools:
        if fnmatch.fnmatchcase(node, pool.nodes):
            selected.setdefault((pool.driver, pool.pool), pool)
    return list(selected.values())


def device_objects(devices: Devices) -> list[JSON]:
    """Return the devices as in spec.devices of a ResourceSlice."""
    fields: JSON = {
        "attributes": {name: _attribute(value) for name, value in devices.attributes.items()},
        "capacity": {name: _amount(value) for name, value in devices.capacity.items()},
        "taints": [{"key": it.key, "value": it.value, "effect": it.effect} for it in devices.taints],
        "consumesCounters": [
            {"counterSet": entry.counter_set, "counters": _amounts(entry.counters)}
            for entry in devices.consumes_counters
        ],
        "allowMultipleAllocations": devices.allow_multiple_allocations,
        "bindingConditions": list(devices.binding_conditions),
        "bindingFailureConditions": list(devices.binding_failure_conditions),
    }
    present = {name: value for name, value in fields.items() if value}
    return [{"name": name, **present} for name in devices.names()]


def counter_objects(pool: DevicePool) -> list[JSON]:
    """Return spec.sharedCounters of a ResourceSlice."""
    return [{"name": counters.name, "counters": _amounts(counters.counters)} for counters in pool.shared_counters]


_ATTRIBUTE_KINDS = {bool: "bool", int: "int", str: "string"}


def _attribute(value: Any) -> JSON:
    return value if isinstance(value, dict) else {_ATTRIBUTE_KINDS[type(value)]: value}


def _amount(value: Any) -> JSON:
    return value if isinstance(value, dict) else {"value": str(value)}


def _amounts(values: dict[str, Any]) -> JSON:
    return {name: _amount(value) for name, value in values.items()}


def _problems(pool: DevicePool) -> Iterable[tuple[str, str]]:
    """Yield the place and text of what the types do not check."""
    sets = {counters.name: counters.counters for counters in pool.shared_counters}
    for number, counters in enumerate(pool.shared_counters):
        yield from _invalid_amounts(f"sharedCounters[{number}].counters", counters.counters)
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


def _is_typed_attribute(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= {"bool", "int", "string", "version"}


def _invalid_amounts(place: str, amounts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for name, amount in amounts.items():
        try:
            parse_quantity(str(_amount(amount).get("value", "")))
        except QuantityError as error:
            yield f"{place}.{name}", str(error)
