"""Time at which taints of devices evict the Pods that use them.

Pure functions. Source: claimEvictionTime and podEvictionTime of v1.36
pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from kubeloop.controllers.devicetainteviction.tainted_devices import TaintedDevices
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_taints import selects_device, tolerates_device_taint
from kubeloop.kube.objects.device_types import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
)
from kubeloop.kube.objects.pod_claims import (
    ClaimNotCreated,
    claim_name,
    is_owned_by,
    is_owned_by_group,
    is_reserved_for,
    is_reserved_for_group,
)
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE
from kubeloop.kube.values.times import time_plus


class RuleReference(NamedTuple):
    """One DeviceTaintRule; another one of the same name has another UID."""

    name: str
    uid: str


class Eviction(NamedTuple):
    """when: from this time on. rules: the DeviceTaintRules among the reasons; others are taints in ResourceSlices."""

    when: datetime
    rules: frozenset[RuleReference] = frozenset()


def reference_to_rule(rule: DeviceTaintRule) -> RuleReference:
    return RuleReference(rule.metadata.name, rule.metadata.uid)


def rule_selects(rule: DeviceTaintRule, driver: str, pool: str, device: str) -> bool:
    """Return True if the rule evicts the users of a device. A rule without deviceSelector evicts none."""
    selector = rule.spec.device_selector
    return selector is not None and selects_device(selector, driver, pool, device)


def claim_eviction(claim: ResourceClaim, devices: TaintedDevices, rules: Iterable[DeviceTaintRule]) -> Eviction | None:
    """Return when the Pods of a claim are evicted, which is the earliest time of all taints that are not tolerated.

    rules: those with the effect NoExecute. None: no eviction.
    """
    if claim.status.allocation is None:
        return None
    times: list[datetime] = []
    references: set[RuleReference] = set()
    for result in claim.status.allocation.devices.results:
        for taint, rule in _taints_of(result, devices, rules):
            seconds = _tolerated_seconds(taint, result.tolerations)
            if seconds is None:
                continue
            if rule is not None:
                references.add(reference_to_rule(rule))
            if taint.time_added is not None:
                times.append(time_plus(taint.time_added, seconds))
    return Eviction(min(times), frozenset(references)) if times else None


def _taints_of(
    result: DeviceRequestAllocationResult, devices: TaintedDevices, rules: Iterable[DeviceTaintRule]
) -> Iterable[tuple[DeviceTaint, DeviceTaintRule | None]]:
    """Yield the NoExecute taints of an allocated device with the rule that each comes from."""
    for taint in devices.taints(result.driver, result.pool, result.device):
        yield taint, None
    for rule in rules:
        if rule_selects(rule, result.driver, result.pool, result.device):
            yield rule.spec.taint, rule


def _tolerated_seconds(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> int | None:
    """Return for how many seconds a taint is tolerated; None: for ever. A toleration of every effect does not count."""
    limits: list[int] = []
    for toleration in tolerations:
        if toleration.effect == NO_EXECUTE and tolerates_device_taint(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            limits.append(max(0, toleration.toleration_seconds))
    return min(limits, default=0)


def pod_eviction(
    pod: Pod, find: Callable[[str], tuple[ResourceClaim, Eviction | None] | None], *, groups: bool = False
) -> Eviction | None:
    """Return when a Pod is evicted: the earliest time of its claims. None: never, as for a Pod without a node.

    find: returns an allocated claim by key with its eviction. A claim counts if it is reserved for the Pod.
    groups: a claim that is reserved for the PodGroup of the Pod counts, too.
    """
    if not pod.spec.node_name:
        return None
    evictions: list[Eviction] = []
    for entry in pod.spec.resource_claims:
        try:
            name = claim_name(pod, entry)
        except ClaimNotCreated:
            continue
        claim_with_eviction = find(f"{pod.metadata.namespace}/{name}") if name is not None else None
        if claim_with_eviction is None:
            continue
        claim, eviction = claim_with_eviction
        if eviction is None:
            continue
        is_own = (
            entry.resource_claim_name is not None
            or is_owned_by(claim, pod)
            or (groups and is_owned_by_group(claim, pod))
        )
        if is_own and (is_reserved_for(claim, pod) or (groups and is_reserved_for_group(claim, pod))):
            evictions.append(eviction)
    if not evictions:
        return None
    return Eviction(
        min(eviction.when for eviction in evictions), frozenset().union(*(eviction.rules for eviction in evictions))
    )
