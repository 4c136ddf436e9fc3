"""Calls of the pod recorder that tests share."""

from __future__ import annotations

from kubeloop.tracing.spans.pod_record import AttemptFacts, Phase

MS = 1_000_000


def request_pod(tracing, pod, clock, name="web-5f-abcde", link=None):
    """Create a pod as the ReplicaSet controller does. Returns the pod of the informer, and its traceparent."""
    traces = tracing.pods
    request = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", link=link)
    traceparent, annotations = request.traceparent, request.annotations
    clock.pass_ms(2)
    created = pod(name, annotations=annotations)
    traces.created(traceparent, created)
    clock.pass_ms(1)
    traces.observed(created)
    return created, traceparent


def attempt(tracing, pod, clock, number, facts):
    tracing.pods.attempt_started(pod, number)
    clock.pass_ms(1)
    reserve = Phase(clock.ns, "reserve", facts.node, clock.ns) if facts.result == "scheduled" else None
    tracing.pods.attempt_finished(pod, facts, reserve)


def bind(tracing, pod, clock, node, error=None):
    traces = tracing.pods
    traces.permit_started(pod)
    traces.permit_finished(pod)
    traces.pre_bind_started(pod)
    traces.pre_bind_finished(pod)
    traces.bind_started(pod, node)
    clock.pass_ms(3)
    traces.bind_finished(pod, error)
    clock.pass_ms(1)


def covered_share(trace):
    """Return the share of the root's time that its children cover."""
    root, covered_until, covered = trace.root, trace.root.start_ns, 0
    for span in sorted(trace.spans[1:], key=lambda span: span.start_ns):
        if span.parent_span_id == root.span_id and span.end_ns > covered_until:
            covered += span.end_ns - max(covered_until, span.start_ns)
            covered_until = span.end_ns
    return covered / (root.end_ns - root.start_ns) if root.end_ns > root.start_ns else 1.0


async def finished(tracing, exporter):
    await tracing.flush()
    tracing.open_pods.check()
    (trace,) = exporter.traces
    return trace


def trace_pod(tracing, pod, clock, name, milliseconds, node="n1"):
    traces = tracing.pods
    traceparent = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f").traceparent
    created = pod(name, traceparent=traceparent)
    traces.created(traceparent, created)
    traces.observed(created)
    traces.queued(created, "active", "PodAdd")
    traces.attempt_started(created, 1)
    facts = AttemptFacts(
        "unschedulable",
        nodes=3,
        rejections={"NodeAffinity": 3},
        filter_start_ns=clock.ns,
        filter_end_ns=clock.ns,
        score_start_ns=clock.ns,
        score_end_ns=clock.ns,
        best_nodes=("n1",),
        best_totals=(100,),
        message="0/3 nodes are available",
    )
    traces.attempt_finished(created, facts)
    clock.pass_ms(milliseconds)
    bound = pod(name, traceparent=traceparent, node=node)
    if node:
        traces.observed(bound)
    return bound
