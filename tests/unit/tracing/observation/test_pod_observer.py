"""Traces of pods from sequences of watch events, as a real control plane and kubelet write them."""

from __future__ import annotations

import random

import pytest

from kubeloop.tracing.observation import pod_observer
from kubeloop.tracing.observation.pod_observer import LATE_EVENTS_NS, TopOwner
from kubeloop.tracing.recording import open_pod_records
from kubeloop.tracing.sampling.samplers import Sampler, parse_tail_rules
from kubeloop.tracing.sampling.tail_rules import matching_tail_rule
from kubeloop.tracing.spans.trace import Link
from support.traces.observed_pods import LAG_SECONDS, NODE, SECOND, START_NS, PodStory, node_state, ns
from support.traces.observed_traces import ObservedTraces, check_trace, span_named, spans_of

PROBED = {"name": "app", "image": "app:1", "startupProbe": {}, "readinessProbe": {}}


@pytest.fixture
def traces():
    return ObservedTraces()


# --- start ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kubelet", ["v1.36", "v1.27"])
def test_normal_start(traces, kubelet):
    PodStory(traces.observer, kubelet=kubelet).start_normally(pull_seconds=1.3)
    trace = traces.trace()
    assert spans_of(trace) == [
        ("schedule", 0.01, 0.05),
        ("start sandbox", 0.05, 0.57),
        ("image pull", 0.57, 1.87),
        ("container start", 1.87, 1.97),
        ("start readiness", 1.97, 2.16),
    ]
    assert trace.root.attributes == {
        "k8s.namespace.name": "shop",
        "k8s.pod.name": "web-5f-abcde",
        "k8s.pod.uid": "uid of web-5f-abcde",
        "k8s.replicaset.name": "web-5f",
        "k8s.deployment.name": "web",
        "k8s.node.name": NODE,
        "kubeloop.outcome": "ready",
        "kubeloop.observed": True,
        "kubeloop.owner.kind": "Deployment",
        "kubeloop.owner.name": "web",
        "kubeloop.start.source": "creation",
        "kubeloop.start.uncertainty_ms": 410,
        "kubeloop.end.source": "condition",
        "kubeloop.end.uncertainty_ms": 560,
    }
    pull = span_named(trace, "image pull")
    assert pull.attributes["kubeloop.image.already_present"] is False
    assert pull.attributes["kubeloop.image.pull_ms"] == 1300
    assert pull.attributes.get("kubeloop.image.size_bytes") == (12_345_678 if kubelet == "v1.36" else None)


def test_edges_have_their_source_and_uncertainty(traces):
    PodStory(traces.observer).start_normally()
    sandbox = span_named(traces.trace(), "start sandbox").attributes
    assert (
        sandbox["kubeloop.start.source"] == "event"
    )  # not after the Event Scheduled, but in the second of PodScheduled
    assert sandbox["kubeloop.start.uncertainty_ms"] == 451
    assert sandbox["kubeloop.end.source"] == "event"
    readiness = span_named(traces.trace(), "start readiness").attributes
    assert (readiness["kubeloop.start.source"], readiness["kubeloop.end.source"]) == ("container", "condition")
    assert readiness["kubeloop.end.uncertainty_ms"] == 560  # Ready at .4 + 2.15 s, known to be after .4 + 1.6 s


def test_image_that_is_present(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().after(0.2).accept().after(0.5)
    story.image_present("app").after(0.3).start("app").after(0.1).ready()
    trace = traces.trace()
    pull = span_named(trace, "image pull")
    assert pull.attributes["kubeloop.image.already_present"] is True
    assert pull.start_ns == pull.end_ns
    assert span_named(trace, "container start").start_ns == pull.end_ns


def test_init_containers_sidecars_and_probes(traces):
    story = PodStory(
        traces.observer,
        init=("setup", {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "startupProbe": {}}),
        containers=(PROBED, "log"),
    )
    story.create().after(0.05).bind().after(0.1).accept().after(0.5).sandbox_ready()
    story.pull("setup", 2.0).after(0.1).start("setup").write()
    story.after(3).exit("setup").write().after(0.1)
    story.pull("proxy", 1.0, waiting=0.5).after(0.1).start("proxy").write().after(1.2).started("proxy").initialized()
    story.write().after(0.2).image_present("app").after(0.1).start("app")
    story.image_present("log").after(0.1).start("log").running().write()
    story.after(2).event("Unhealthy", "Startup probe failed: HTTP 503", container="app", count=2)
    story.after(2).started("app").write().after(5).container_ready("app").ready()
    trace = traces.trace()
    assert spans_of(trace) == [
        ("schedule", 0.01, 0.05),
        ("start sandbox", 0.05, 0.67),
        ("image pull", 0.67, 2.67),
        ("container start", 2.67, 2.76),
        ("init container", 2.76, 5.76),
        ("container start", 5.76, 5.87),
        ("image pull", 5.87, 7.37),
        ("container start", 7.37, 7.46),
        ("startup probe", 7.46, 8.66),
        ("container start", 8.66, 8.87),
        ("image pull", 8.87, 8.87),
        ("container start", 8.87, 8.97),
        ("image pull", 8.97, 8.97),
        ("container start", 8.97, 9.06),
        ("startup probe", 8.97, 13.06),
        ("readiness probe", 13.06, 18.06),
    ]
    assert span_named(trace, "init container").attributes["k8s.container.name"] == "setup"
    assert span_named(trace, "image pull", "proxy").attributes["kubeloop.image.waiting_ms"] == 500
    assert span_named(trace, "image pull", "proxy").attributes["kubeloop.container.kind"] == "sidecar"
    probe = span_named(trace, "startup probe", "app").attributes
    assert (probe["kubeloop.probe.failures"], probe["kubeloop.message"]) == (2, "Startup probe failed: HTTP 503")
    assert "kubeloop.message" not in span_named(trace, "readiness probe", "app").attributes


def test_volumes_and_sandbox_failures(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().after(0.1).accept()
    story.after(2).event(
        "FailedAttachVolume", "volume is attached to another node", component="attachdetach-controller"
    )
    story.after(4).event("SuccessfulAttachVolume", "AttachVolume.Attach succeeded", component="attachdetach-controller")
    story.after(3).event("FailedCreatePodSandBox", "no network", count=3).after(1).image_present("app")
    story.after(0.2).start("app").ready()
    trace = traces.trace()
    assert spans_of(trace)[:3] == [
        ("schedule", 0.01, 0.1),
        ("start volumes", 0.1, 6.2),
        ("start sandbox", 6.2, 10.22),
    ]
    sandbox = span_named(trace, "start sandbox").attributes
    assert (sandbox["kubeloop.message"], sandbox["kubeloop.failures"]) == ("no network", 3)


def test_kubelet_that_acknowledges_a_pod_late(traces):
    story = PodStory(traces.observer).create().after(0.05).bind().after(7).accept()
    story.after(0.5).image_present("app").after(0.1).start("app").after(0.1).ready()
    assert spans_of(traces.trace())[:3] == [
        ("schedule", 0.01, 0.05),
        ("start acknowledgement", 0.05, 7.06),
        ("start sandbox", 7.06, 7.57),
    ]
    acknowledgement = span_named(traces.trace(), "start acknowledgement")
    assert acknowledgement.attributes["kubeloop.end.source"] == "start time"
    assert acknowledgement.attributes["kubeloop.end.uncertainty_ms"] == 460


def test_pod_that_no_kubelet_has_acknowledged(traces):
    PodStory(traces.observer).create().after(0.05).bind()
    assert spans_of(traces.open_trace(60))[-1] == ("start acknowledgement", 0.05, 60.0)


def test_readiness_gate_is_the_end_of_the_start(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().image_present("app").after(0.1).start("app")
    story.condition("ContainersReady", "True").running().write().after(20).ready()
    span = span_named(traces.trace(), "start readiness")
    assert span.attributes["kubeloop.condition"] == "Ready"
    assert (span.end_ns - span.start_ns) / 1e9 == pytest.approx(20, abs=0.05)


# --- scheduling ----------------------------------------------------------------------------------------------------


def test_pending_with_changing_reasons(traces):
    """Events of later attempts may be lost or combined: the condition shows the message."""
    story = PodStory(traces.observer).create().after(0.03).unschedulable("0/2 nodes: cpu")
    story.after(5).unschedulable("0/2 nodes: memory", event=False)
    story.event("FailedScheduling", "0/2 nodes: cpu", component="default-scheduler", count=2, first=0.03)
    story.after(3).unschedulable("0/2 nodes: cpu", event=False).after(2).bind()
    open_spans = spans_of(traces.open_trace(12))
    assert open_spans == [
        ("schedule", 0.01, 0.03),
        ("unschedulable", 0.03, 5.04),
        ("unschedulable", 5.04, 8.04),
        ("unschedulable", 8.04, 10.03),
        ("start acknowledgement", 10.03, 12.0),
    ]
    first, second, third, _ = (span for span in traces.open_trace(12).spans[2:])
    assert [span.attributes["kubeloop.message"] for span in (first, second, third)] == [
        "0/2 nodes: cpu",
        "0/2 nodes: memory",
        "0/2 nodes: cpu",
    ]
    assert first.error == "0/2 nodes: cpu"
    assert second.attributes["kubeloop.start.source"] == "arrival"


def test_preemption_wait(traces):
    story = PodStory(traces.observer).create().after(0.03).unschedulable("0/2 nodes: cpu").after(4)
    story.unschedulable("0/2 nodes: cpu. preemption: found", nominated="node-2").after(6).bind("node-2")
    span = span_named(traces.open_trace(11), "preemption wait")
    assert (span.start_ns, span.end_ns) == (ns(4.030001), ns(10.030001))
    assert span.attributes["kubeloop.nominated_node"] == "node-2"


def test_nominated_node_without_a_failed_attempt_is_a_binding(traces):
    story = PodStory(traces.observer).create().after(0.03)
    story.pod["status"]["nominatedNodeName"] = NODE
    story.write().after(5).bind()
    assert spans_of(traces.open_trace(6))[:2] == [("schedule", 0.01, 0.04), ("bind", 0.04, 5.03)]


def test_scheduling_gates(traces):
    story = PodStory(traces.observer).create(gates=["example.com/quota"]).after(7).ungate().after(0.02)
    story.unschedulable("0/2 nodes: cpu").after(1).bind()
    trace = traces.open_trace(9)
    assert spans_of(trace)[:3] == [("gated", 0.01, 7.01), ("schedule", 7.01, 7.02), ("unschedulable", 7.02, 8.02)]
    assert span_named(trace, "gated").attributes["kubeloop.gates"] == "example.com/quota"


def test_trace_until_bound():
    traces = ObservedTraces(until_ready=False)
    PodStory(traces.observer).create().after(0.2).bind().after(1).accept()
    trace = traces.trace()
    assert spans_of(trace) == [("schedule", 0.01, 0.21)]
    assert trace.root.attributes["kubeloop.outcome"] == "bound"


# --- failures ------------------------------------------------------------------------------------------------------


def test_image_pull_back_off(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().after(0.1).accept().after(0.4)
    story.event("Pulling", 'Pulling image "app:1"', container="app").after(2)
    story.event("Failed", 'Failed to pull image "app:1": not found', container="app")
    story.event("Failed", "Error: ErrImagePull", container="app").wait("app", "ErrImagePull").after(1)
    story.event("BackOff", 'Back-off pulling image "app:1"', container="app")
    story.wait("app", "ImagePullBackOff", 'Back-off pulling image "app:1"').after(14)
    open_spans = spans_of(traces.open_trace(story.at))
    assert open_spans[2:] == [("image pull", 0.62, 2.62), ("image pull back-off", 2.62, 17.6)]
    story.event("Pulling", 'Pulling image "app:1"', container="app", count=2, first=0.6).after(3)
    story.event("Pulled", 'Successfully pulled image "app:1" in 3s (3s including waiting)', container="app")
    story.after(0.1).start("app").ready()
    trace = traces.trace()
    pulls = [span for span in trace.spans if span.name.startswith("image pull")]
    assert [(span.name, span.error) for span in pulls] == [
        ("image pull", 'Failed to pull image "app:1": not found'),
        ("image pull back-off", 'Failed to pull image "app:1": not found'),
        ("image pull", None),
    ]
    assert pulls[2].end_ns - pulls[2].start_ns == 3 * SECOND


def test_image_pull_back_off_without_events():
    traces = ObservedTraces(has_events=False)
    story = PodStory(create_only(traces)).create().after(0.1).bind(event=False).after(0.1).accept().after(2)
    story.wait("app", "ErrImagePull", "not found").after(1).wait("app", "ImagePullBackOff", "back-off").after(10)
    trace = traces.open_trace(story.at)
    assert span_named(trace, "start sandbox").end_ns == ns(2.2 + LAG_SECONDS)
    back_off = span_named(trace, "image pull back-off")
    assert (back_off.start_ns, back_off.error) == (ns(2.2 + LAG_SECONDS), "not found")


def test_crash_loop(traces):
    story = PodStory(traces.observer, containers=({"name": "app", "image": "app:1", "readinessProbe": {}},))
    story.create().after(0.1).bind().after(0.1).accept().after(0.4).image_present("app").after(0.1).start("app")
    story.running().write().after(3).exit("app", 1).write().after(1).crash_back_off("app").after(9)
    story.start("app", restarts=1).write().after(4).container_ready("app").ready()
    trace = traces.trace()
    run, back_off = span_named(trace, "container run"), span_named(trace, "crash back-off")
    assert run.error == back_off.error == "exit code 1"
    assert (run.end_ns - run.start_ns) / 1e9 == pytest.approx(3, abs=0.05)
    assert (back_off.end_ns - back_off.start_ns) / 1e9 == pytest.approx(10, abs=0.05)
    probe = span_named(trace, "readiness probe")
    assert (probe.start_ns, probe.end_ns) == (back_off.end_ns, trace.root.end_ns)


def test_failed_init_container_is_repeated(traces):
    story = PodStory(traces.observer, init=("setup",)).create().after(0.1).bind().accept().after(0.3)
    story.image_present("setup").start("setup").write().after(2).exit("setup", 7).write().after(1)
    story.crash_back_off("setup").after(9).start("setup", restarts=1).write().after(2).exit("setup").initialized()
    story.write().after(0.1).image_present("app").start("app").ready()
    trace = traces.trace()
    runs = [span for span in trace.spans if span.name == "init container"]
    assert [span.error for span in runs] == ["exit code 7", None]
    back_off = span_named(trace, "crash back-off")
    assert (back_off.start_ns, back_off.end_ns) == (runs[0].end_ns, runs[1].start_ns)


def test_container_that_cannot_be_created(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().after(0.4).image_present("app").after(0.1)
    story.wait("app", "CreateContainerConfigError", 'secret "token" not found')
    span = span_named(traces.open_trace(5), "container start")
    assert span.error == 'secret "token" not found'
    assert span.attributes["kubeloop.reason"] == "CreateContainerConfigError"


def test_pod_that_fails(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().image_present("app").after(0.1)
    story.start("app").exit("app", 3).fail()
    trace = traces.trace()
    assert (trace.root.attributes["kubeloop.outcome"], trace.root.error) == ("failed", "containers failed")
    assert span_named(trace, "container run").error == "exit code 3"


def test_job_that_succeeds_before_it_was_observed_running(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().image_present("app").after(0.1)
    story.start("app").after(4).exit("app")
    story.pod["status"]["phase"] = "Succeeded"
    story.write()
    trace = traces.trace()
    assert (trace.root.attributes["kubeloop.outcome"], trace.root.error) == ("completed", None)
    assert span_named(trace, "container run").end_ns == trace.root.end_ns


def test_eviction_by_the_kubelet(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().after(2)
    story.event("Evicted", "The node was low on resource: memory.")
    story.condition("DisruptionTarget", "True", "TerminationByKubelet", "The node was low on resource: memory.")
    story.fail("Evicted", "The node was low on resource: memory.")
    trace = traces.trace()
    assert trace.root.attributes["kubeloop.outcome"] == "failed"
    assert trace.root.error == "evicted: The node was low on resource: memory."


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        pytest.param("PreemptionByScheduler", "preempted: why", id="preempted"),
        pytest.param("EvictionByEvictionAPI", "evicted: why", id="evicted"),
        pytest.param("DeletionByPodGC", "node lost: why", id="node lost"),
        pytest.param("DeletionByTaintManager", "evicted: why", id="taint"),
    ],
)
def test_disrupted_pod_is_deleted(traces, reason, expected):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().after(2).disrupt(reason, "why")
    story.request_deletion().after(3).delete()
    trace = traces.trace()
    assert (trace.root.attributes["kubeloop.outcome"], trace.root.error) == ("deleted", expected)
    terminating = span_named(trace, "terminating")
    assert (terminating.start_ns, terminating.end_ns) == (ns(2.1 + LAG_SECONDS), ns(5.1 + LAG_SECONDS))


def test_deleted_while_pending(traces):
    story = PodStory(traces.observer).create().after(0.05).unschedulable("0/2 nodes: cpu").after(3).delete()
    trace = traces.trace()
    assert trace.root.error == "deleted before it was bound"
    assert spans_of(trace) == [("schedule", 0.01, 0.05), ("unschedulable", 0.05, 3.06)]
    story.write()
    traces.trace()


def test_node_lost(traces):
    story = PodStory(traces.observer).create().after(0.1).bind().accept().after(20)
    traces.observer.node_observed(node_state(ready=False, at=story.at), ns(story.at + LAG_SECONDS))
    story.after(300).disrupt("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
    story.request_deletion().after(30)
    traces.observer.node_deleted(node_state(), ns(story.at))
    story.delete()
    trace = traces.trace()
    assert trace.root.error == "node lost: Taint manager: deleting due to NoExecute taint"
    unobserved = span_named(trace, "not observed")
    assert unobserved.attributes["kubeloop.reason"] == "the node is not ready"
    assert (unobserved.start_ns, unobserved.end_ns) == (ns(20.1 + LAG_SECONDS), trace.root.end_ns)


def test_node_that_comes_back(traces):
    story = PodStory(traces.observer).create()
    traces.observer.node_observed(node_state(ready=False, at=0), ns(0.05))
    story.after(0.1).bind().accept().after(10)
    traces.observer.node_observed(node_state(ready=True, at=10), ns(10.1))
    story.after(5).image_present("app").start("app").ready()
    span = span_named(traces.trace(), "not observed")
    assert (span.start_ns, span.end_ns) == (ns(0.100001), ns(10.1))


def test_in_place_resize_does_not_change_phases(traces):
    """A pod that is resized while it starts: conditions of the resize, and a container that is restarted for it."""
    story = PodStory(traces.observer, containers=({"name": "app", "image": "app:1", "readinessProbe": {}},))
    story.create().after(0.1).bind().after(0.1).accept().after(0.4).image_present("app").after(0.1).start("app")
    story.running().write().after(2).condition("PodResizeInProgress", "True")
    story.event("ResizeStarted", "Pod resize started").write().after(1).exit("app").write().after(1)
    story.start("app", restarts=1).event("ResizeCompleted", "Pod resize completed").write().after(3)
    story.container_ready("app").ready()
    trace = traces.trace()
    assert trace.root.attributes["kubeloop.outcome"] == "ready"
    assert [span.error for span in trace.spans] == [None] * len(trace.spans)
    assert {"container run", "container restart"} <= {span.name for span in trace.spans}
    assert "crash back-off" not in {span.name for span in trace.spans}


# --- events and states that are late, repeated or lost -------------------------------------------------------------


def test_events_before_their_pod(traces):
    written = PodStory().start_normally()
    for event, arrival_ns in written.events:
        traces.observer.event_observed(event, arrival_ns)
    for pod, arrival_ns in written.states:
        traces.observer.pod_observed(pod, arrival_ns)
    assert [name for name, _, _ in spans_of(traces.trace())] == [
        "schedule",
        "start sandbox",
        "image pull",
        "container start",
        "start readiness",
    ]


def test_late_events_are_awaited(traces):
    written = PodStory().start_normally()
    for pod, arrival_ns in written.states:
        traces.observer.pod_observed(pod, arrival_ns)
    assert traces.finished == []
    for event, _ in written.events:
        traces.observer.event_observed(event, written.states[-1][1] + SECOND)
    pull = span_named(traces.trace(), "image pull")
    assert pull.end_ns - pull.start_ns == pytest.approx(1.3e9, abs=1e6)


def test_events_that_never_come_are_awaited_for_a_limited_time(traces):
    for pod, arrival_ns in PodStory().start_normally().states:
        traces.observer.pod_observed(pod, arrival_ns)
    traces.pass_seconds(LATE_EVENTS_NS / 1e9 - 0.1)
    assert traces.finished == []
    traces.pass_seconds(0.2)
    assert [name for name, _, _ in spans_of(traces.trace())] == [
        "schedule",
        "start sandbox",
        "container start",
    ]


def test_without_permission_for_events_nothing_is_awaited():
    traces = ObservedTraces(has_events=False)
    for pod, arrival_ns in PodStory().start_normally().states:
        traces.observer.pod_observed(pod, arrival_ns)
    assert traces.trace().root.attributes["kubeloop.outcome"] == "ready"


def test_events_are_awaited_once_they_are_permitted():
    traces = ObservedTraces(has_events=False)
    traces.observer.expect_events()
    story = PodStory(traces.observer).create().after(0.05).bind().accept()
    story.observer = None
    story.start("app")
    story.observer = traces.observer
    story.ready()
    assert not traces.finished
    traces.pass_seconds(LATE_EVENTS_NS / SECOND)
    assert len(traces.finished) == 1


def test_repeated_states_and_events_change_nothing(traces):
    expected = ObservedTraces()
    written = PodStory(expected.observer).start_normally()
    everything = [(arrival_ns, 0, pod) for pod, arrival_ns in written.states]
    everything += [(arrival_ns, 1, event) for event, arrival_ns in written.events]
    for arrival_ns, kind, obj in sorted(everything, key=lambda entry: entry[:2]):
        for again in (0, SECOND // 100):
            (traces.observer.event_observed if kind else traces.observer.pod_observed)(obj, arrival_ns + again)
    assert spans_of(traces.trace()) == spans_of(expected.trace())


def test_late_event_of_a_finished_pod_is_ignored(traces):
    story = PodStory(traces.observer).start_normally()
    story.after(60).event("Unhealthy", "Readiness probe failed", container="app").ready()
    traces.trace()
    assert traces.records.count() == 0


def test_watch_that_was_interrupted(traces):
    story = PodStory(traces.observer).create().after(1)
    traces.observer.interrupted("pods", ns(1), ns(31))
    story.after(30).bind(event=False).accept().image_present("app").start("app").ready()
    trace = traces.trace()
    missed = span_named(trace, "not observed")
    assert (missed.start_ns, missed.end_ns) == (ns(1), ns(31))
    assert missed.attributes["kubeloop.reason"] == "the watch of pods was interrupted"


def test_pod_created_during_an_interruption_is_marked_and_has_no_sli(traces):
    story = PodStory()
    story.create().after(1).bind().accept().image_present("app").start("app").ready()
    traces.observer.interrupted("pods", ns(-10), ns(20))
    traces.observer.pod_observed(story.states[-1][0], ns(20.01))
    for event, _ in story.events:
        traces.observer.event_observed(event, ns(20.02))
    missed = span_named(traces.trace(), "not observed")
    assert (missed.start_ns, missed.attributes["kubeloop.start.source"]) == (ns(0.6), "arrival")
    assert traces.finished[-1].start_sli_ns == 0


def test_pod_created_after_an_interruption_is_not_marked(traces):
    traces.observer.interrupted("pods", ns(-20), ns(-10))
    PodStory(traces.observer).start_normally()
    assert "not observed" not in {span.name for span in traces.trace().spans}
    assert traces.finished[-1].start_sli_ns > 0


def test_an_arrival_after_an_interruption_is_as_uncertain_as_the_interruption_was_long(traces):
    story = PodStory(traces.observer).create(gates=["g"]).after(1)
    traces.observer.interrupted("pods", ns(1), ns(31))
    story.after(30).ungate()
    gated = span_named(traces.open_trace(32), "gated")
    assert gated.attributes["kubeloop.end.source"] == "arrival"
    assert gated.attributes["kubeloop.end.uncertainty_ms"] == 30_010


def test_late_arrival_is_as_uncertain_as_the_watch_was_disconnected(traces):
    """The watch was disconnected from 1 s to 31 s: both states came then, and the second one is not later than the
    first one for certain."""
    story = PodStory(traces.observer).create(gates=["g", "h"]).after(1)
    story.observer = None
    story.after(10)
    story.pod["spec"]["schedulingGates"].pop()
    story.write().after(10).ungate()
    for number, (pod, _) in enumerate(story.states[1:]):
        traces.observer.pod_observed(pod, ns(31 + number / 10), ns(1))
    gated = [span for span in traces.open_trace(32).spans if span.name == "gated"]
    assert [span.attributes["kubeloop.end.uncertainty_ms"] for span in gated] == [
        30_990,
        31_090,
    ]  # not before the gates were observed, at 0.01 s


def test_prompt_state_after_a_late_one_is_at_most_a_second_old(traces):
    story = PodStory(traces.observer).create(gates=["g"]).after(30)
    traces.observer.pod_observed(story.states[-1][0], ns(31), ns(1))
    story.after(10).ungate()
    gated = span_named(traces.open_trace(42), "gated")
    assert gated.attributes["kubeloop.end.uncertainty_ms"] == 1_000


@pytest.mark.parametrize(("disconnected_seconds", "is_counted"), [(0.5, True), (5, False)])
def test_pod_whose_start_arrived_late_has_no_sli(traces, disconnected_seconds, is_counted):
    story = PodStory(traces.observer).create().after(0.05).bind()
    story.observer = None
    story.after(0.1).accept().after(0.4).start("app").after(0.2).ready()
    arrival_ns = story.states[-1][1] + round(disconnected_seconds * SECOND)
    traces.observer.pod_observed(story.states[-1][0], arrival_ns, arrival_ns - round(disconnected_seconds * SECOND))
    story.events[-1:] = []
    traces.ns = arrival_ns
    traces.pass_seconds(LATE_EVENTS_NS / SECOND)
    traces.trace()
    assert (traces.finished[-1].start_sli_ns > 0) == is_counted


def test_deletion_of_a_node_that_arrives_late_is_uncertain(traces):
    PodStory(traces.observer).create().after(0.05).bind().accept()
    traces.observer.node_deleted(node_state(), ns(31), ns(1))
    lost = span_named(traces.open_trace(32), "not observed")
    assert lost.attributes["kubeloop.start.uncertainty_ms"] == 31_000


def test_resource_versions_that_start_over_after_an_interruption(traces):
    story = PodStory(traces.observer).create().after(1)
    traces.observer.interrupted("pods", ns(1), ns(2))
    story._version = 1
    story.after(2).bind()
    assert traces.open_trace(4).root.attributes["k8s.node.name"] == NODE


# --- clocks --------------------------------------------------------------------------------------------------------


def start_with_node_clock(traces, name, ahead_seconds):
    """Start a pod normally, but with a kubelet whose clock is ahead."""
    story = PodStory(traces.observer, name=name).create().after(0.05).bind().after(0.1)
    story.at += ahead_seconds
    lag = LAG_SECONDS - ahead_seconds
    story.accept(lag=lag).after(0.4).sandbox_ready()
    story.pull("app", 1.3, lag=lag).after(0.1).start("app", lag=lag).after(0.2).ready(lag=lag)


@pytest.mark.parametrize("ahead_seconds", [90, 5, -5, -90])
def test_node_whose_clock_is_wrong_invents_no_durations(traces, ahead_seconds):
    """The first pod shows the difference, by which the timestamps of the next one are corrected."""
    traces.skew.http_date(ns(0.6), sent_ns=ns(0.59), received_ns=ns(0.61))
    traces.skew.http_date(ns(0.6), sent_ns=ns(1.59), received_ns=ns(1.6))
    for name in ("first", "second"):
        start_with_node_clock(traces, name, ahead_seconds)
    assert abs(traces.skew.certain_ns(NODE) - ahead_seconds * SECOND) <= 2 * SECOND
    for record in traces.finished:
        check_trace(record)
    second = check_trace(traces.finished[1])
    assert second.root.end_ns == pytest.approx(ns(2.16), abs=2 * SECOND)
    assert span_named(second, "image pull").attributes["kubeloop.image.pull_ms"] == 1300


def test_clock_of_the_api_server_is_compared(traces):
    PodStory(traces.observer).create()
    assert traces.skew.estimate("API server").lowest_ns == -410_000_000


# --- which pods are recorded ---------------------------------------------------------------------------------------


def test_pod_that_had_started_before_the_first_list_is_reconstructed(traces):
    written = PodStory().start_normally()
    pod, _ = written.states[-1]
    traces.observer.pod_observed(pod, ns(100), initial=True)
    traces.observer.synced()
    for event, _ in written.events:
        traces.observer.event_observed(event, ns(101))
    traces.observer.pod_observed(pod, ns(102))
    traces.pass_seconds(16)
    assert traces.finished == []
    [record] = traces.reconstructed
    trace = check_trace(record)
    assert trace.root.attributes["kubeloop.reconstructed"] is True
    assert [name for name, _, _ in spans_of(trace)] == [
        "schedule",
        "start sandbox",
        "image pull",
        "container start",
    ]
    assert trace.root.start_ns == ns(0.6)


def test_pending_pod_of_the_first_list_is_followed_and_marked(traces):
    written = PodStory().create().after(0.1).unschedulable("no room")
    traces.observer.pod_observed(written.states[-1][0], ns(20), initial=True)
    traces.observer.synced()
    written.observer = traces.observer
    written.after(30).bind().accept().image_present("app").start("app").ready()
    trace = traces.trace()
    assert trace.root.attributes["kubeloop.reconstructed"] is True
    assert spans_of(trace)[:2] == [("schedule", 0.6, 0.6), ("unschedulable", 0.6, 30.1)]


def test_pod_of_the_first_list_that_was_ready_before_is_not_followed(traces):
    story = PodStory().start_normally().after(60)
    story.condition("Ready", "False", "ContainersNotReady").write()
    traces.observer.pod_observed(story.states[-1][0], ns(100), initial=True)
    traces.observer.synced()
    traces.pass_seconds(16)
    assert (traces.records.count(), traces.finished, traces.reconstructed) == (0, [], [])


def test_reconstructed_pods_are_limited_to_the_newest(traces, monkeypatch):
    monkeypatch.setattr(pod_observer, "MAX_RECONSTRUCTED", 2)
    for number in (3, 1, 4, 2):
        created = f"2026-01-01T12:00:0{number}Z"
        story = PodStory(name=f"web-{number}", creationTimestamp=created).start_normally()
        traces.observer.pod_observed(story.states[-1][0], ns(100), initial=True)
    traces.observer.synced()
    traces.pass_seconds(16)
    assert [record.name for record in traces.reconstructed] == ["web-3", "web-4"]


def test_traceparent_annotation_is_the_parent(traces):
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    PodStory(traces.observer, annotations={"tracing.k8s.io/traceparent": parent}).start_normally()
    trace = traces.trace()
    assert (trace.trace_id, trace.root.parent_span_id) == ("ab" * 16, "cd" * 8)


def test_two_observers_give_a_pod_the_same_trace():
    contexts = []
    for _ in range(2):
        traces = ObservedTraces()
        PodStory(traces.observer).start_normally()
        contexts.append(traces.finished[0].context)
    assert contexts[0] == contexts[1]
    other = ObservedTraces()
    PodStory(other.observer, name="other").start_normally()
    assert other.finished[0].context.trace_id != contexts[0].trace_id


def test_pods_that_the_sampler_leaves_out_are_not_followed():
    traces = ObservedTraces(sampler=Sampler(ratio=0.0))
    PodStory(traces.observer).start_normally()
    assert (traces.finished, traces.records.count()) == ([], 0)


def test_deleted_pod_that_was_never_observed_has_no_trace(traces):
    PodStory(traces.observer).delete()
    assert traces.finished == []


@pytest.mark.parametrize("is_found", [True, False])
def test_trace_that_has_ended_waits_for_its_topmost_owner(is_found):
    owner = None
    traces = ObservedTraces(top_owner=lambda namespace, controller: owner)
    PodStory(traces.observer).start_normally()
    traces.pass_seconds(2)
    assert not traces.finished
    if is_found:
        owner = TopOwner("Rollout", "web")
        traces.pass_seconds(1)
    else:
        traces.pass_seconds(LATE_EVENTS_NS / SECOND)
    assert traces.trace().root.attributes.get("kubeloop.owner.kind") == ("Rollout" if is_found else None)


def test_topmost_owner_is_resolved_at_the_end_at_the_latest():
    known = {}
    traces = ObservedTraces(top_owner=lambda namespace, owner: known.get((namespace, owner.kind, owner.name)))
    story = PodStory(traces.observer).create().after(0.1).bind()
    rollout = f"00-{'ab' * 16}-{'cd' * 8}-01"
    known["shop", "ReplicaSet", "web-5f"] = TopOwner("Rollout", "web", rollout)
    story.accept().image_present("app").start("app").ready()
    root = traces.trace().root
    assert (root.attributes["kubeloop.owner.kind"], root.attributes["kubeloop.owner.name"]) == ("Rollout", "web")
    assert root.links == (Link(rollout, "cause"),)


# --- limits --------------------------------------------------------------------------------------------------------


def test_oldest_open_pod_is_dropped(traces, monkeypatch):
    monkeypatch.setattr(open_pod_records, "MAX_OPEN", 2)
    stories = [PodStory(traces.observer, name=f"web-{number}").create() for number in range(3)]
    assert [record.name for record in traces.records.all()] == ["web-1", "web-2"]
    stories[0].after(1).bind()
    stories[1].after(1).bind()
    PodStory(traces.observer, name="web-3").create()
    assert traces.observer._on_node == {}
    assert [record.name for record in traces.records.all()] == ["web-2", "web-3"]
    traces.observer.check()


@pytest.mark.parametrize(("rule", "is_exported"), [("failed", True), ("preempted", True), ("slower-than=1h", False)])
def test_tail_rules_select_observed_pods(rule, is_exported):
    traces = ObservedTraces(sampler=Sampler(ratio=0.0, tail_rules=parse_tail_rules(rule)))
    story = PodStory(traces.observer).create().after(0.1).unschedulable("cpu").after(1)
    story.unschedulable("cpu, preempted 1", nominated=NODE).after(1).bind().accept().image_present("app").start("app")
    story.ready()
    assert bool(matching_tail_rule(traces.finished[0], parse_tail_rules(rule))) is is_exported


def test_events_of_unknown_pods_are_limited_and_counted(traces, monkeypatch):
    monkeypatch.setattr(pod_observer, "MAX_EARLY", 3)
    for number in range(5):
        PodStory(traces.observer, name=f"web-{number}").event("Scheduled", "ok", component="default-scheduler")
    assert traces.observer.events_dropped == 2
    traces.observer.check()


def test_events_wait_for_their_pod_for_a_limited_time(traces):
    story = PodStory(traces.observer).create().after(0.1)
    PodStory(traces.observer, name="other").event("Scheduled", "ok", component="default-scheduler")
    traces.pass_seconds(59)
    assert [*traces.observer._early] == ["uid of other"]
    traces.pass_seconds(2)
    assert (traces.observer._early, traces.observer.events_dropped) == ({}, 0)
    story.bind()
    assert traces.records.count() == 1


def test_finished_pods_that_a_list_lacks_are_forgotten(traces):
    for number in range(3):
        PodStory(traces.observer, name=f"web-{number}").start_normally()
    traces.observer.retain({"uid of web-1", "uid of another"})
    assert traces.observer._done == {"uid of web-1"}


def test_deleted_pods_are_remembered_for_a_limited_time(traces, monkeypatch):
    monkeypatch.setattr(pod_observer, "MAX_REMEMBERED", 5)
    for number in range(20):
        PodStory(traces.observer, name=f"web-{number}").start_normally().delete()
    assert len(traces.finished) == 20
    assert len(traces.observer._done) == 5


def create_only(traces):
    """Return an observer that gets the states of a pod, but not its Events."""

    class StatesOnly:
        pod_observed = staticmethod(traces.observer.pod_observed)

        @staticmethod
        def event_observed(event, arrival_ns):
            pass

    return StatesOnly


def test_a_long_history_is_limited(traces):
    story = PodStory(traces.observer).create()
    rng = random.Random(1)
    for number in range(500):
        story.after(1).unschedulable(f"reason {number}", event=rng.random() < 0.5)
    [record] = traces.records.all()
    assert len(record.milestones.scheduling) <= 60
    check_trace(record, START_NS + 501 * SECOND)
