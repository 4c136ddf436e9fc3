"""A process that is killed leaves its traces to the next one: every pod still has one, and one only."""

from __future__ import annotations

import errno
import itertools
import os

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.tracing.journal import trace_journal as journal_module
from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.recording.pod_recorder import AttemptFacts

SERVER = "https://cluster"


@pytest.fixture
def crash(tmp_path):
    """Do to a journal what SIGKILL does: its file stays as it is, its lock goes."""

    def crash(journal):
        journal.write_out()
        os.close(journal._descriptor)
        journal._descriptor = -1
        for path in tmp_path.glob("*.trace-journal"):  # the next one is of another process
            path.rename(path.with_name(f"1{path.name}"))

    return crash


def request(tracing, pod, clock, name="web-5f-a"):
    traces = tracing.pods
    traceparent = traces.new_traceparent()
    annotations = traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=clock.ns
    )
    clock.pass_ms(2)
    web = pod(name, annotations=annotations)
    traces.created(traceparent, web, clock.ns)
    traces.observed(web)
    return web


def rejected(tracing, web, clock):
    tracing.pods.queued(web, "active", "PodAdd")
    tracing.pods.attempt_started(web, 1)
    tracing.pods.attempt_finished(web, AttemptFacts("unschedulable", nodes=3, rejections={"NodeAffinity": 3}))
    tracing.pods.queued(web, "unschedulable", "ScheduleAttemptFailure")
    clock.pass_ms(10)


async def test_the_notes_on_a_pod_survive_and_what_nobody_saw_is_said(
    make_tracing, pod, hand_clock, exported, tmp_path, crash
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    web = request(before, pod, hand_clock)
    rejected(before, web, hand_clock)
    await before.flush()
    crash(journal)
    hand_clock.ns = max(hand_clock.ns, os.stat(next(tmp_path.glob("*"))).st_mtime_ns) + 10**9
    after = make_tracing(hand_clock, exported, seed=2)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.observed(web)
    after.pods.informer_synced()
    hand_clock.pass_ms(5)
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    await after.flush()
    (trace,) = exported.traces
    trace.check()
    names = [span.name for span in trace.spans]
    assert names.count("create") == names.count("scheduling attempt") == names.count("not followed") == 1
    assert trace.root.attributes["kubeloop.continued"] is True
    assert trace.root.attributes["kubeloop.attempts"] == 1
    assert [event.name for event in trace.spans[names.index("scheduling attempt")].events] == ["rejected"]
    assert len([*tmp_path.glob("*.trace-journal")]) == 1, "what was taken over is taken away"


async def test_a_finished_trace_that_was_not_delivered_is_exported_by_the_next_process_with_the_same_ids(
    make_tracing, pod, hand_clock, make_exported, tmp_path, crash
):
    lost, found = make_exported(), make_exported()
    lost.delivered = list  # the collector was not quick enough
    before = make_tracing(hand_clock, lost)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    web = request(before, pod, hand_clock)
    before.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    before.reconciles.reconcile("replicaset", "shop/web-5f").finish(changed=True)
    await before.flush()
    crash(journal)
    after = make_tracing(hand_clock, found, seed=2)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    await after.flush()
    assert {trace.trace_id: trace for trace in found.traces} == {trace.trace_id: trace for trace in lost.traces}
    assert len(found.traces) == 2


async def test_what_was_delivered_is_not_exported_again(make_tracing, pod, hand_clock, make_exported, tmp_path, crash):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    web = request(before, pod, hand_clock)
    before.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    await before.flush()
    crash(journal)
    found = make_exported()
    after = make_tracing(hand_clock, found)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    after.pods.informer_synced()
    await after.flush()
    assert found.traces == []


@pytest.mark.parametrize("created", [True, False])
async def test_a_pod_that_is_gone_when_the_next_process_begins_has_its_trace(
    make_tracing, pod, hand_clock, exported, tmp_path, crash, created
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    if created:
        rejected(before, request(before, pod, hand_clock), hand_clock)
        await before.flush()
    else:
        traceparent = before.pods.new_traceparent()
        about = {"namespace": "shop", "owner_kind": "ReplicaSet", "owner_name": "web-5f"}
        before.pods.create_requested(traceparent, start_ns=hand_clock.ns, **about)
    crash(journal)
    hand_clock.pass_ms(60_000)
    after = make_tracing(hand_clock, exported)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.informer_synced()
    await after.flush()
    (trace,) = exported.traces
    trace.check()
    assert trace.root.attributes["kubeloop.outcome"] == ("deleted" if created else "create failed")


async def test_a_pod_bound_in_the_last_moment_ends_when_it_was_bound(
    make_tracing, pod, hand_clock, exported, tmp_path, crash
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    web = request(before, pod, hand_clock)
    before.pods.bind_started(web, "n1")
    crash(journal)
    hand_clock.pass_ms(3_600_000)
    after = make_tracing(hand_clock, exported)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    scheduled = {"PodScheduled": "2026-01-01T12:00:01Z"}
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1", conditions=scheduled))
    await after.flush()
    (trace,) = exported.traces
    assert trace.root.attributes["kubeloop.outcome"] == "bound"
    assert "bind" in {span.name for span in trace.spans}


async def test_a_journal_of_a_live_process_or_of_another_cluster_is_left_alone(
    make_tracing, pod, hand_clock, exported, tmp_path, crash
):
    alive, elsewhere = TraceJournal(tmp_path, SERVER), make_tracing(hand_clock)
    request(elsewhere, pod, hand_clock)
    (alive_path,) = tmp_path.glob("*.trace-journal")
    alive_path.rename(alive_path.with_name("77-1.trace-journal"))
    other = TraceJournal(tmp_path, "https://other")
    elsewhere.use_journal(other)
    rejected(elsewhere, request(elsewhere, pod, hand_clock, "b"), hand_clock)
    crash(other)
    files = {path.name for path in tmp_path.glob("*.trace-journal")}
    after = make_tracing(hand_clock, exported)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.informer_synced()
    await after.flush()
    assert exported.traces == []
    assert files < {path.name for path in tmp_path.glob("*.trace-journal")}
    alive.close()


async def test_the_file_is_renewed_and_loses_nothing_on_the_way(
    make_tracing, pod, hand_clock, make_exported, tmp_path, crash
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER, rotate_bytes=10_000)
    before.use_journal(journal)
    waiting = [request(before, pod, hand_clock, f"waits-{number}") for number in range(250)]
    sizes = []
    for number in range(100):
        web = request(before, pod, hand_clock, f"goes-{number}")
        before.pods.observed(pod(f"goes-{number}", annotations=web.metadata.annotations, node="n1"))
        await before.flush()
        journal.write_out()
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.trace-journal")))
    assert journal._number > 2
    crash(journal)
    if journal._old is not None:
        os.close(journal._old[1])
    found = make_exported()
    after = make_tracing(hand_clock, found)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.informer_synced()
    await after.flush()
    assert {trace.root.attributes["k8s.pod.name"] for trace in found.traces} == {w.metadata.name for w in waiting}


@pytest.mark.parametrize("writes", range(8))
async def test_a_disk_that_is_full_at_any_moment_costs_the_journal_and_no_file_is_closed_twice(
    make_tracing, pod, hand_clock, tmp_path, monkeypatch, writes
):
    tracing = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER, rotate_bytes=100)
    tracing.use_journal(journal)
    write, left = os.write, writes

    def limited(descriptor, content):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr(journal_module.os, "write", limited)
    before = set(os.listdir("/proc/self/fd"))
    for number in range(10):
        request(tracing, pod, hand_clock, f"first-{number}")
        await tracing.flush()
        journal.write_out()
        request(tracing, pod, hand_clock, f"then-{number}")
        await tracing.flush()
        journal.rotate()
    journal.close()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("cut", [1, 7, 100])
async def test_a_torn_end_costs_what_is_torn_and_nothing_else(
    make_tracing, pod, hand_clock, exported, tmp_path, crash, cut
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    request(before, pod, hand_clock, "a")
    web = request(before, pod, hand_clock, "b")
    await before.flush()
    rejected(before, web, hand_clock)
    await before.flush()
    crash(journal)
    (path,) = tmp_path.glob("*.trace-journal")
    path.write_bytes(path.read_bytes()[:-cut])
    after = make_tracing(hand_clock, exported)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    after.pods.informer_synced()
    await after.flush()
    assert len(exported.traces) == 2


async def test_garbage_in_the_folder_harms_nobody(make_tracing, hand_clock, tmp_path):
    (tmp_path / "9-1.trace-journal").write_bytes(b"\xff" * 100)
    (tmp_path / "8-1.trace-journal").write_bytes(b"")
    make_tracing(hand_clock).use_journal(TraceJournal(tmp_path, SERVER))


async def test_an_orderly_end_leaves_no_file_unless_something_is_left_to_do(make_tracing, pod, hand_clock, tmp_path):
    journal = TraceJournal(tmp_path, SERVER)
    make_tracing(hand_clock).use_journal(journal)
    journal.close()
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_is_the_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="journal"):
        TraceJournal(tmp_path / "file" / "folder", SERVER)


async def test_what_is_written_later_is_only_what_is_new_and_nothing_is_missing_or_twice(
    make_tracing, pod, hand_clock, exported, tmp_path, crash
):
    before = make_tracing(hand_clock)
    journal = TraceJournal(tmp_path, SERVER)
    before.use_journal(journal)
    web = request(before, pod, hand_clock)
    (path,) = tmp_path.glob("*.trace-journal")
    sizes = []
    for _ in range(300):  # facts in the middle give way
        rejected(before, web, hand_clock)
        before.pods.sweep()
        journal.write_out()
        sizes.append(path.stat().st_size)
    steps = [after - earlier for earlier, after in itertools.pairwise(sizes)]
    assert sorted(steps)[len(steps) // 2] < 1_000 < sizes[-1] / 100
    before.pods.bind_started(web, "n1")
    record = before.pods.open_record(web.metadata.uid)
    crash(journal)
    after = make_tracing(hand_clock, exported, seed=2)
    after.use_journal(TraceJournal(tmp_path, SERVER))
    ((found, _),) = after.pods._restored.values()
    assert found.facts == [(w, at, a, b) for w, at, a, b in record.facts]
    assert (found.name, found.uid, found.observed_ns, found.link) == (
        record.name,
        record.uid,
        record.observed_ns,
        record.link,
    )
