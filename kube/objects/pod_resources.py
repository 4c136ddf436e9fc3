"""Requests and limits of a pod as a whole. Source: component-helpers' resource.PodRequests and PodLimits."""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import Quantity, parse_quantity

Amounts = dict[str, Quantity]
_NO_STATUSES: Mapping[str, JSON] = {}


def pod_resource_totals(pod: JSON, *, overhead: bool = True, actual: bool = False) -> dict[str, dict[str, str]]:
    """Return {"requests": amounts by resource, "limits": ...} of a pod as a whole, as canonical quantities.

    Resources at pod level replace the containers' sum; overhead is added.
    actual: use the resources in container statuses where they are larger than those in the spec.
    """
    statuses = _statuses(pod) if actual else _NO_STATUSES
    infeasible = bool(statuses) and _is_resize_infeasible(pod)
    result = {}
    for part in ("requests", "limits"):
        total = _total_of_containers(pod["spec"], part, statuses, infeasible=infeasible)
        pod_level_amounts = (pod["spec"].get("resources") or {}).get(part, {})
        total |= {name: parse_quantity(amount) for name, amount in pod_level_amounts.items() if is_pod_level(name)}
        overhead_amounts = (pod["spec"].get("overhead") or {}) if overhead else {}
        if part == "limits":
            overhead_amounts = {
                name: amount for name, amount in overhead_amounts.items() if name in total and total[name].sign
            }
        _add(total, overhead_amounts)
        result[part] = {name: quantity.canonical() for name, quantity in total.items()}
    return result


def container_totals(spec: JSON, which: str) -> dict[str, str]:
    """Return the total "requests" or "limits" of all containers: the maximum of the running containers and of the
    init containers, which run one after the other. Amounts by resource, as canonical quantities.
    """
    total = _total_of_containers(spec, which, _NO_STATUSES, infeasible=False)
    return {name: quantity.canonical() for name, quantity in total.items()}


def pod_requests(spec: JSON) -> dict[str, str]:
    """Return what a pod requests of a node: its containers' requests, or those at pod level, plus overhead."""
    return pod_resource_totals({"spec": spec})["requests"]


def is_pod_level(name: str) -> bool:
    """Return True if the resource may be set at pod level."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _total_of_containers(spec: JSON, part: str, statuses: Mapping[str, JSON], *, infeasible: bool) -> Amounts:
    """Return the total of all containers.

    Containers and sidecars run at the same time. Init containers run one by one before them, together with the sidecars
    that were started earlier.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts_of_container(container, part, statuses, infeasible=infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            amounts = _amounts_of_container(container, part, statuses, infeasible=infeasible)
            _add(total, amounts)
            _add(sidecars, amounts)
            running = sidecars
        else:
            running = dict(sidecars)
            _add(running, container.get("resources", {}).get(part, {}))
        _raise_to(peak, running)
    _raise_to(total, peak)
    return total


def _statuses(pod: JSON) -> dict[str, JSON]:
    status = pod.get("status", {})
    container_statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return {
        status_of_container.get("name", ""): status_of_container
        for status_of_container in container_statuses
        if status_of_container.get("resources") is not None
    }


def _is_resize_infeasible(pod: JSON) -> bool:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _amounts_of_container(
    container: JSON, part: str, statuses: Mapping[str, JSON], *, infeasible: bool
) -> Mapping[str, str]:
    requested: Mapping[str, str] = container.get("resources", {}).get(part, {})
    status = statuses.get(container.get("name", ""))
    if status is None:
        return requested
    largest: Amounts = {}
    allocated = (status.get("allocatedResources") or {}) if part == "requests" else {}
    for amounts in ({} if infeasible else requested, status["resources"].get(part, {}), allocated):
        _raise_to(largest, {name: parse_quantity(amount) for name, amount in amounts.items()})
    return {name: quantity.canonical() for name, quantity in largest.items()}


def _raise_to(total: Amounts, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        if name not in total or quantity.compare(total[name]) > 0:
            total[name] = quantity


def _add(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + parse_quantity(amount) if name in total else parse_quantity(amount)
