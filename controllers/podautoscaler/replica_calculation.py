"""Replicas that one metric of a HorizontalPodAutoscaler proposes. Pure functions.

Amounts are thousandths (millicores; memory in thousandths of a byte). Source: replica_calculator.go and
metrics/utilization.go in pkg/controller/podautoscaler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from kubeloop.kube.objects import pod_resources
from kubeloop.kube.objects.api_types import Pod, to_json
from kubeloop.kube.objects.object_fields import condition_of, is_ready
from kubeloop.kube.values.quantities import milli_value
from kubeloop.kube.values.times import time_plus

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


class MetricError(Exception):
    """A metric cannot be computed; the text is Kubernetes'."""


class PodMetric(NamedTuple):
    """Usage of one pod in the `window` (seconds) that ends at `timestamp`."""

    value: int
    timestamp: datetime
    window: float


class Tolerances(NamedTuple):
    """Deviations of the usage ratio from 1 that cause no scaling."""

    down: float
    up: float

    def include(self, usage_ratio: float) -> bool:
        return 1.0 - self.down <= usage_ratio <= 1.0 + self.up


class ReadinessRules(NamedTuple):
    """When a CPU sample counts: --horizontal-pod-autoscaler-cpu-initialization-period and -initial-readiness-delay, in
    seconds."""

    cpu_initialization: float
    initial_readiness_delay: float


class PodsByReadiness(NamedTuple):
    """Names of pods by how their metrics count."""

    ready_count: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


class Proposal(NamedTuple):
    """Replicas that a metric proposes, its current value, and for utilization targets the current percentage."""

    replicas: int
    value: int
    utilization: int | None = None


def group_pods(
    pods: Iterable[Pod], metrics: Mapping[str, PodMetric], resource: str, rules: ReadinessRules, now: datetime
) -> PodsByReadiness:
    """Group pods; resource: "" for metrics that are not a resource."""
    ready_count = 0
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        name, phase = pod.metadata.name, pod.status.phase
        if pod.metadata.deletion_timestamp is not None or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif name not in metrics:
            missing.add(name)
        elif resource == "cpu" and _is_unready(pod, metrics[name], rules, now):
            unready.add(name)
        else:
            ready_count += 1
    return PodsByReadiness(ready_count, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_unready(pod: Pod, metric: PodMetric, rules: ReadinessRules, now: datetime) -> bool:
    """Return True if the CPU sample of a pod is left out, because it may be that of the start."""
    condition, started = condition_of(pod.status.conditions, "Ready"), pod.status.start_time
    if condition is None or started is None:
        return True
    is_false, changed = condition.status == "False", condition.last_transition_time
    if time_plus(started, rules.cpu_initialization) > now:
        # the sample must lie entirely after the pod became ready
        return is_false or (changed is not None and metric.timestamp < time_plus(changed, metric.window))
    # a pod that was never ready
    return is_false and (changed is None or time_plus(started, rules.initial_readiness_delay) > changed)


def pod_requests(pods: Iterable[Pod], resource: str, container: str, *, pod_level: bool) -> dict[str, int]:
    """Return the request of each pod, or of its `container` if that is not "". Raises MetricError.

    pod_level: value of the feature gate PodLevelResources.
    """
    return {pod.metadata.name: _pod_request(pod, resource, container, pod_level=pod_level) for pod in pods}


def _pod_request(pod: Pod, resource: str, container: str, *, pod_level: bool) -> int:
    spec, pod_name = pod.spec, pod.metadata.name
    at_pod_level = spec.resources.requests if pod_level and not container and spec.resources is not None else {}
    if any(map(pod_resources.is_pod_level, at_pod_level)):
        requests = pod_resources.pod_requests(to_json(spec))
        if resource not in requests:
            raise MetricError(f"missing pod-level request for {resource} in Pod {pod_name}")
        return milli_value(requests[resource])
    sidecars = [init for init in spec.init_containers if init.restart_policy == "Always"]
    counted = [entry for entry in (*spec.containers, *sidecars) if container in ("", entry.name)]
    if container and not counted:
        raise MetricError(f"container {container} not found in Pod {pod_name}")
    for entry in counted:
        if resource not in entry.resources.requests:
            raise MetricError(f"missing request for {resource} in container {entry.name} of Pod {pod_name}")
    return sum(milli_value(entry.resources.requests[resource]) for entry in counted)


def utilization_proposal(
    current: int,
    target_percent: int,
    values: dict[str, int],
    requests: Mapping[str, int],
    groups: PodsByReadiness,
    tolerances: Tolerances,
) -> Proposal:
    """Return the replicas for a utilization target. values: of the pods that count. Raises MetricError."""

    def ratio(amounts: Mapping[str, int]) -> float:
        return _utilization(amounts, requests)[0] / target_percent

    utilization, average = _utilization(values, requests)
    fallback = max(100, target_percent)
    replicas = _replicas(current, values, groups, tolerances, ratio, lambda pod: requests[pod] * fallback // 100)
    return Proposal(replicas, average, utilization)


def _utilization(values: Mapping[str, int], requests: Mapping[str, int]) -> tuple[int, int]:
    """Return the percentage of the requests that is used, and the average usage. Raises MetricError."""
    known = [name for name in values if name in requests]
    requested = sum(requests[name] for name in known)
    if not requested:
        raise MetricError("no metrics returned matched known pods")
    used = sum(values[name] for name in known)
    return used * 100 // requested, used // len(known)


def average_value_proposal(
    current: int, target: int, values: dict[str, int], groups: PodsByReadiness, tolerances: Tolerances
) -> Proposal:
    """Return the replicas for a target of the average value per pod. values: of the pods that count."""

    def average(amounts: Mapping[str, int]) -> int:
        return sum(amounts.values()) // len(amounts)

    replicas = _replicas(
        current, values, groups, tolerances, lambda amounts: average(amounts) / target, lambda _pod: target
    )
    return Proposal(replicas, average(values))


def counted_values(metrics: Mapping[str, PodMetric], groups: PodsByReadiness) -> dict[str, int]:
    """Return the values of the pods that count. Raises MetricError if there are none."""
    left_out = groups.ignored | groups.unready
    values = {name: metric.value for name, metric in metrics.items() if name not in left_out}
    if not values:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return values


def _replicas(
    current: int,
    values: dict[str, int],
    groups: PodsByReadiness,
    tolerances: Tolerances,
    ratio: Callable[[Mapping[str, int]], float],
    full_use: Callable[[str], int],
) -> int:
    """Return the replicas that bring the usage ratio to 1.

    Pods without metrics, and on a scale-up unready pods, count so that they dampen the change; they never reverse it.
    full_use: what a pod without metrics counts as on a scale-down.
    """
    usage_ratio = ratio(values)
    unready_dampen = bool(groups.unready) and usage_ratio > 1.0
    if not unready_dampen and not groups.missing:
        return current if tolerances.include(usage_ratio) else math.ceil(usage_ratio * groups.ready_count)
    values = dict(values)
    if usage_ratio < 1.0:
        values.update((pod, full_use(pod)) for pod in groups.missing)
    elif usage_ratio > 1.0:
        values.update(dict.fromkeys(groups.missing, 0))
    if unready_dampen:
        values.update(dict.fromkeys(groups.unready, 0))
    new_ratio = ratio(values)
    reverses = (usage_ratio < 1.0 < new_ratio) or (new_ratio < 1.0 < usage_ratio)
    if tolerances.include(new_ratio) or reverses:
        return current
    replicas = math.ceil(new_ratio * len(values))
    return current if (new_ratio < 1.0 and replicas > current) or (new_ratio > 1.0 and replicas < current) else replicas


def value_proposal(current: int, target: int, usage: int, pods: Sequence[Pod], tolerances: Tolerances) -> Proposal:
    """Return the replicas for a target of one value that is shared by all pods. Raises MetricError."""
    ratio = usage / target
    if current == 0:
        return Proposal(_int32(ratio), usage)
    if tolerances.include(ratio):
        return Proposal(current, usage)
    if not pods:
        raise MetricError(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        )
    return Proposal(_int32(ratio * sum(pod.status.phase == "Running" and is_ready(pod) for pod in pods)), usage)


def value_per_pod_proposal(status_replicas: int, target: int, usage: int, tolerances: Tolerances) -> Proposal:
    """Return the replicas for a target per pod of one value that is shared by all pods."""
    if status_replicas == 0:  # upstream divides by zero: any usage is above the target, and has no average
        return Proposal(_int32(usage / target), 0)
    within = tolerances.include(usage / (target * status_replicas))
    return Proposal(status_replicas if within else _int32(usage / target), -(-usage // status_replicas))


def _int32(replicas: float) -> int:
    return min(math.ceil(replicas), MAX_INT32)
