"""Spans of a pod's trace form one tree that covers the whole time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.pod_record import MAX_FACTS, Phase
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.trace import Link
from support.traces.pod_traces import MS, attempt, bind, covered_share, finished, request_pod
from support.traces.span_tree import check_spans


async def test_bound_pod_has_complete_span_tree(tracing, pod, manual_clock, exporter):
    clock = manual_clock
    link = "00-11111111111111111111111111111111-2222222222222222-01"
    web, traceparent = request_pod(tracing, pod, clock, link=link)
    tracing.pods.queued(web, "active", "PodAdd")
    clock.pass_ms(5)
    now = clock.ns
    facts = AttemptFacts(
        "scheduled",
        nodes=5,
        feasible=2,
        rejections={"NodeResourcesFit": 3},
        best_nodes=("n1", "n2"),
        best_totals=(300, 250),
        filter_start_ns=now,
        filter_end_ns=now + MS // 2,
        score_start_ns=now + MS // 2,
        score_end_ns=now + MS,
        node="n1",
    )
    attempt(tracing, web, clock, 1, facts)
    bind(tracing, web, clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exporter)

    root = trace.root
    assert trace.trace_id == traceparent[3:35]
    assert root.span_id == traceparent[36:52]
    assert root.parent_span_id == ""
    assert root.links == (Link(link, "reconcile"),)
    assert root.error is None
    assert root.attributes == {
        "k8s.namespace.name": "shop",
        "k8s.pod.name": "web-5f-abcde",
        "k8s.pod.uid": web.metadata.uid,
        "k8s.replicaset.name": "web-5f",
        "k8s.deployment.name": "web",
        "k8s.node.name": "n1",
        "kubeloop.outcome": "bound",
        "kubeloop.attempts": 1,
    }
    milliseconds = {
        span.name: ((span.start_ns - root.start_ns) / MS, (span.end_ns - root.start_ns) / MS) for span in trace.spans
    }
    assert milliseconds == {
        "pod": (0, 13),
        "create": (0, 2),
        "watch delivery": (2, 3),
        "queue active": (3, 8),
        "scheduling attempt": (8, 9),
        "filter": (8, 8.5),
        "score": (8.5, 9),
        "reserve": (9, 9),
        "permit": (9, 9),
        "pre-bind": (9, 9),
        "bind": (9, 12),
        "confirmation": (12, 13),
    }
    by_name = {span.name: span for span in trace.spans}
    assert by_name["filter"].parent_span_id == by_name["scheduling attempt"].span_id
    assert by_name["filter"].attributes == {
        "kubeloop.nodes": 5,
        "kubeloop.feasible_nodes": 2,
        "kubeloop.rejected.NodeResourcesFit": 3,
    }
    assert by_name["score"].attributes["kubeloop.score.nodes"] == ["n1", "n2"]
    assert by_name["score"].attributes["kubeloop.score.totals"] == [300, 250]
    assert by_name["queue active"].attributes == {"kubeloop.reason": "PodAdd"}
    assert by_name["bind"].attributes["k8s.node.name"] == "n1"
    assert [*tracing.open_pods.all()] == []


async def test_attributes_of_plugins_are_those_of_the_attempt(tracing, pod, manual_clock, exporter):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    searched = {"kubeloop.devices.search_steps": 7, "kubeloop.devices.search_seconds": 0.5}
    attempt(
        tracing, web, manual_clock, 1, AttemptFacts("scheduled", nodes=1, feasible=1, node="n1", attributes=searched)
    )
    bind(tracing, web, manual_clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exporter)
    (span,) = (span for span in trace.spans if span.name == "scheduling attempt")
    assert searched.items() <= span.attributes.items()


async def test_failed_attempts_and_bindings_are_recorded(tracing, pod, manual_clock, exporter):
    clock = manual_clock
    web, traceparent = request_pod(tracing, pod, clock)
    for number in (1, 2):
        tracing.pods.queued(web, "active", "NodeAdd")
        attempt(tracing, web, clock, number, AttemptFacts("unschedulable", nodes=3, message="0/3 nodes"))
        tracing.pods.queued(web, "unschedulable", "NodeResourcesFit")
        clock.pass_ms(100)
    attempt(tracing, web, clock, 3, AttemptFacts("scheduled", nodes=3, feasible=1, node="n1"))
    bind(tracing, web, clock, "n1", error="409 conflict")
    tracing.pods.queued(web, "backoff", "binding failed")
    clock.pass_ms(50)
    attempt(tracing, web, clock, 4, AttemptFacts("scheduled", nodes=3, feasible=1, node="n2"))
    bind(tracing, web, clock, "n2")
    tracing.pods.observed(pod(traceparent=traceparent, node="n2"))
    trace = await finished(tracing, exporter)
    attempts = [span for span in trace.spans if span.name == "scheduling attempt"]
    assert [span.attributes["kubeloop.attempt"] for span in attempts] == [1, 2, 3, 4]
    assert [span.error for span in trace.spans if span.name == "bind"] == ["409 conflict", None]
    assert [span.error for span in attempts] == ["0/3 nodes", "0/3 nodes", None, None]
    woken = [span.attributes.get("kubeloop.woken_by") for span in trace.spans if span.name == "queue unschedulable"]
    assert woken == ["NodeAdd", None], "the second attempt starts without a recorded event"
    waits = [(span.name, (span.end_ns - span.start_ns) / MS) for span in trace.spans if span.name.startswith("queue")]
    assert ("queue unschedulable", 100) in waits
    assert ("queue backoff", 50) in waits
    assert trace.root.error is None


async def test_long_history_has_first_and_last_attempts(tracing, pod, manual_clock, exporter):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    for number in range(1, 2_001):
        tracing.pods.queued(web, "active", "NodeAdd")
        attempt(tracing, web, manual_clock, number, AttemptFacts("unschedulable", nodes=1))
    (record,) = tracing.open_pods.all()
    assert len(record.facts) <= MAX_FACTS
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    spans = (await finished(tracing, exporter)).spans
    numbers = {span.attributes.get("kubeloop.attempt") for span in spans}
    assert {1, 2000} <= numbers
    assert 1000 not in numbers
    assert "not recorded" in {span.name for span in spans}


CALLS = """create created failed observe bound delete queue start finish filter reserve permit permitted
bind bind-ok bind-no sweep restart"""


calls = st.sampled_from(CALLS.split())


@given(script=st.lists(st.tuples(calls, st.sampled_from([-5, 0, 0.1, 7, 12_000, 70_000])), max_size=40))
def test_any_order_of_calls_gives_one_nested_tree(script, make_tracing, make_clock, pod):
    clock = make_clock()
    finished = []

    def begin(seed):
        tracing = make_tracing(clock, seed=seed)
        tracing.open_pods.on_finished = finished.append
        return tracing

    tracing = begin(1)
    traceparent = ""
    web = pod()
    for number, (call, milliseconds) in enumerate(script):
        clock.pass_ms(milliseconds)  # a clock may be set back
        traces = tracing.pods
        if call == "create":
            request = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
            traceparent = request.traceparent
            web = pod(traceparent=traceparent)
        elif call == "created":
            traces.created(traceparent, web)
        elif call == "failed":
            traces.create_failed(traceparent, "no")
        elif call == "observe":
            traces.observed(web)
        elif call == "bound":
            traces.observed(pod(traceparent=traceparent, node="n1"))
        elif call == "delete":
            traces.deleted(web)
        elif call == "queue":
            traces.queued(web, "active", "x")
        elif call == "start":
            traces.attempt_started(web, number)
        elif call == "finish":
            traces.attempt_finished(web, AttemptFacts("error", message="m"))
        elif call == "filter":
            filtered = {"filter_start_ns": clock.ns - 3 * MS, "filter_end_ns": clock.ns + 3 * MS}
            scored = {"score_start_ns": clock.ns - 3 * MS, "score_end_ns": clock.ns + 3 * MS}
            traces.attempt_finished(web, AttemptFacts("scheduled", nodes=1, **filtered, **scored))
        elif call == "reserve":
            reserve = Phase(clock.ns - MS, "reserve", "n1", clock.ns)
            traces.attempt_finished(web, AttemptFacts("scheduled", nodes=1), reserve)
        elif call == "permit":
            traces.permit_started(web)
        elif call == "permitted":
            traces.permit_finished(web, "no")
        elif call == "bind":
            traces.bind_started(web, "n1")
        elif call == "bind-ok":
            traces.bind_finished(web)
        elif call == "bind-no":
            traces.bind_finished(web, "no")
        elif call == "sweep":
            tracing.open_pods.sweep()
        elif call == "restart":
            tracing = begin(number)
        tracing.open_pods.check()
    for record in (*finished, *tracing.open_pods.all()):
        trace = pod_trace(record, now_ns=clock.ns)
        check_spans(trace)
        assert trace == pod_trace(record, now_ns=clock.ns)
        assert covered_share(trace) >= 0.99


async def test_until_ready_adds_spans_for_conditions(make_tracing, pod, manual_clock, exporter):
    clock = manual_clock  # 12:00:00.400
    tracing = make_tracing(clock, exporter, until_ready=True)
    web, traceparent = request_pod(tracing, pod, clock)
    tracing.pods.bind_started(web, "n1")
    tracing.pods.bind_finished(web)
    clock.pass_ms(5)

    def shown(*conditions):
        since = dict.fromkeys(conditions, "2026-01-01T12:00:00Z")
        tracing.pods.observed(pod(traceparent=traceparent, node="n1", conditions=since))

    for milliseconds, conditions in (
        (0, ()),
        (100, ("PodReadyToStartContainers",)),
        (20, ("PodReadyToStartContainers", "Initialized")),
        (200, ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")),
    ):
        assert exporter.traces == []
        clock.pass_ms(milliseconds)
        shown(*conditions)
    trace = await finished(tracing, exporter)
    check_spans(trace)
    assert trace.root.attributes["kubeloop.outcome"] == "ready"
    assert trace.root.error is None
    starts = [(s.name, (s.end_ns - s.start_ns) / MS, s.attributes["kubeloop.condition"]) for s in trace.spans[-4:]]
    assert starts == [
        ("start sandbox", 100, "PodReadyToStartContainers"),
        ("start init", 20, "Initialized"),
        ("start containers", 200, "ContainersReady"),
        ("start readiness", 0, "Ready"),
    ]
    assert covered_share(trace) >= 0.99


@pytest.mark.parametrize(
    ("phase", "outcome", "error"), [("Succeeded", "completed", None), ("Failed", "failed", "containers failed")]
)
async def test_until_ready_ends_with_pod_that_ends_before_ready(
    make_tracing, pod, manual_clock, exporter, phase, outcome, error
):
    tracing = make_tracing(manual_clock, exporter, until_ready=True)
    _, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    manual_clock.pass_ms(300)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1", phase=phase))
    trace = await finished(tracing, exporter)
    assert (trace.root.attributes["kubeloop.outcome"], trace.root.error) == (outcome, error)
    assert covered_share(trace) >= 0.99


async def test_until_ready_reports_deletion_of_bound_pod(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter, until_ready=True)
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    manual_clock.pass_ms(300)
    tracing.pods.deleted(web)
    trace = await finished(tracing, exporter)
    assert trace.root.error == "deleted before it was ready"
    assert trace.spans[-1].name == "start sandbox"


async def test_terminating_pending_pod_has_terminating_span(tracing, pod, manual_clock, exporter):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.queued(web, "unschedulable", "no room")
    manual_clock.pass_ms(10)
    going = pod(traceparent=traceparent, deleted="2026-01-01T12:00:05Z")
    tracing.pods.observed(going)
    tracing.pods.observed(going)
    manual_clock.pass_ms(30)
    tracing.pods.deleted(going)
    trace = await finished(tracing, exporter)
    lengths = [(span.name, (span.end_ns - span.start_ns) / MS) for span in trace.spans[-2:]]
    assert lengths == [("queue unschedulable", 10), ("terminating", 30)]
