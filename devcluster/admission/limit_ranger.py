"""LimitRanger: defaults and bounds of a namespace's LimitRanges. Source: plugin/pkg/admission/limitranger.

Defaults are set before validation, bounds are checked afterwards; each LimitRange is applied on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.pod_resources import pod_resource_totals
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.values.quantities import parse_quantity

_ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_MILLI_VALUE = ((1 << 63) - 1) // 1000


def set_pod_defaults(ranges: Sequence[JSON], pod: JSON) -> None:
    """Set default requests and limits of containers, in place."""
    for limit_range in ranges:
        defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for item in _items(limit_range, "Container"):
            defaults["requests"] |= item.get("defaultRequest", {})
            defaults["limits"] |= item.get("default", {})
        notes: list[str] = []
        for kind, containers in (("container", "containers"), ("init container", "initContainers")):
            for container in pod["spec"].get(containers) or ():
                notes += _set_defaults(container, kind, defaults)
        if notes:
            pod["metadata"].setdefault("annotations", {})[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)


def check_pod(ranges: Sequence[JSON], pod: JSON) -> None:
    """Raise StatusError 403 for a pod that exceeds the bounds of a LimitRange; only the first such one is reported."""
    spec = pod["spec"]
    for limit_range in ranges:
        problems: list[str] = []
        for item in limit_range.get("spec", {}).get("limits") or ():
            if item.get("type") == "Container":
                for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                    problems += _bound_problems("Container", item, container.get("resources", {}))
            elif item.get("type") == "Pod":
                problems += _bound_problems("Pod", item, pod_resource_totals(pod, overhead=False))
        _raise_if_any(PODS, pod, problems)


def check_claim(ranges: Sequence[JSON], claim: JSON) -> None:
    """Raise StatusError 403 for a claim that exceeds the bounds of a LimitRange."""
    requests = claim["spec"].get("resources", {}).get("requests", {})
    for limit_range in ranges:
        problems: list[str] = []
        for item in _items(limit_range, "PersistentVolumeClaim"):
            kind = "PersistentVolumeClaim"
            problems += _minimum_problems(kind, item.get("min", {}), requests, {})
            for name, maximum in item.get("max", {}).items():
                detail = f"maximum {name} usage per {kind} is {maximum}"
                if name not in requests:
                    problems.append(f"{detail}.  No request is specified")
                elif _is_greater(requests[name], maximum):
                    problems.append(f"{detail}, but request is {requests[name]}")
        _raise_if_any(PERSISTENT_VOLUME_CLAIMS, claim, problems)


def _raise_if_any(resource: Any, obj: JSON, problems: Sequence[str]) -> None:
    problems = list(dict.fromkeys(problems))
    if problems:
        detail = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), detail)


def _items(limit_range: JSON, kind: str) -> Iterator[JSON]:
    for item in limit_range.get("spec", {}).get("limits") or ():
        if item.get("type") == kind:
            yield item


def _set_defaults(container: JSON, kind: str, defaults: dict[str, dict[str, str]]) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for part, amounts in defaults.items():
        missing = {name: amount for name, amount in amounts.items() if name not in resources.get(part, {})}
        if missing:
            resources[part] = sorted_map({**resources.get(part, {}), **missing})
            yield f"{', '.join(sorted(missing))} {part.removesuffix('s')} for {kind} {container.get('name', '')}"


def _comparable_amounts(left: str, right: str) -> tuple[int, int]:
    """Return two quantities in thousandths, or rounded if those overflow. Source: requestLimitEnforcedValues."""
    first, second = parse_quantity(left), parse_quantity(right)
    if max(first.value(), second.value()) <= _MAX_MILLI_VALUE:
        return first.milli_value(), second.milli_value()
    return first.value(), second.value()


def _is_greater(left: str, right: str) -> bool:
    first, second = _comparable_amounts(left, right)
    return first > second


def _minimum_problems(kind: str, bounds: JSON, requests: JSON, limits: JSON) -> Iterator[str]:
    for name, minimum in bounds.items():
        detail = f"minimum {name} usage per {kind} is {minimum}"
        if name not in requests:
            yield f"{detail}.  No request is specified"
        elif _is_greater(minimum, requests[name]):
            yield f"{detail}, but request is {requests[name]}"
        elif name in limits and _is_greater(minimum, limits[name]):
            yield f"{detail}, but limit is {limits[name]}"


def _bound_problems(kind: str, item: JSON, resources: JSON) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    yield from _minimum_problems(kind, item.get("min", {}), requests, limits)
    for name, maximum in item.get("max", {}).items():
        detail = f"maximum {name} usage per {kind} is {maximum}"
        if name not in limits:
            yield f"{detail}.  No limit is specified"
        elif _is_greater(limits[name], maximum):
            yield f"{detail}, but limit is {limits[name]}"
        elif name in requests and _is_greater(requests[name], maximum):
            yield f"{detail}, but request is {requests[name]}"
    for name, ratio in item.get("maxLimitRequestRatio", {}).items():
        detail = f"{name} max limit to request ratio per {kind} is {ratio}"
        request, limit = _comparable_amounts(requests.get(name, "0"), limits.get(name, "0"))
        if not request:
            yield f"{detail}, but no request is specified or request is 0"
        elif not limit:
            yield f"{detail}, but no limit is specified or limit is 0"
        elif limit / request > parse_quantity(ratio).milli_value() / 1000:
            yield f"{detail}, but provided ratio is {limit / request:f}"
