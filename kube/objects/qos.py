"""Quality-of-service class of a pod. Source: pkg/apis/core/helper/qos."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import parse_quantity


def qos_class(spec: JSON) -> str:
    """Return the QoS class: Guaranteed, Burstable or BestEffort."""
    pod_level = spec.get("resources")
    if pod_level is not None:
        resource_requirements = [pod_level]
    else:
        resource_requirements = [
            container.get("resources") or {}
            for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
        ]
    compute = ("cpu", "memory")
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    for requirements in resource_requirements:
        limited = set()
        for name, amount in (requirements.get("requests") or {}).items():
            if name in compute and parse_quantity(amount).compare(parse_quantity(0)) > 0:
                requests[name] = requests.get(name, parse_quantity(0)) + parse_quantity(amount)
        for name, amount in (requirements.get("limits") or {}).items():
            if name in compute and parse_quantity(amount).compare(parse_quantity(0)) > 0:
                limited.add(name)
                limits[name] = limits.get(name, parse_quantity(0)) + parse_quantity(amount)
        guaranteed = guaranteed and limited == set(compute)
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(name in limits and limits[name].compare(amount) == 0 for name, amount in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"
