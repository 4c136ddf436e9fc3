"""Settings of the scheduling queue, and what receives its events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.pod_requests import DEFAULT_REQUEST_RULES, RequestRules
from kubeloop.scheduler.metrics import NO_METRICS, SchedulerMetrics


class QueueSettings(msgspec.Struct, frozen=True):
    """initial_backoff_seconds, max_backoff_seconds: see BackoffQueue. max_in_unschedulable_seconds: a pod is retried
    after this time although no event made it schedulable. pops_from_backoff: the feature gate SchedulerPopFromBackoffQ,
    by which a pod is popped before its backoff has expired if no pod is active; PreEnqueue then runs before the
    backoff instead of after it. pod_groups: the feature gate GenericWorkload, by which a member of a pod group is
    retried after a backoff whatever events there were, as hints concern the pod and not its group."""

    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    max_in_unschedulable_seconds: float = 300.0
    pops_from_backoff: bool = True
    pod_groups: bool = False
    request_rules: RequestRules = DEFAULT_REQUEST_RULES


def _ignore(*_: object) -> None: ...


class QueueObserver(msgspec.Struct, frozen=True):
    """Receives what happens in the queue.

    duration_ns: the clock for durations of queueing hints, as the queue's own
    may stand still within one turn of the event loop. queued(pod, queue, event): the pod enters "active", "backoff",
    "unschedulable" or "gated". plugin_failed(pod, message): a PreEnqueue plugin raised.
    """

    metrics: SchedulerMetrics = NO_METRICS
    duration_ns: Callable[[], int] = int
    queued: Callable[[Pod, str, str], None] = _ignore
    plugin_failed: Callable[[Pod, str], None] = _ignore
