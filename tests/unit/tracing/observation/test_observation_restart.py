"""A pod has one trace, also if the observing process is killed and started again."""

from __future__ import annotations

import asyncio
import os

import pytest

from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.observation.pod_observer import PodObserver, TopOwner
from kubeloop.tracing.recording.observed_pod_recorder import ObservedPodRecorder
from support.traces.observed_pods import LAG_SECONDS, PodStory, node_state, ns

SERVER = "https://cluster"


@pytest.fixture
def start(make_tracing, make_exporter, manual_clock, tmp_path):
    """Return a function that starts a process: tracing with the journal of the killed one, an observer, an exporter."""

    def start(*, with_journal=True):
        exporter = make_exporter()
        journal = TraceJournal(tmp_path, SERVER) if with_journal else None
        tracing = make_tracing(manual_clock, exporter, until_ready=True, journal=journal)
        observer = PodObserver(
            tracing.open_pods,
            ObservedPodRecorder(tracing.open_pods, tracing.restored_pods, sampler=tracing.sampler),
            until_ready=True,
            skew=ClockSkew(),
            top_owner=lambda namespace, owner: TopOwner("Deployment", "web"),
            on_reconstructed=tracing.recent.add,
            has_events=False,
        )
        return tracing, journal, observer, exporter

    return start


@pytest.fixture
def kill(tmp_path, manual_clock):
    """Return a function that simulates SIGKILL some seconds after START: the journal's file stays, unlocked."""

    def kill(journal, seconds):
        os.close(journal._descriptor)
        journal._descriptor = -1
        for path in tmp_path.glob("*.trace-journal"):
            os.utime(path, ns=(ns(seconds), ns(seconds)))

    return kill


def begin(story):
    """Create and bind a pod, and pull its first image."""
    return story.create().after(0.1).bind().after(0.1).accept().after(0.5).pull("app", 1.0)


def end(story):
    return story.after(0.1).start("app").ready()


def list_pods(tracing, observer, *stories):
    for story in stories:
        story.observer = observer
        observer.pod_observed(story.states[-1][0], ns(story.at + LAG_SECONDS), initial=True)
    observer.synced()


async def test_open_trace_is_continued(start, kill, manual_clock):
    tracing, journal, observer, _ = start()
    story = begin(PodStory(observer))
    await tracing.flush()
    before = next(iter(tracing.open_pods.all())).context
    kill(journal, 2)
    story.after(10)
    manual_clock.ns = ns(story.at)
    tracing, _, observer, exporter = start()
    list_pods(tracing, observer, story)
    end(story)
    await tracing.flush()
    [trace] = exporter.traces
    assert (trace.trace_id, trace.root.span_id) == (before.trace_id, before.span_id)
    assert trace.root.attributes["kubeloop.continued"] is True
    assert "kubeloop.reconstructed" not in trace.root.attributes
    names = [span.name for span in trace.spans]
    assert {"schedule", "start sandbox", "image pull"} <= set(names)
    [missed] = [span for span in trace.spans if span.name == "not observed"]
    assert missed.attributes["kubeloop.reason"] == "kubeloop was not running"
    assert (missed.start_ns, missed.end_ns) == (ns(2), ns(11.7))


async def test_record_is_written_as_soon_as_the_pod_is_observed(start, kill, manual_clock):
    """Nothing is written in between: a pod is saved at the end of the event loop's turn."""
    tracing, journal, observer, _ = start()
    PodStory(observer).create()
    await asyncio.sleep(0)
    kill(journal, 1)
    manual_clock.ns = ns(100)
    tracing, _, observer, exporter = start()
    observer.synced()
    await tracing.flush()
    [trace] = exporter.traces
    assert trace.root.error == "deleted while kubeloop was not running"
    assert trace.root.attributes["kubeloop.end.uncertainty_ms"] == 99_000
    assert [span.name for span in trace.spans[1:]] == ["schedule", "not observed"]


async def test_pod_that_became_ready_in_between_is_exported(start, kill, manual_clock):
    tracing, journal, observer, _ = start()
    story = begin(PodStory(observer))
    await tracing.flush()
    kill(journal, 2)
    story.observer = None
    end(story)
    manual_clock.ns = ns(60)
    tracing, _, observer, exporter = start()
    list_pods(tracing, observer, story)
    await tracing.flush()
    [trace] = exporter.traces
    assert trace.root.attributes["kubeloop.outcome"] == "ready"
    assert trace.root.end_ns <= ns(story.at + 1)


async def test_finished_trace_is_exported_once(start, kill, manual_clock):
    tracing, journal, observer, exporter = start()
    story = begin(PodStory(observer))
    end(story)
    await tracing.flush()
    assert len(exporter.traces) == 1
    kill(journal, 3)
    manual_clock.ns = ns(60)
    tracing, _, observer, exporter = start()
    list_pods(tracing, observer, story)
    story.after(60).write()
    observer.sweep()
    await tracing.flush()
    assert exporter.traces == []
    assert tracing.recent.find_pod_trace("shop", "web-5f-abcde") is not None


async def test_undelivered_trace_is_exported_again_with_the_same_ids(start, kill, manual_clock):
    tracing, journal, observer, exporter = start()
    exporter.delivered = list
    end(begin(PodStory(observer)))
    await tracing.flush()
    kill(journal, 3)
    manual_clock.ns = ns(60)
    tracing, _, _, again = start()
    await tracing.flush()
    assert again.traces == exporter.traces


async def test_without_a_journal_the_trace_has_the_same_ids(start, manual_clock):
    tracing, _, observer, _ = start(with_journal=False)
    story = begin(PodStory(observer))
    before = next(iter(tracing.open_pods.all())).context
    manual_clock.ns = ns(30)
    tracing, _, observer, exporter = start(with_journal=False)
    list_pods(tracing, observer, story)
    end(story)
    await tracing.flush()
    [trace] = exporter.traces
    assert (trace.trace_id, trace.root.span_id) == (before.trace_id, before.span_id)
    assert trace.root.attributes["kubeloop.reconstructed"] is True


async def test_lost_node_of_a_continued_trace(start, kill, manual_clock):
    tracing, journal, observer, _ = start()
    story = begin(PodStory(observer))
    await tracing.flush()
    kill(journal, 2)
    manual_clock.ns = ns(story.after(10).at)
    tracing, _, observer, exporter = start()
    list_pods(tracing, observer, story)
    story.write()
    observer.node_observed(node_state(ready=False, at=20), ns(20.1))
    story.after(20).delete()
    await tracing.flush()
    assert exporter.traces[0].root.error == "node lost"
