"""Observation of any order, repetition and loss of states and Events: one trace, a tree, no invented durations."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.kube.values import times
from kubeloop.tracing.export.otlp_encoding import TraceEncoder
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.views.otlp_json import to_otlp
from kubeloop.tracing.views.perfetto import to_perfetto
from support.traces.observed_pods import SECOND, PodStory, ns
from support.traces.observed_traces import ObservedTraces, check_trace

PROBED = {"name": "app", "image": "app:1", "startupProbe": {}, "readinessProbe": {}}
SIDECAR = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}


def _probed():
    story = PodStory(init=("setup", SIDECAR), containers=(PROBED, "log")).create(gates=["g"]).after(3).ungate()
    story.after(0.1).unschedulable("cpu").after(4).unschedulable("memory", nominated="node-1").after(3).bind()
    story.after(0.1).accept().after(0.5).sandbox_ready().pull("setup", 1.0).start("setup").write().after(1)
    story.exit("setup").write().pull("proxy", 0.5).start("proxy").initialized().write().image_present("app")
    story.start("app").pull("log", 2.0).start("log").running().write().after(2)
    story.event("Unhealthy", "Startup probe failed", container="app").after(1).started("app").write()
    return story.after(2).container_ready("app").ready().after(10).request_deletion(grace=1).after(1)


def _crash_loop():
    story = PodStory(containers=({"name": "app", "image": "app:1", "readinessProbe": {}},), kubelet="v1.27")
    story.create().after(0.1).bind().accept().event("Pulling", 'Pulling image "app:1"', container="app").after(1)
    story.event("Failed", 'Failed to pull image "app:1": timeout', container="app").wait("app", "ErrImagePull").after(1)
    story.event("BackOff", 'Back-off pulling image "app:1"', container="app").wait("app", "ImagePullBackOff").after(9)
    story.event("Pulling", 'Pulling image "app:1"', container="app", count=2, first=0.1).after(2)
    story.event("Pulled", 'Successfully pulled image "app:1" in 2s (2s including waiting)', container="app")
    story.start("app").running().write()
    for restarts in (1, 2, 3):
        story.after(1).exit("app", restarts).write().after(1).crash_back_off("app").after(10)
        story.start("app", restarts=restarts).write()
    return story.after(2)


def _evicted():
    story = PodStory().create().after(0.1).bind().accept().after(1).disrupt("TerminationByKubelet", "memory")
    return story.fail("Evicted", "memory").request_deletion().after(2)


STORIES = (lambda: PodStory().start_normally(), _probed, _crash_loop, _evicted)


@st.composite
def deliveries(draw):
    """Return a story, and (delay of the arrival, kind, object, arrival) in order of their delivery."""
    story = draw(st.sampled_from(STORIES))()
    written = [("state", pod, arrival_ns) for pod, arrival_ns in story.states]
    written += [("event", event, arrival_ns) for event, arrival_ns in story.events]
    delivered = []
    for kind, obj, arrival_ns in written:
        for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2)))):
            late_ns = draw(st.sampled_from((0, 0, 0, SECOND // 10, SECOND, 20 * SECOND)))
            ahead_ns = draw(
                st.sampled_from((0, 0, 0, 0, -3 * SECOND))
            )  # of a clock that is behind those of the cluster
            delivered.append((arrival_ns + late_ns + ahead_ns, kind, obj))
    delivered.sort(key=lambda entry: entry[0])
    return story, delivered


@settings(deadline=None, max_examples=300)
@given(delivery=deliveries(), until_ready=st.booleans(), gap=st.none() | st.integers(0, 20))
def test_any_delivery_gives_at_most_one_trace_that_is_a_tree(delivery, until_ready, gap):
    story, delivered = delivery
    traces = ObservedTraces(until_ready=until_ready)
    last_ns = ns(0)
    is_interrupted = gap is None
    for arrival_ns, kind, obj in delivered:
        traces.ns = last_ns = max(last_ns, arrival_ns)
        if not is_interrupted and arrival_ns > ns(gap):
            traces.observer.interrupted("pods", ns(gap) - SECOND, ns(gap))
            is_interrupted = True
        if kind == "state":
            traces.observer.pod_observed(obj, arrival_ns)
        else:
            traces.observer.event_observed(obj, arrival_ns)
        for record in traces.records.all():
            check_trace(record, last_ns)
        traces.observer.sweep()
    traces.observer.check()
    story.observer = traces.observer
    story.after(100).delete().delete()
    traces.pass_seconds(200)
    was_observed = any(kind == "state" for _, kind, _ in delivered)
    assert len(traces.finished) == was_observed
    assert traces.records.count() == 0
    for record in traces.finished:
        trace = check_trace(record)
        assert trace.root.attributes["kubeloop.outcome"] in ("bound", "ready", "failed", "deleted")
        assert all(time_ns >= 0 for time_ns in phase_times(record).values())
        assert record.start_sli_ns >= 0
        assert record.milestones is None


@settings(deadline=None, max_examples=100)
@given(delivery=deliveries(), killed_after=st.integers(0, 30), down_seconds=st.integers(0, 30))
def test_a_restart_at_any_time_gives_one_trace(delivery, killed_after, down_seconds):
    story, delivered = delivery
    before = ObservedTraces()
    deliver(before, delivered[:killed_after])
    records = [*before.records.all()]
    journaled = [
        msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(record)), PodRecord) for record in records
    ]
    after = ObservedTraces(restored=[(record, before.ns) for record in journaled])
    rest = [(arrival_ns + down_seconds * SECOND, kind, obj) for arrival_ns, kind, obj in delivered[killed_after:]]
    listed = [obj for _, kind, obj in delivered[:killed_after] if kind == "state"] or [story.states[0][0]]
    pod = max(listed, key=lambda pod: int(pod.metadata.resource_version))
    after.ns = before.ns + down_seconds * SECOND
    after.observer.pod_observed(pod, after.ns, initial=True)
    after.observer.synced()
    deliver(after, rest)
    story.observer = after.observer
    story.after(200).delete()
    after.pass_seconds(300)
    exported = [*before.finished, *after.finished]
    assert len(exported) <= 1
    assert len(exported) == 1 or not records
    for record in exported:
        check_trace(record)
        assert record.context in [record.context for record in records or exported]


def deliver(traces, delivered):
    for arrival_ns, kind, obj in delivered:
        traces.ns = max(traces.ns, arrival_ns)
        if kind == "state":
            traces.observer.pod_observed(obj, arrival_ns)
        else:
            traces.observer.event_observed(obj, arrival_ns)
        traces.observer.sweep()


@settings(deadline=None, max_examples=100)
@given(story=st.sampled_from(STORIES), data=st.data())
def test_late_events_give_the_phases_of_prompt_ones(story, data):
    written = story()
    observed = []
    for max_late_seconds in (0, 2):
        traces = ObservedTraces()
        observed.append(traces)
        entries = [(arrival_ns, 0, number) for number, (_, arrival_ns) in enumerate(written.states)]
        for number, (_, arrival_ns) in enumerate(written.events):
            entries.append((arrival_ns + data.draw(st.integers(0, max_late_seconds * SECOND)), 1, number))
        for arrival_ns, kind, number in sorted(entries):
            if kind:
                traces.observer.event_observed(written.events[number][0], arrival_ns)
            else:
                traces.observer.pod_observed(written.states[number][0], arrival_ns)
        written.observer = traces.observer
        written.delete()
    prompt, late = (check_trace(traces.finished[0]) for traces in observed)
    assert abs(prompt.root.end_ns - late.root.end_ns) <= SECOND
    assert _details(prompt) == _details(late)


def _details(trace):
    """Return the spans that states or Events show, without those that fill the time between them."""
    fill = ("not observed", "container start", "start readiness", "start sandbox", "schedule")
    return sorted(
        (span.name, str(span.attributes.get("k8s.container.name")), str(span.error))
        for span in trace.spans
        if span.name not in fill
    )


def _with_times(value, draw):
    """Return a copy of an object in which other times replace about half of all times."""
    if isinstance(value, datetime):
        return draw(TIMES) if draw(st.booleans()) else value
    if isinstance(value, tuple):
        return tuple(_with_times(item, draw) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changes = {name: _with_times(getattr(value, name), draw) for name in value.__struct_fields__}
    if "message" in changes and draw(st.booleans()):
        changes["message"] = draw(st.sampled_from(PULL_MESSAGES))
    return msgspec.structs.replace(value, **changes)


EXTREMES = (times.EARLIEST, datetime(1969, 12, 31, tzinfo=UTC), datetime(2262, 4, 12, tzinfo=UTC), times.LATEST)
TIMES = st.one_of(st.sampled_from(EXTREMES), st.datetimes(timezones=st.just(UTC)))
PULL_MESSAGES = (
    'Successfully pulled image "app:1" in 2562047h47m16.854775807s (2562047h47m16.854775807s including waiting)',
    f'Successfully pulled image "app:1" in 1s (99999999999h including waiting). Image size: {"9" * 5000} bytes',
)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_times_of_all_years_are_exported(data):
    """Times in the status of a pod and in Events are those of any client."""
    story = data.draw(st.sampled_from(STORIES))()
    traces = ObservedTraces()
    for pod, arrival_ns in story.states:
        traces.ns = max(traces.ns, arrival_ns)
        traces.observer.pod_observed(_with_times(pod, data.draw), arrival_ns, initial=data.draw(st.booleans()))
        traces.observer.sweep()
    for event, arrival_ns in story.events:
        traces.observer.event_observed(_with_times(event, data.draw), arrival_ns)
    traces.observer.synced()
    story.observer = traces.observer
    story.after(100).delete()
    traces.pass_seconds(200)
    records = [*traces.finished, *traces.reconstructed]
    for record in records:
        trace = check_trace(record)
        TraceEncoder({}, "kubeloop", "1").encode(trace)
        for exported in (to_otlp([trace.document()], version="1"), to_perfetto([trace.document()])):
            msgspec.json.encode(exported)
        restored = msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(record)), PodRecord)
        assert check_trace(restored).document() == trace.document()
        assert all(time_ns >= 0 for time_ns in phase_times(record).values())
