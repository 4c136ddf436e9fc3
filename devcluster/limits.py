"""LimitRanger: defaults and bounds of a namespace's LimitRanges. Source: plugin/pkg/admission/limitranger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.kube.quantity import Quantity, milli_value, parse_quantity
from kubeloop.kube.resources import PERSISTENT_VOLUME_CLAIMS, PODS

JSON = dict[str, Any]
_ANNOTATION = "kubernetes.io/limit-ranger"


def apply_to_pod(ranges: Sequence[JSON], pod: JSON) -> None:
    """Fill in, in place, default requests and limits of containers, then check all bounds. Raises StatusError 403."""
    if not ranges:
        return
    spec = pod["spec"]
    notes: list[str] = []
    for item in _items(ranges, "Container"):
        for kind, containers in (("container", "containers"), ("init container", "initContainers")):
            for container in spec.get(containers) or ():
                notes += _fill(container, kind, item)
    if notes:
        pod["metadata"].setdefault("annotations", {})[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)
    problems: list[str] = []
    everyone = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for item in _items(ranges, "Container"):
        for container in everyone:
            problems += _bounds("Container", item, container.get("resources", {}))
    for item in _items(ranges, "Pod"):
        problems += _bounds("Pod", item, pod_total(spec))
    _refuse(PODS, pod, problems)


def check_claim(ranges: Sequence[JSON], claim: JSON) -> None:
    """Raises StatusError 403 for a claim outside the bounds."""
    problems: list[str] = []
    requests = claim["spec"].get("resources", {}).get("requests", {})
    for item in _items(ranges, "PersistentVolumeClaim"):
        for name, low in item.get("min", {}).items():
            if name not in requests:
                problems.append(f"minimum {name} usage per PersistentVolumeClaim is {low}.  No request is specified")
            elif parse_quantity(requests[name]).compare(parse_quantity(low)) < 0:
                problems.append(
                    f"minimum {name} usage per PersistentVolumeClaim is {low}, but request is {requests[name]}"
                )
        for name, high in item.get("max", {}).items():
            if name not in requests:
                problems.append(f"maximum {name} usage per PersistentVolumeClaim is {high}.  No request is specified")
            elif parse_quantity(requests[name]).compare(parse_quantity(high)) > 0:
                problems.append(
                    f"maximum {name} usage per PersistentVolumeClaim is {high}, but request is {requests[name]}"
                )
    _refuse(PERSISTENT_VOLUME_CLAIMS, claim, problems)


def _refuse(resource: Any, obj: JSON, problems: list[str]) -> None:
    if problems:
        told = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), told)


def _items(ranges: Sequence[JSON], kind: str) -> Iterator[JSON]:
    for each in ranges:
        for item in each.get("spec", {}).get("limits") or ():
            if item.get("type") == kind:
                yield item


def _fill(container: JSON, kind: str, item: JSON) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for part, source in (("requests", "defaultRequest"), ("limits", "default")):
        missing = {name: amount for name, amount in item.get(source, {}).items() if name not in resources.get(part, {})}
        if missing:
            resources[part] = {**resources.get(part, {}), **missing}
            names = ", ".join(sorted(missing))
            singular = part.removesuffix("s")
            yield f"{names} {singular} for {kind} {container['name']}"


def pod_total(spec: JSON) -> JSON:
    """Requests and limits of a pod as a whole.

    Containers and sidecars run side by side; before that init containers run one by one, beside the sidecars that
    were started before them. What the pod says of itself takes the place of the sum, and overhead comes on top.
    Source: component-helpers' resource.PodRequests and PodLimits.
    """
    return {part: _part_of_total(spec, part) for part in ("requests", "limits")}


def _part_of_total(spec: JSON, part: str) -> dict[str, str]:
    summed: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(summed, container.get("resources", {}).get(part, {}))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        amounts = container.get("resources", {}).get(part, {})
        if container.get("restartPolicy") == "Always":
            _add(summed, amounts)
            _add(sidecars, amounts)
            running = sidecars
        else:
            running = dict(sidecars)
            _add(running, amounts)
        for name, quantity in running.items():
            if name not in peak or quantity.compare(peak[name]) > 0:
                peak[name] = quantity
    for name, quantity in peak.items():
        if name not in summed or quantity.compare(summed[name]) > 0:
            summed[name] = quantity
    of_pod = (spec.get("resources") or {}).get(part, {})
    summed |= {name: parse_quantity(amount) for name, amount in of_pod.items()}
    overhead = spec.get("overhead") or {}
    _add(summed, overhead if part == "requests" else {name: each for name, each in overhead.items() if name in summed})
    return {name: quantity.canonical() for name, quantity in summed.items()}


def _add(total: dict[str, Quantity], amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + parse_quantity(amount) if name in total else parse_quantity(amount)


def _bounds(kind: str, item: JSON, resources: JSON) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, low in item.get("min", {}).items():
        floor = parse_quantity(low)
        if name not in requests:
            yield f"minimum {name} usage per {kind} is {low}.  No request is specified"
        elif parse_quantity(requests[name]).compare(floor) < 0:
            yield f"minimum {name} usage per {kind} is {low}, but request is {requests[name]}"
        elif name in limits and parse_quantity(limits[name]).compare(floor) < 0:
            yield f"minimum {name} usage per {kind} is {low}, but limit is {limits[name]}"
    for name, high in item.get("max", {}).items():
        ceiling = parse_quantity(high)
        if name not in limits:
            yield f"maximum {name} usage per {kind} is {high}.  No limit is specified"
        elif parse_quantity(limits[name]).compare(ceiling) > 0:
            yield f"maximum {name} usage per {kind} is {high}, but limit is {limits[name]}"
        elif name in requests and parse_quantity(requests[name]).compare(ceiling) > 0:
            yield f"maximum {name} usage per {kind} is {high}, but request is {requests[name]}"
    for name, ratio in item.get("maxLimitRequestRatio", {}).items():
        if name not in requests or not milli_value(requests[name]):
            what = f"{name} max limit to request ratio per {kind} is {ratio}"
            yield f"{what}, but no request is specified or request is 0"
        elif name not in limits or not milli_value(limits[name]):
            yield f"{name} max limit to request ratio per {kind} is {ratio}, but no limit is specified or limit is 0"
        else:
            actual = parse_quantity(limits[name]).milli_value() / parse_quantity(requests[name]).milli_value()
            if actual > parse_quantity(ratio).milli_value() / 1000:
                yield f"{name} max limit to request ratio per {kind} is {ratio}, but provided ratio is {actual:f}"
