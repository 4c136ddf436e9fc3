"""Trace documents of a ReplicaSet's pods."""

from __future__ import annotations

import pytest

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.pod_group_record import PlacementFacts
from support.traces.traced_groups import TracedGroup, pod_group


@pytest.fixture
def traced_group(tracing, pod, manual_clock):
    """Documents of two pods, and of their group: its first attempt fails, and its second is in progress."""
    group = TracedGroup(tracing, pod, manual_clock)
    tracing.groups.group_observed(pod_group())
    group.observe(0)
    manual_clock.pass_ms(10)
    group.observe(1)
    now_ns = manual_clock.ns
    placement = PlacementFacts("rack=a", now_ns, now_ns, 1, "1 of 2 pods fit")
    group.attempt("unschedulable", pods=2, message="0/1 placements are available", placements=[placement])
    manual_clock.pass_ms(20)
    tracing.groups.attempt_started("shop/train")
    manual_clock.pass_ms(5)
    memory = tracing.recent
    pods = [memory.find_pod_trace("shop", f"train-{number}") for number in (0, 1)]
    return [*pods, memory.find_linked_trace(pods[0]["spans"][0]["links"][0]["traceId"])]


@pytest.fixture
def traces_of_rollout(tracing, pod, manual_clock):
    """Documents of two pods, the second with a failed attempt, and of the reconcile that created them."""
    traces = tracing.pods
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f", "replicas")
    for name, attempts in (("web-5f-a", 1), ("web-5f-b", 2)):
        traceparent = traces.create_requested(
            namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", link=reconcile.traceparent
        ).traceparent
        started_ns = manual_clock.ns
        manual_clock.pass_ms(2)
        pending = pod(name, traceparent=traceparent)
        traces.observed(pending)
        manual_clock.pass_ms(1.5)
        traces.created(traceparent, pending)  # after the watch event
        reconcile.add_action(f"create pod {name}", start_ns=started_ns, link=traceparent)
        for attempt in range(1, attempts + 1):
            traces.queued(pending, "active", "PodAdd")
            manual_clock.pass_ms(0.25)
            traces.attempt_started(pending, attempt)
            started = manual_clock.ns
            manual_clock.pass_ms(0.123456)
            last = attempt == attempts
            facts = AttemptFacts(
                "scheduled" if last else "unschedulable",
                nodes=3,
                feasible=3 if last else 0,
                rejections=None if last else {"NodeAffinity": 3},
                filter_start_ns=started,
                filter_end_ns=manual_clock.ns,
                score_start_ns=manual_clock.ns if last else 0,
                score_end_ns=manual_clock.ns if last else 0,
                best_nodes=("n1", "n2"),
                best_totals=(100, 90),
                message="" if last else "0/3 nodes are available",
            )
            traces.attempt_finished(pending, facts)
            if not last:
                traces.queued(pending, "unschedulable", "ScheduleAttemptFailure")
                manual_clock.pass_ms(40)
        traces.bind_started(pending, "n1")
        manual_clock.pass_ms(3)
        traces.bind_finished(pending)
        manual_clock.pass_ms(1)
        traces.observed(pod(name, traceparent=traceparent, node="n1"))
    reconcile.finish(True)
    memory = tracing.recent
    return [memory.find_pod_trace("shop", "web-5f-a"), memory.find_pod_trace("shop", "web-5f-b"), *memory.reconciles()]
