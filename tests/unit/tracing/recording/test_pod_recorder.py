"""One trace per pod: one tree, complete and nested in time, whatever happened to the pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.recording import pod_recorder
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, NoopRecorder
from kubeloop.tracing.sampling.samplers import TailRules
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_record import MAX_FACTS
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.trace import Link

MS = 1_000_000


def request_pod(tracing, pod, clock, name="web-5f-abcde", link=None):
    """Create a pod as the ReplicaSet controller does; the pod as the informer then shows it, and its traceparent."""
    traces = tracing.pods
    traceparent = traces.new_traceparent()
    annotations = traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=clock.ns, link=link
    )
    clock.pass_ms(2)
    created = pod(name, annotations=annotations)
    traces.created(traceparent, created, clock.ns)
    clock.pass_ms(1)
    traces.observed(created)
    return created, traceparent


def attempt(tracing, pod, clock, number, facts):
    tracing.pods.attempt_started(pod, number)
    clock.pass_ms(1)
    tracing.pods.attempt_finished(pod, facts)


def bind(tracing, pod, clock, node, error=None):
    traces = tracing.pods
    traces.reserved(pod, node, clock.ns)
    traces.permit_started(pod)
    traces.permit_finished(pod)
    traces.pre_bind_started(pod)
    traces.pre_bind_finished(pod)
    traces.bind_started(pod, node)
    clock.pass_ms(3)
    traces.bind_finished(pod, error)
    clock.pass_ms(1)


def explained_share(trace):
    """How much of the root's time its children cover."""
    root, until, covered = trace.root, trace.root.start_ns, 0
    for span in sorted(trace.spans[1:], key=lambda span: span.start_ns):
        if span.parent_span_id == root.span_id and span.end_ns > until:
            covered += span.end_ns - max(until, span.start_ns)
            until = span.end_ns
    return covered / (root.end_ns - root.start_ns) if root.end_ns > root.start_ns else 1.0


async def finished(tracing, exported):
    await tracing.flush()
    tracing.pods.check()
    (trace,) = exported.traces
    return trace


async def test_a_pod_that_is_bound_at_once_has_the_whole_tree(tracing, pod, hand_clock, exported):
    clock = hand_clock
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
        scores=[("n1", 300), ("n2", 250)],
        filter_ns=(now, now + MS // 2),
        score_ns=(now + MS // 2, now + MS),
        node="n1",
    )
    attempt(tracing, web, clock, 1, facts)
    bind(tracing, web, clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exported)

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
    assert [*tracing.pods.open_records()] == []


async def test_failed_attempts_and_a_failed_binding_are_part_of_the_story(tracing, pod, hand_clock, exported):
    clock = hand_clock
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
    trace = await finished(tracing, exported)
    attempts = [span for span in trace.spans if span.name == "scheduling attempt"]
    assert [span.attributes["kubeloop.attempt"] for span in attempts] == [1, 2, 3, 4]
    assert [span.error for span in trace.spans if span.name == "bind"] == ["409 conflict", None]
    assert [span.error for span in attempts] == ["0/3 nodes", "0/3 nodes", None, None]
    woken = [span.attributes.get("kubeloop.woken_by") for span in trace.spans if span.name == "queue unschedulable"]
    assert woken == ["NodeAdd", None], "the second time an attempt begins without an event that we heard of"
    waits = [(span.name, (span.end_ns - span.start_ns) / MS) for span in trace.spans if span.name.startswith("queue")]
    assert ("queue unschedulable", 100) in waits
    assert ("queue backoff", 50) in waits
    assert trace.root.error is None


async def test_a_pod_deleted_while_pending_ends_its_trace_with_an_error(tracing, pod, hand_clock, exported):
    web, _ = request_pod(tracing, pod, hand_clock)
    tracing.pods.queued(web, "unschedulable", "no room")
    hand_clock.pass_ms(10)
    tracing.pods.deleted(web)
    tracing.pods.deleted(web)
    trace = await finished(tracing, exported)
    assert trace.root.error == "deleted before it was bound"
    assert trace.root.attributes["kubeloop.outcome"] == "deleted"
    waits = {span.name: span for span in trace.spans}
    assert waits["queue unschedulable"].end_ns == trace.root.end_ns


async def test_the_watch_may_be_faster_than_the_answer_to_the_create(tracing, pod, hand_clock, exported):
    traces, clock = tracing.pods, hand_clock
    traceparent = traces.new_traceparent()
    traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=clock.ns
    )
    clock.pass_ms(1)
    web = pod(traceparent=traceparent)
    traces.observed(web)
    clock.pass_ms(1)
    traces.created(traceparent, web, clock.ns)
    clock.pass_ms(1)
    traces.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exported)
    assert [span.name for span in trace.spans[1:]] == ["create", "watch delivery", "event loop"]


async def test_the_watch_may_be_faster_than_the_answer_to_the_binding(tracing, pod, hand_clock, exported):
    web, traceparent = request_pod(tracing, pod, hand_clock)
    tracing.pods.bind_started(web, "n1")
    hand_clock.pass_ms(1)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    await tracing.flush()
    assert exported.traces == []
    hand_clock.pass_ms(1)
    tracing.pods.bind_finished(web)
    trace = await finished(tracing, exported)
    assert {"bind", "confirmation"} <= {span.name for span in trace.spans}


async def test_a_binding_that_is_never_answered_does_not_keep_the_trace_open(tracing, pod, hand_clock, exported):
    web, traceparent = request_pod(tracing, pod, hand_clock)
    tracing.pods.bind_started(web, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    hand_clock.pass_ms(61_000)
    trace = await finished(tracing, exported)
    assert trace.root.attributes["kubeloop.outcome"] == "bound"
    assert (trace.root.end_ns - trace.root.start_ns) / MS < 100


async def test_after_a_restart_the_trace_goes_on_under_the_same_ids(make_tracing, pod, hand_clock, exported):
    before = make_tracing(hand_clock, seed=1)
    web, traceparent = request_pod(before, pod, hand_clock)
    after = make_tracing(hand_clock, exported, seed=2)
    hand_clock.pass_ms(5000)
    after.pods.observed(web)
    assert after.pods.traceparent_of(web) == traceparent
    after.pods.queued(web, "active", "PodAdd")
    attempt(after, web, hand_clock, 1, AttemptFacts("scheduled", nodes=1, feasible=1, node="n1"))
    bind(after, web, hand_clock, "n1")
    after.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(after, exported)
    assert (trace.trace_id, trace.root.span_id) == (traceparent[3:35], traceparent[36:52])
    assert trace.root.start_ns == hand_clock.ns - round(5008 * MS), "the process before left it on the pod"
    before_us = next(span for span in trace.spans if span.name == "not followed")
    assert (before_us.end_ns - before_us.start_ns) / MS == pytest.approx(5003)
    assert trace.root.attributes["kubeloop.continued"] is True
    assert after.trace_id(web) == traceparent[3:35]


async def test_a_pod_of_somebody_else_gets_a_trace_of_its_own(tracing, pod, hand_clock, exported):
    bare = pod("bare", owner="")
    tracing.pods.observed(bare)
    traceparent = tracing.pods.traceparent_of(bare)
    assert traceparent.endswith("-01")
    tracing.pods.observed(pod("bare", owner="", node="n1"))
    trace = await finished(tracing, exported)
    assert trace.trace_id == traceparent[3:35]
    assert trace.root.parent_span_id == ""
    assert "kubeloop.continued" not in trace.root.attributes
    assert tracing.trace_id(pod("bare", owner="", node="n1")) == trace.trace_id


async def test_the_span_of_a_creator_that_traces_is_the_parent_of_ours(tracing, pod, hand_clock, exported):
    theirs = "00-11111111111111111111111111111111-2222222222222222-01"
    tracing.pods.observed(pod("bare", owner="", traceparent=theirs))
    tracing.pods.observed(pod("bare", owner="", traceparent=theirs, node="n1"))
    trace = await finished(tracing, exported)
    assert trace.trace_id == "1" * 32
    assert trace.root.parent_span_id == "2" * 16
    assert trace.root.span_id != "2" * 16


async def test_an_unsampled_pod_leaves_no_trace(make_tracing, pod, hand_clock, exported):
    tracing = make_tracing(hand_clock, exported, environ={"OTEL_TRACES_SAMPLER": "always_off"})
    web, traceparent = request_pod(tracing, pod, hand_clock)
    assert traceparent == ""
    assert tracing.pods.traceparent_of(web) == ""
    assert web.metadata.annotations == {}
    tracing.pods.queued(web, "active", "")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    tracing.pods.observed(pod("bare", owner=""))
    await tracing.flush()
    assert exported.traces == []
    assert [*tracing.pods.open_records()] == []


async def test_pods_that_are_bound_or_over_when_first_seen_are_not_followed(tracing, pod):
    tracing.pods.observed(pod("a", node="n1"))
    tracing.pods.observed(pod("b", phase="Succeeded"))
    assert [*tracing.pods.open_records()] == []


async def test_a_create_that_failed_ends_the_trace_once_it_is_sure(tracing, pod, hand_clock, exported):
    traces = tracing.pods
    traceparent = traces.new_traceparent()
    traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=hand_clock.ns
    )
    hand_clock.pass_ms(1)
    traces.create_failed(traceparent, "403 quota", hand_clock.ns)
    await tracing.flush()
    assert exported.traces == []
    hand_clock.pass_ms(11_000)
    trace = await finished(tracing, exported)
    assert [span.name for span in trace.spans] == ["pod", "create"]
    assert trace.root.error == "403 quota"
    assert [*traces.open_records()] == []


async def test_a_create_whose_answer_was_lost_goes_on_when_the_pod_is_seen(tracing, pod, hand_clock, exported):
    traces = tracing.pods
    traceparent = traces.new_traceparent()
    traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=hand_clock.ns
    )
    traces.create_failed(traceparent, "connection lost", hand_clock.ns)
    traces.observed(pod(traceparent=traceparent))
    hand_clock.pass_ms(20_000)
    await tracing.flush()
    traces.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exported)
    assert trace.root.error is None
    assert trace.spans[1].error == "connection lost"


async def test_the_number_of_open_records_is_bounded(make_tracing, pod, hand_clock, exported, caplog):
    tracing = make_tracing(hand_clock, exported, max_open=10)
    for number in range(25):
        tracing.pods.observed(pod(f"p{number}"))
    assert len([*tracing.pods.open_records()]) == 10
    await tracing.flush()
    assert exported.traces == [], "whoever is seen again gets his trace then, and there must be one only"
    (told,) = caplog.records
    assert "too many pending pods" in told.getMessage()


async def test_a_pod_that_waits_for_ever_keeps_its_first_and_last_attempts(tracing, pod, hand_clock, exported):
    web, traceparent = request_pod(tracing, pod, hand_clock)
    for number in range(1, 2_001):
        tracing.pods.queued(web, "active", "NodeAdd")
        attempt(tracing, web, hand_clock, number, AttemptFacts("unschedulable", nodes=1))
    (record,) = tracing.pods.open_records()
    assert len(record.facts) <= MAX_FACTS
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    spans = (await finished(tracing, exported)).spans
    numbers = {span.attributes.get("kubeloop.attempt") for span in spans}
    assert {1, 2000} <= numbers
    assert 1000 not in numbers
    assert "not recorded" in {span.name for span in spans}


def test_no_traces_is_silent_and_takes_every_call(pod):
    none = NoopRecorder()
    web = pod()
    assert none.new_traceparent() == ""
    none.create_requested("", namespace="shop", owner_kind="ReplicaSet", owner_name="x", start_ns=0)
    none.created("", web, 1)
    none.create_failed("", "no", 1)
    none.observed(web)
    none.attempt_started(web, 1)
    none.attempt_finished(web, AttemptFacts("scheduled"))
    none.bind_started(web, "n")
    none.bind_finished(web)
    none.deleted(web)
    assert none.traceparent_of(web) == ""
    assert none.reconcile("deployment", "shop/web").traceparent == ""
    assert [*none.open_records()] == []


CALLS = """create created failed observe bound delete queue start finish filter reserve permit permitted
bind bind-ok bind-no sweep restart"""
calls = st.sampled_from(CALLS.split())


@given(script=st.lists(st.tuples(calls, st.sampled_from([-5, 0, 0.1, 7, 12_000, 70_000])), max_size=40))
def test_whatever_is_called_in_whatever_order_every_trace_is_one_nested_tree(script, make_tracing, make_clock, pod):
    clock = make_clock()
    finished = []

    def begin(seed):
        tracing = make_tracing(clock, seed=seed)
        tracing.pods._finished = finished.append
        return tracing.pods

    traces = begin(1)
    traceparent = traces.new_traceparent()
    web = pod(traceparent=traceparent)
    for number, (call, milliseconds) in enumerate(script):
        clock.pass_ms(milliseconds)  # a clock may be set back
        if call == "create":
            traces.create_requested(
                traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=clock.ns
            )
        elif call == "created":
            traces.created(traceparent, web, clock.ns)
        elif call == "failed":
            traces.create_failed(traceparent, "no", clock.ns)
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
            span = (clock.ns - 3 * MS, clock.ns + 3 * MS)
            traces.attempt_finished(web, AttemptFacts("scheduled", nodes=1, filter_ns=span, score_ns=span))
        elif call == "reserve":
            traces.reserved(web, "n1", clock.ns - MS)
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
            traces.sweep()
        elif call == "restart":
            traces = begin(number)
        traces.check()
    for record in (*finished, *traces.open_records()):
        trace = pod_trace(record, now_ns=clock.ns)
        trace.check()
        assert trace == pod_trace(record, now_ns=clock.ns)
        assert explained_share(trace) >= 0.99


async def test_until_ready_the_trace_goes_on_as_the_conditions_tell(make_tracing, pod, hand_clock, exported):
    clock = hand_clock  # 12:00:00.400
    tracing = make_tracing(clock, exported, until_ready=True)
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
        assert exported.traces == []
        clock.pass_ms(milliseconds)
        shown(*conditions)
    trace = await finished(tracing, exported)
    trace.check()
    assert trace.root.attributes["kubeloop.outcome"] == "ready"
    assert trace.root.error is None
    starts = [(s.name, (s.end_ns - s.start_ns) / MS, s.attributes["kubeloop.condition"]) for s in trace.spans[-4:]]
    assert starts == [
        ("start sandbox", 100, "PodReadyToStartContainers"),
        ("start init", 20, "Initialized"),
        ("start containers", 200, "ContainersReady"),
        ("start readiness", 0, "Ready"),
    ]
    assert explained_share(trace) >= 0.99


@pytest.mark.parametrize(
    ("phase", "outcome", "error"), [("Succeeded", "completed", None), ("Failed", "failed", "containers failed")]
)
async def test_until_ready_a_pod_that_ends_before_ends_its_trace(
    make_tracing, pod, hand_clock, exported, phase, outcome, error
):
    tracing = make_tracing(hand_clock, exported, until_ready=True)
    _, traceparent = request_pod(tracing, pod, hand_clock)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    hand_clock.pass_ms(300)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1", phase=phase))
    trace = await finished(tracing, exported)
    assert (trace.root.attributes["kubeloop.outcome"], trace.root.error) == (outcome, error)
    assert explained_share(trace) >= 0.99


async def test_until_ready_a_pod_deleted_on_its_node_is_told_so(make_tracing, pod, hand_clock, exported):
    tracing = make_tracing(hand_clock, exported, until_ready=True)
    web, traceparent = request_pod(tracing, pod, hand_clock)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    hand_clock.pass_ms(300)
    tracing.pods.deleted(web)
    trace = await finished(tracing, exported)
    assert trace.root.error == "deleted before it was ready"
    assert trace.spans[-1].name == "start sandbox"


async def test_a_template_with_a_trace_of_its_own_is_the_parent_of_its_pods(tracing, pod, hand_clock, exported):
    theirs = "00-11111111111111111111111111111111-2222222222222222-01"
    traceparent = tracing.pods.new_traceparent(theirs)
    annotations = tracing.pods.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="x", start_ns=hand_clock.ns, inherited=theirs
    )
    assert annotations["tracing.k8s.io/traceparent"] == traceparent
    web = pod(annotations=annotations)
    tracing.pods.created(traceparent, web, hand_clock.ns)
    tracing.pods.observed(pod(annotations=annotations, node="n1"))
    trace = await finished(tracing, exported)
    assert (trace.trace_id, trace.root.parent_span_id) == ("1" * 32, "2" * 16)


async def test_a_restart_remembers_whose_child_the_pod_is_and_which_reconcile_made_it(
    make_tracing, pod, hand_clock, exported
):
    theirs = "00-11111111111111111111111111111111-2222222222222222-01"
    link = "00-33333333333333333333333333333333-4444444444444444-01"
    before = make_tracing(hand_clock)
    annotations = before.pods.create_requested(
        before.pods.new_traceparent(theirs),
        namespace="shop",
        owner_kind="ReplicaSet",
        owner_name="x",
        start_ns=hand_clock.ns,
        link=link,
        inherited=theirs,
    )
    after = make_tracing(hand_clock, exported, seed=2)
    after.pods.observed(pod(annotations=annotations))
    after.pods.observed(pod(annotations=annotations, node="n1"))
    trace = await finished(after, exported)
    assert (trace.trace_id, trace.root.parent_span_id) == ("1" * 32, "2" * 16)
    assert trace.root.links == (Link(link, "reconcile"),)


async def test_pods_that_this_process_neither_creates_nor_schedules_are_not_its_to_trace(tracing, pod):
    tracing.pods.limit_scope(schedules=lambda name: name == "mine", creators=frozenset())
    tracing.pods.observed(pod("theirs"))
    tracing.pods.observed(pod("ours", scheduler="mine"))
    assert [record.name for record in tracing.pods.open_records()] == ["ours"]


async def test_a_creator_without_a_scheduler_ends_the_trace_and_a_scheduler_elsewhere_adds_to_it(
    make_tracing, pod, hand_clock, make_exported
):
    creating, scheduling = make_exported(), make_exported()
    creator = make_tracing(hand_clock, creating, seed=1)
    creator.pods.limit_scope(schedules=lambda name: False, creators=frozenset({"ReplicaSet"}))
    scheduler = make_tracing(hand_clock, scheduling, seed=2)
    scheduler.pods.limit_scope(schedules=lambda name: True, creators=frozenset())
    traceparent = creator.pods.new_traceparent()
    annotations = creator.pods.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=hand_clock.ns
    )
    web = pod(annotations=annotations)
    creator.pods.created(traceparent, web, hand_clock.ns)
    for tracing in (creator, scheduler):
        tracing.pods.observed(web)
    hand_clock.pass_ms(50)
    for tracing in (creator, scheduler):
        tracing.pods.observed(pod(annotations=annotations, node="n1"))
    whole, part = await finished(creator, creating), await finished(scheduler, scheduling)
    assert whole.root.span_id == traceparent[36:52]
    assert "other scheduler" in {span.name for span in whole.spans}
    assert (part.trace_id, part.root.parent_span_id) == (whole.trace_id, whole.root.span_id)
    assert not {span.span_id for span in whole.spans} & {span.span_id for span in part.spans}


async def test_a_standby_exports_nothing_and_says_what_it_did_not_see_when_it_leads(tracing, pod, hand_clock, exported):
    tracing.is_leader = False
    tracing.pods.observed(pod("done"))
    waiting = pod("waiting")
    tracing.pods.observed(waiting)
    tracing.pods.queued(waiting, "active", "PodAdd")
    tracing.pods.observed(pod("done", node="n1"))
    hand_clock.pass_ms(100)
    await tracing.flush()
    assert exported.traces == []
    tracing.start_leading()
    hand_clock.pass_ms(10)
    attempt(tracing, waiting, hand_clock, 1, AttemptFacts("scheduled", node="n1"))
    tracing.pods.observed(pod("waiting", node="n1"))
    trace = await finished(tracing, exported)
    lengths = {span.name: (span.end_ns - span.start_ns) / MS for span in trace.spans}
    assert lengths["not followed"] == 100
    assert lengths["queue active"] == 10


async def test_a_pod_that_terminates_while_it_is_pending_says_what_it_waits_for(tracing, pod, hand_clock, exported):
    web, traceparent = request_pod(tracing, pod, hand_clock)
    tracing.pods.queued(web, "unschedulable", "no room")
    hand_clock.pass_ms(10)
    going = pod(traceparent=traceparent, deleted="2026-01-01T12:00:05Z")
    tracing.pods.observed(going)
    tracing.pods.observed(going)
    hand_clock.pass_ms(30)
    tracing.pods.deleted(going)
    trace = await finished(tracing, exported)
    lengths = [(span.name, (span.end_ns - span.start_ns) / MS) for span in trace.spans[-2:]]
    assert lengths == [("queue unschedulable", 10), ("terminating", 30)]


@pytest.mark.parametrize(
    ("rules", "tail_rule"),
    [
        ({}, None),
        ({"failed": True}, "failed"),
        ({"preempted": True}, "preempted"),
        ({"slower_than_seconds": 0.05}, "slower-than=0.05s"),
        ({"slower_than_seconds": 5.0}, None),
    ],
)
async def test_tail_rules_keep_what_the_sampler_left_out(make_tracing, pod, hand_clock, exported, rules, tail_rule):
    tracing = make_tracing(
        hand_clock, exported, environ={"OTEL_TRACES_SAMPLER": "always_off"}, tail_rules=TailRules(**rules)
    )
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    web, traceparent = request_pod(tracing, pod, hand_clock, link=reconcile.traceparent)
    reconcile.finish(changed=True)
    assert traceparent.endswith("-00") if rules else traceparent == ""
    assert tracing.trace_id(web) == ""
    facts = AttemptFacts("unschedulable", nodes=1, nominated_node="n1", victims=2)
    attempt(tracing, web, hand_clock, 1, facts)
    hand_clock.pass_ms(100)
    annotations = web.metadata.annotations
    tracing.pods.observed(pod(annotations=annotations, node="n1"))
    calm = pod("calm", owner="")
    tracing.pods.observed(calm)
    tracing.pods.observed(pod("calm", owner="", node="n1"))
    await tracing.flush()
    kept = [trace.root.attributes.get("kubeloop.kept_by") for trace in exported.traces if trace.root.name == "pod"]
    assert kept == ([tail_rule] if tail_rule else [])
    reconciles = [trace for trace in exported.traces if trace.root.name == "reconcile replicaset"]
    assert len(reconciles) == len(kept), "a pod that is kept keeps the reconcile that it is linked to"
    assert (tracing.trace_id(web) != "") is bool(tail_rule)


async def test_with_the_sampler_off_a_pod_of_somebody_who_traces_is_traced_as_parentbased_says(
    make_tracing, pod, hand_clock, exported
):
    tracing = make_tracing(hand_clock, exported, environ={"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
    theirs = "00-11111111111111111111111111111111-2222222222222222-01"
    tracing.pods.observed(pod("a", owner="", traceparent=theirs))
    tracing.pods.observed(pod("b", owner=""))
    assert [record.name for record in tracing.pods.open_records()] == ["a"]


def test_the_notes_of_very_many_pods_are_bounded_together(make_tracing, pod, hand_clock, monkeypatch):
    monkeypatch.setattr(pod_recorder, "MAX_TOTAL_FACTS", 1_000)
    tracing = make_tracing(hand_clock)
    pods = [pod(f"p{number}") for number in range(20)]
    for web in pods:
        tracing.pods.observed(web)
    tracing.pods.sweep()
    for number in range(100):
        for web in pods:
            attempt(tracing, web, hand_clock, number, AttemptFacts("unschedulable"))
    assert sum(len(record.facts) for record in tracing.pods.open_records()) <= 1_000


def test_phase_times_are_what_the_spans_add_up_to(tracing, pod, hand_clock):
    web, traceparent = request_pod(tracing, pod, hand_clock)
    for number in (1, 2):
        tracing.pods.queued(web, "active", "NodeAdd")
        hand_clock.pass_ms(7)
        attempt(tracing, web, hand_clock, number, AttemptFacts("unschedulable", nodes=3))
        tracing.pods.queued(web, "unschedulable", "x")
        hand_clock.pass_ms(100)
    attempt(tracing, web, hand_clock, 3, AttemptFacts("scheduled"))
    bind(tracing, web, hand_clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    record = tracing.recent.finished(web.metadata.uid)
    trace = pod_trace(record)
    sums = {}
    for span in trace.spans[1:]:
        if span.parent_span_id == trace.root.span_id:
            sums[span.name] = sums.get(span.name, 0) + span.end_ns - span.start_ns
    sums["total"] = trace.root.end_ns - trace.root.start_ns
    assert phase_times(record) == sums


def test_open_records_are_saved_when_they_changed_and_never_too_many_at_once(tracing, pod, hand_clock, monkeypatch):
    class Saved:
        def __init__(self):
            self.names = []

        def save(self, record):
            record.is_journaled, record.journaled_facts = True, len(record.facts)
            self.names.append(record.name)

        def delete(self, record):
            self.names.append(f"not {record.name}")

    monkeypatch.setattr(pod_recorder, "MAX_SAVED_PER_SWEEP", 3)
    tracing.pods.store = saved = Saved()
    pods = [pod(f"p{number}") for number in range(5)]
    for web in pods:
        tracing.pods.observed(web)
    for expected in (3, 5, 5):
        tracing.pods.sweep()
        assert len(saved.names) == expected
    hand_clock.pass_ms(1)
    tracing.pods.queued(pods[4], "active", "x")
    tracing.pods.sweep()
    tracing.pods.sweep()
    assert saved.names == ["p0", "p1", "p2", "p3", "p4", "p4"]
