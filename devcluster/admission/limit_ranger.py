"""LimitRanger: defaults and bounds of a namespace's LimitRanges. Source: plugin/pkg/admission/limitranger.

Defaults are filled in before an object is validated, bounds are looked at afterwards; each LimitRange speaks for
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import pod_resource_totals
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.quantities import parse_quantity

_ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_MILLI_VALUE = ((1 << 63) - 1) // 1000


def default_pod(ranges: Sequence[JSON], pod: JSON) -> None:
    """Fill in, in place, default requests and limits of containers."""
    for each in ranges:
        defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for item in _items(each, "Container"):
            defaults["requests"] |= item.get("defaultRequest", {})
            defaults["limits"] |= item.get("default", {})
        notes: list[str] = []
        for kind, containers in (("container", "containers"), ("init container", "initContainers")):
            for container in pod["spec"].get(containers) or ():
                notes += _fill(container, kind, defaults)
        if notes:
            pod["metadata"].setdefault("annotations", {})[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)


def check_pod(ranges: Sequence[JSON], pod: JSON) -> None:
    """Raises StatusError 403 for a pod outside the bounds of the first LimitRange that has any against it."""
    spec = pod["spec"]
    for each in ranges:
        problems: list[str] = []
        for item in each.get("spec", {}).get("limits") or ():
            if item.get("type") == "Container":
                for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                    problems += _bounds("Container", item, container.get("resources", {}))
            elif item.get("type") == "Pod":
                problems += _bounds("Pod", item, pod_resource_totals(pod, overhead=False))
        _refuse(PODS, pod, problems)


def check_claim(ranges: Sequence[JSON], claim: JSON) -> None:
    """Raises StatusError 403 for a claim outside the bounds."""
    requests = claim["spec"].get("resources", {}).get("requests", {})
    for each in ranges:
        problems: list[str] = []
        for item in _items(each, "PersistentVolumeClaim"):
            kind = "PersistentVolumeClaim"
            problems += _minimum(kind, item.get("min", {}), requests, {})
            for name, high in item.get("max", {}).items():
                told = f"maximum {name} usage per {kind} is {high}"
                if name not in requests:
                    problems.append(f"{told}.  No request is specified")
                elif _above(requests[name], high):
                    problems.append(f"{told}, but request is {requests[name]}")
        _refuse(PERSISTENT_VOLUME_CLAIMS, claim, problems)


def _refuse(resource: Any, obj: JSON, problems: Sequence[str]) -> None:
    problems = list(dict.fromkeys(problems))
    if problems:
        told = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), told)


def _items(limit_range: JSON, kind: str) -> Iterator[JSON]:
    for item in limit_range.get("spec", {}).get("limits") or ():
        if item.get("type") == kind:
            yield item


def _fill(container: JSON, kind: str, defaults: dict[str, dict[str, str]]) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for part, amounts in defaults.items():
        missing = {name: amount for name, amount in amounts.items() if name not in resources.get(part, {})}
        if missing:
            resources[part] = {**resources.get(part, {}), **missing}
            yield f"{', '.join(sorted(missing))} {part.removesuffix('s')} for {kind} {container.get('name', '')}"


def _whole_or_milli(one: str, other: str) -> tuple[int, int]:
    """Two quantities in thousandths, or whole where those would overflow. Source: requestLimitEnforcedValues."""
    first, second = parse_quantity(one), parse_quantity(other)
    if max(first.value(), second.value()) <= _MAX_MILLI_VALUE:
        return first.milli_value(), second.milli_value()
    return first.value(), second.value()


def _above(one: str, other: str) -> bool:
    first, second = _whole_or_milli(one, other)
    return first > second


def _minimum(kind: str, bounds: JSON, requests: JSON, limits: JSON) -> Iterator[str]:
    for name, low in bounds.items():
        told = f"minimum {name} usage per {kind} is {low}"
        if name not in requests:
            yield f"{told}.  No request is specified"
        elif _above(low, requests[name]):
            yield f"{told}, but request is {requests[name]}"
        elif name in limits and _above(low, limits[name]):
            yield f"{told}, but limit is {limits[name]}"


def _bounds(kind: str, item: JSON, resources: JSON) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    yield from _minimum(kind, item.get("min", {}), requests, limits)
    for name, high in item.get("max", {}).items():
        told = f"maximum {name} usage per {kind} is {high}"
        if name not in limits:
            yield f"{told}.  No limit is specified"
        elif _above(limits[name], high):
            yield f"{told}, but limit is {limits[name]}"
        elif name in requests and _above(requests[name], high):
            yield f"{told}, but request is {requests[name]}"
    for name, ratio in item.get("maxLimitRequestRatio", {}).items():
        told = f"{name} max limit to request ratio per {kind} is {ratio}"
        asked, allowed = _whole_or_milli(requests.get(name, "0"), limits.get(name, "0"))
        if not asked:
            yield f"{told}, but no request is specified or request is 0"
        elif not allowed:
            yield f"{told}, but no limit is specified or limit is 0"
        elif allowed / asked > parse_quantity(ratio).milli_value() / 1000:
            yield f"{told}, but provided ratio is {allowed / asked:f}"
