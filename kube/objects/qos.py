"""Quality-of-service class of a pod. Source: pkg/apis/core/helper/qos."""

from __future__ import annotations

from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import Quantity, parse_quantity


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
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for requirements in resource_requirements:
        _add_compute(requests, requirements.get("requests") or {})
        limited = _add_compute(limits, requirements.get("limits") or {})
        guaranteed = guaranteed and limited == len(_COMPUTE)
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(name in limits and limits[name].compare(amount) == 0 for name, amount in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"


_COMPUTE = ("cpu", "memory")


def _add_compute(totals: dict[str, Quantity], amounts: JSON) -> int:
    """Add the amounts of CPU and memory to the totals; return how many of them are positive."""
    count = 0
    for name in _COMPUTE:
        if name in amounts and (amount := parse_quantity(amounts[name])).sign > 0:
            totals[name] = totals[name] + amount if name in totals else amount
            count += 1
    return count
