"""What the containers of a pod ask for together. Source: component-helpers' resource.PodRequests and PodLimits."""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import Quantity, parse_quantity

Amounts = dict[str, Quantity]
_NO_STATUSES: Mapping[str, JSON] = {}


def pod_resource_totals(pod: JSON, *, overhead: bool = True, actual: bool = False) -> dict[str, dict[str, str]]:
    """{"requests": amounts by resource, "limits": ...} of a pod as a whole, in canonical form.

    What the pod says of itself takes the place of its containers' sum, and overhead comes on top.
    actual: what the status says that containers have counts where it is more than what they ask for.
    """
    statuses = _statuses(pod) if actual else _NO_STATUSES
    infeasible = bool(statuses) and _is_resize_infeasible(pod)
    result = {}
    for part in ("requests", "limits"):
        total = _of_containers(pod["spec"], part, statuses, infeasible=infeasible)
        own = (pod["spec"].get("resources") or {}).get(part, {})
        total |= {name: parse_quantity(amount) for name, amount in own.items() if is_pod_level(name)}
        more = (pod["spec"].get("overhead") or {}) if overhead else {}
        if part == "limits":
            more = {name: each for name, each in more.items() if name in total and total[name].sign}
        _add(total, more)
        result[part] = {name: quantity.canonical() for name, quantity in total.items()}
    return result


def aggregate(spec: JSON, which: str) -> dict[str, str]:
    """All containers' "requests" or "limits": the larger of running side by side and of starting one after the other.

    Amounts by resource, as canonical quantities.
    """
    total = _of_containers(spec, which, _NO_STATUSES, infeasible=False)
    return {name: quantity.canonical() for name, quantity in total.items()}


def pod_requests(spec: JSON) -> dict[str, str]:
    """What a pod asks of a node: its containers' requests, or the pod's own instead, and its overhead."""
    return pod_resource_totals({"spec": spec})["requests"]


def is_pod_level(name: str) -> bool:
    """Whether a pod as a whole may have this resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _of_containers(spec: JSON, part: str, statuses: Mapping[str, JSON], *, infeasible: bool) -> Amounts:
    """Containers and sidecars run side by side; before that init containers run one by one, beside the sidecars that
    were started before them."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _of_container(container, part, statuses, infeasible=infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            amounts = _of_container(container, part, statuses, infeasible=infeasible)
            _add(total, amounts)
            _add(sidecars, amounts)
            running = sidecars
        else:
            running = dict(sidecars)
            _add(running, container.get("resources", {}).get(part, {}))
        _most(peak, running)
    _most(total, peak)
    return total


def _statuses(pod: JSON) -> dict[str, JSON]:
    status = pod.get("status", {})
    every = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return {each.get("name", ""): each for each in every if each.get("resources") is not None}


def _is_resize_infeasible(pod: JSON) -> bool:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _of_container(container: JSON, part: str, statuses: Mapping[str, JSON], *, infeasible: bool) -> Mapping[str, str]:
    asked: Mapping[str, str] = container.get("resources", {}).get(part, {})
    status = statuses.get(container.get("name", ""))
    if status is None:
        return asked
    most: Amounts = {}
    allocated = (status.get("allocatedResources") or {}) if part == "requests" else {}
    for amounts in ({} if infeasible else asked, status["resources"].get(part, {}), allocated):
        _most(most, {name: parse_quantity(amount) for name, amount in amounts.items()})
    return {name: quantity.canonical() for name, quantity in most.items()}


def _most(total: Amounts, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        if name not in total or quantity.compare(total[name]) > 0:
            total[name] = quantity


def _add(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + parse_quantity(amount) if name in total else parse_quantity(amount)
