"""Explanation for `kubeloop explain`: why the devices of a cluster do not satisfy the requests of a pod's claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubeloop.kube.selectors.selectors import SelectorError
from kubeloop.scheduler.devices.allocator import SearchSettings, has_untolerated_taint, rejecting_selector
from kubeloop.scheduler.devices.capacity import has_capacity
from kubeloop.scheduler.devices.cluster.device_pools import DevicePools, Pool, PoolDevice
from kubeloop.scheduler.devices.constraints import applies, attribute_value, attribute_values
from kubeloop.scheduler.devices.errors import AllocationError
from kubeloop.scheduler.devices.requests import ClaimRequests, RequestAlternative

_MAX_REASONS = 6  # per request


def explain_requests(
    claims: Sequence[ClaimRequests],
    pools: DevicePools,
    nodes: Mapping[str, Mapping[str, str]],
    settings: SearchSettings,
) -> list[str]:
    """Return a line for each unusable pool, request or alternative, and constraint of one. nodes: labels by name."""
    try:
        pools_of = {name: pools.pools(name, labels) for name, labels in nodes.items()}
        lines = _pool_lines(pools_of)
        for claim in claims:
            for alternatives in claim.requests:
                for request in alternatives:
                    usable, reasons = _examine(claim, request, pools_of, nodes, settings)
                    lines.append(_request_line(claim, request, usable, reasons))
                    lines += _constraint_lines(claim, request, usable, settings)
    except AllocationError as error:
        return [str(error)]
    return lines


def _examine(
    claim: ClaimRequests,
    request: RequestAlternative,
    pools_of: Mapping[str, Sequence[Pool]],
    nodes: Mapping[str, Mapping[str, str]],
    settings: SearchSettings,
) -> tuple[dict[str, list[PoolDevice]], Counter[str]]:
    """Return the devices that the request could have alone, by node, and the number of other devices by reason."""
    usable: dict[str, list[PoolDevice]] = {name: [] for name in pools_of}
    reasons: dict[PoolDevice, str] = {}
    for name, pools in pools_of.items():
        for pool in pools:
            for device in pool.devices:
                if device.per_device_node and not _is_for_node(device, name, nodes[name]):
                    continue
                if device not in reasons:
                    reasons[device] = _rejection(claim, request, device, settings)
                if not reasons[device]:
                    usable[name].append(device)
    return usable, Counter(reason for reason in reasons.values() if reason)


def _pool_lines(pools_of: Mapping[str, Sequence[Pool]]) -> list[str]:
    """Return the pools that nothing can be allocated from, with the reason."""
    problems = {
        f"pool {pool} is invalid: {pool.invalid_reason}" if pool.invalid_reason else f"pool {pool} is being updated"
        for pools in pools_of.values()
        for pool in pools
        if not pool.is_usable
    }
    return sorted(problems)


def _is_for_node(device: PoolDevice, name: str, labels: Mapping[str, str]) -> bool:
    try:
        return device.matcher.matches(name, labels)
    except SelectorError:
        return False


def _rejection(claim: ClaimRequests, request: RequestAlternative, device: PoolDevice, settings: SearchSettings) -> str:
    """Return why a request cannot have a device, or ""."""
    features, usage = settings.features, settings.usage_of((device.driver, device.pool))
    if device.device.binding_conditions and not features.binding_conditions:
        return "need a disabled feature gate"
    selector = rejecting_selector(settings.selectors, claim, request, device)
    if selector is not None:
        return f"rejected by the selector of {selector}"
    if not request.admin_access and device.name in usage.dedicated:
        return "in use"
    if features.device_taints and has_untolerated_taint(device, request.tolerations):
        taints = ", ".join(sorted(f"{taint.key}={taint.value}:{taint.effect}" for taint in device.device.taints))
        return f"tainted ({taints})"
    if features.consumable_capacity and not has_capacity(
        device.device, request.capacity, usage.consumed(device.name), {}
    ):
        return "without enough capacity"
    return ""


def _request_line(
    claim: ClaimRequests, request: RequestAlternative, usable: Mapping[str, Sequence[PoolDevice]], reasons: Counter[str]
) -> str:
    needed = "all devices" if request.takes_all else f"{request.count} device{'s' if request.count != 1 else ''}"
    most = max(map(len, usable.values()), default=0)
    line = f"{claim.claim.key}, request {request.full_name}: needs {needed}; at most {most} of one node can be used"
    others = [f"{count} {reason}" for reason, count in reasons.most_common(_MAX_REASONS)]
    return f"{line}; other devices: {', '.join(others)}" if others else line


def _values(device: PoolDevice, attribute: str, settings: SearchSettings) -> Iterable[object]:
    """Return the values of an attribute, of which lists have several."""
    if settings.features.list_attributes:
        return attribute_values(device.device, device.driver, attribute)
    value = attribute_value(device.device, device.driver, attribute)
    return () if value is None else (value,)


def _constraint_lines(
    claim: ClaimRequests,
    request: RequestAlternative,
    usable: Mapping[str, Sequence[PoolDevice]],
    settings: SearchSettings,
) -> list[str]:
    """Return the effect of each constraint on the devices that the request could have."""
    lines = []
    for constraint in claim.claim.spec.devices.constraints:
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        if not applies(frozenset(constraint.requests), request.base_name, request.subrequest):
            continue
        most = 0
        for devices in usable.values():
            values = Counter(value for device in devices for value in _values(device, name, settings))
            most = max(most, len(values) if constraint.match_attribute is None else max(values.values(), default=0))
        kind = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
        what = "with the same value" if constraint.match_attribute is not None else "with different values"
        lines.append(f"{claim.claim.key}, request {request.full_name}: {kind} {name}: at most {most} of them {what}")
    return lines
