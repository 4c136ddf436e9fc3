"""What the containers of a pod ask for together. Source: component-helpers/resource (AggregateContainer...)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.kube.quantity import parse_quantity

JSON = dict[str, Any]


def _total(containers: Iterable[JSON], which: str) -> dict[str, str]:
    """Sum of the containers' requests or limits, in canonical form."""
    total: dict[str, Any] = {}
    for container in containers:
        for name, quantity in container.get("resources", {}).get(which, {}).items():
            value = parse_quantity(quantity)
            total[name] = total[name] + value if name in total else value
    return {name: value.canonical() for name, value in total.items()}


def aggregate(spec: JSON, which: str) -> dict[str, str]:
    """All containers' "requests" or "limits": the larger of running side by side and of starting one after the other.

    Amounts by resource, as canonical quantities.
    """
    total = _total(spec.get("containers") or (), which)
    sidecars: list[JSON] = []
    at_start: list[dict[str, str]] = []
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            sidecars.append(container)
            at_start.append(_total(sidecars, which))
        else:
            at_start.append(_total([*sidecars, container], which))
    if sidecars:
        total = _total([*(spec.get("containers") or ()), *sidecars], which)
    for amounts in at_start:
        for name, quantity in amounts.items():
            if name not in total or parse_quantity(total[name]) < parse_quantity(quantity):
                total[name] = quantity
    return total


def requests_of(spec: JSON) -> dict[str, str]:
    """What a pod asks of a node: its containers' requests, or the pod's own instead, and its overhead."""
    total = aggregate(spec, "requests")
    own = (spec.get("resources") or {}).get("requests", {})
    total |= {name: quantity for name, quantity in own.items() if is_pod_level(name)}
    for name, quantity in spec.get("overhead", {}).items():
        total[name] = (parse_quantity(total.get(name, "0")) + parse_quantity(quantity)).canonical()
    return total


def is_pod_level(name: str) -> bool:
    """Whether a pod as a whole may have this resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")
