"""Trace journal: after a crash, every pod has exactly one trace."""

from __future__ import annotations

import errno
import itertools
import os
import stat

import pytest

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.user_error import UserError
from kubeloop.tracing.journal import trace_journal as journal_module
from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.trace import Span, SpanEvent
from support.traces.span_tree import check_spans
from support.traces.traced_groups import TracedGroup, pod_group

SERVER = "https://cluster"


@pytest.fixture
def crash():
    """Simulate SIGKILL: the journal's file stays, its lock is released.

    The next process has the same ID, as in a container that was restarted.
    """

    def crash(journal):
        journal.write_out()
        os.close(journal._descriptor)
        journal._descriptor = -1

    return crash


def create_pod(tracing, pod, clock, name="web-5f-a"):
    traces = tracing.pods
    request = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
    traceparent, annotations = request.traceparent, request.annotations
    clock.pass_ms(2)
    web = pod(name, annotations=annotations)
    traces.created(traceparent, web)
    traces.observed(web)
    return web


def fail_attempt(tracing, web, clock):
    tracing.pods.queued(web, "active", "PodAdd")
    tracing.pods.attempt_started(web, 1)
    tracing.pods.attempt_finished(web, AttemptFacts("unschedulable", nodes=3, rejections={"NodeAffinity": 3}))
    tracing.pods.queued(web, "unschedulable", "ScheduleAttemptFailure")
    clock.pass_ms(10)


async def test_open_record_is_continued_after_crash(make_tracing, pod, manual_clock, exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    fail_attempt(before, web, manual_clock)
    await before.flush()
    crash(journal)
    manual_clock.ns = max(manual_clock.ns, os.stat(next(tmp_path.glob("*"))).st_mtime_ns) + 10**9
    after = make_tracing(manual_clock, exporter, seed=2, journal=TraceJournal(tmp_path, SERVER))
    after.pods.observed(web)
    after.restored_pods.informer_synced()
    manual_clock.pass_ms(5)
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    await after.flush()
    (trace,) = exporter.traces
    check_spans(trace)
    names = [span.name for span in trace.spans]
    assert names.count("create") == names.count("scheduling attempt") == names.count("not followed") == 1
    assert trace.root.attributes["kubeloop.continued"] is True
    assert trace.root.attributes["kubeloop.attempts"] == 1
    assert [event.name for event in trace.spans[names.index("scheduling attempt")].events] == ["rejected"]
    assert len([*tmp_path.glob("*.trace-journal")]) == 1, "the journal of the killed process is removed"


async def test_trace_until_ready_is_continued_after_crash(make_tracing, pod, manual_clock, exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, until_ready=True, journal=journal)
    annotations = create_pod(before, pod, manual_clock).metadata.annotations
    bound = pod("web-5f-a", annotations=annotations, node="n1")
    before.pods.observed(bound)
    await before.flush()
    crash(journal)
    manual_clock.ns = max(manual_clock.ns, os.stat(next(tmp_path.glob("*"))).st_mtime_ns) + 10**9
    after = make_tracing(manual_clock, exporter, seed=2, until_ready=True, journal=TraceJournal(tmp_path, SERVER))
    after.pods.observed(bound)
    after.restored_pods.informer_synced()
    await after.flush()
    assert exporter.traces == []
    manual_clock.pass_ms(5000)
    ready_at = manual_clock.now().replace(microsecond=0)
    conditions = {"Ready": rfc3339(ready_at)}
    after.pods.observed(pod("web-5f-a", annotations=annotations, node="n1", phase="Running", conditions=conditions))
    await after.flush()
    (trace,) = exporter.traces
    assert trace.trace_id == annotations["tracing.k8s.io/traceparent"][3:35]
    assert trace.root.attributes["kubeloop.outcome"] == "ready"
    assert round(ready_at.timestamp()) * 10**9 <= trace.root.end_ns <= manual_clock.ns


async def killed_group(make_tracing, pod, clock, folder, crash):
    """Record a failed attempt of a group of two pods, then kill the process."""
    journal = TraceJournal(folder, SERVER)
    before = make_tracing(clock, journal=journal)
    group = TracedGroup(before, pod, clock)
    before.groups.group_observed(pod_group())
    group.observe(0, 1)
    group.attempt("unschedulable", pods=2, message="no room")
    await before.flush()
    crash(journal)
    clock.ns = max(clock.ns, os.stat(next(folder.glob("*"))).st_mtime_ns) + 10**9
    return group


async def test_trace_of_a_group_is_continued_after_crash(make_tracing, pod, manual_clock, exporter, tmp_path, crash):
    group = await killed_group(make_tracing, pod, manual_clock, tmp_path, crash)
    (before,) = group.tracing.groups.open_records()
    group.tracing = after = make_tracing(manual_clock, exporter, seed=2, journal=TraceJournal(tmp_path, SERVER))
    group.observe(0, 1)  # the pods may be listed before the PodGroup
    after.groups.group_observed(pod_group())
    after.groups.informer_synced()
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    (trace,) = await group.finished(exporter)
    assert (trace.trace_id, trace.root.start_ns) == (before.context.trace_id, before.start_ns)
    assert trace.root.attributes["kubeloop.continued"] is True
    names = [span.name for span in trace.spans]
    assert names == [
        *("pod group", "group attempt", "group wait", "not followed", "group attempt", "group binding"),
    ]
    assert len(trace.root.links) == len(set(trace.root.links)) == 2


async def test_trace_of_a_group_deleted_while_not_running_ends(
    make_tracing, pod, manual_clock, exporter, tmp_path, crash
):
    group = await killed_group(make_tracing, pod, manual_clock, tmp_path, crash)
    group.tracing = after = make_tracing(manual_clock, exporter, seed=2, journal=TraceJournal(tmp_path, SERVER))
    assert await group.finished(exporter) == []
    after.groups.informer_synced()
    (trace,) = await group.finished(exporter)
    assert trace.root.error == "deleted while kubeloop was not running"
    assert (trace.spans[-1].name, trace.spans[-1].end_ns) == ("not followed", trace.root.end_ns)


async def test_undelivered_trace_of_a_group_is_exported_after_crash(
    make_tracing, pod, manual_clock, make_exporter, tmp_path, crash
):
    undelivered, recovered = make_exporter(), make_exporter()
    undelivered.delivered = list  # the collector did not respond in time
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, undelivered, journal=journal)
    group = TracedGroup(before, pod, manual_clock)
    before.groups.group_observed(pod_group(min_count=1))
    group.observe(0)
    group.bind(0)
    (expected,) = await group.finished(undelivered)
    crash(journal)
    group.tracing = make_tracing(manual_clock, recovered, seed=2, journal=TraceJournal(tmp_path, SERVER))
    assert await group.finished(recovered) == [expected]


async def test_undelivered_trace_is_exported_with_same_ids_after_crash(
    make_tracing, pod, manual_clock, make_exporter, tmp_path, crash
):
    undelivered, recovered = make_exporter(), make_exporter()
    undelivered.delivered = list  # the collector did not respond in time
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, undelivered, journal=journal)
    web = create_pod(before, pod, manual_clock)
    before.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    before.reconciles.reconcile("replicaset", "shop/web-5f").finish(changed=True)
    await before.flush()
    crash(journal)
    after = make_tracing(manual_clock, recovered, seed=2, journal=TraceJournal(tmp_path, SERVER))
    await after.flush()
    expected, exported = ({trace.trace_id: trace for trace in e.traces} for e in (undelivered, recovered))
    assert exported == expected
    assert len(recovered.traces) == 2


async def test_delivered_trace_is_not_exported_again(make_tracing, pod, manual_clock, make_exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    before.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    await before.flush()
    crash(journal)
    recovered = make_exporter()
    after = make_tracing(manual_clock, recovered, journal=TraceJournal(tmp_path, SERVER))
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1"))
    after.restored_pods.informer_synced()
    await after.flush()
    assert recovered.traces == []


@pytest.mark.parametrize("created", [True, False])
async def test_pod_deleted_between_processes_has_trace(
    make_tracing, pod, manual_clock, exporter, tmp_path, crash, created
):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    if created:
        fail_attempt(before, create_pod(before, pod, manual_clock), manual_clock)
        await before.flush()
    else:
        about = {"namespace": "shop", "owner_kind": "ReplicaSet", "owner_name": "web-5f"}
        before.pods.create_requested(**about)
    crash(journal)
    manual_clock.pass_ms(60_000)
    after = make_tracing(manual_clock, exporter, journal=TraceJournal(tmp_path, SERVER))
    after.restored_pods.informer_synced()
    await after.flush()
    (trace,) = exporter.traces
    check_spans(trace)
    assert trace.root.attributes["kubeloop.outcome"] == ("deleted" if created else "create failed")


async def test_pod_bound_during_crash_ends_at_binding_time(make_tracing, pod, manual_clock, exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    before.pods.bind_started(web, "n1")
    crash(journal)
    manual_clock.pass_ms(3_600_000)
    after = make_tracing(manual_clock, exporter, journal=TraceJournal(tmp_path, SERVER))
    scheduled = {"PodScheduled": "2026-01-01T12:00:01Z"}
    after.pods.observed(pod("web-5f-a", annotations=web.metadata.annotations, node="n1", conditions=scheduled))
    await after.flush()
    (trace,) = exporter.traces
    assert trace.root.attributes["kubeloop.outcome"] == "bound"
    assert "bind" in {span.name for span in trace.spans}


async def test_journal_of_running_process_or_other_cluster_is_kept(
    make_tracing, pod, manual_clock, exporter, tmp_path, crash
):
    alive = TraceJournal(tmp_path, SERVER)
    (alive_path,) = tmp_path.glob("*.trace-journal")
    alive_path.rename(alive_path.with_name("77-1.trace-journal"))
    other_cluster = TraceJournal(tmp_path, "https://other_cluster")
    tracing = make_tracing(manual_clock, journal=other_cluster)
    fail_attempt(tracing, create_pod(tracing, pod, manual_clock, "b"), manual_clock)
    crash(other_cluster)
    files = {path.name for path in tmp_path.glob("*.trace-journal")}
    after = make_tracing(manual_clock, exporter, journal=TraceJournal(tmp_path, SERVER))
    after.restored_pods.informer_synced()
    await after.flush()
    assert exporter.traces == []
    assert files < {path.name for path in tmp_path.glob("*.trace-journal")}
    alive.close()


async def test_rotation_loses_no_records(make_tracing, pod, manual_clock, make_exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER, rotate_bytes=10_000)
    before = make_tracing(manual_clock, journal=journal)
    pending = [create_pod(before, pod, manual_clock, f"waits-{number}") for number in range(250)]
    sizes = []
    for number in range(100):
        web = create_pod(before, pod, manual_clock, f"goes-{number}")
        before.pods.observed(pod(f"goes-{number}", annotations=web.metadata.annotations, node="n1"))
        await before.flush()
        journal.write_out()
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.trace-journal")))
    assert journal._number > 2
    crash(journal)
    if journal._old is not None:
        os.close(journal._old[1])
    recovered = make_exporter()
    after = make_tracing(manual_clock, recovered, journal=TraceJournal(tmp_path, SERVER))
    after.restored_pods.informer_synced()
    await after.flush()
    assert {trace.root.attributes["k8s.pod.name"] for trace in recovered.traces} == {w.metadata.name for w in pending}


@pytest.mark.parametrize("writes", range(8))
async def test_full_disk_disables_journal_and_closes_files_once(
    make_tracing, pod, manual_clock, tmp_path, monkeypatch, writes
):
    journal = TraceJournal(tmp_path, SERVER, rotate_bytes=100)
    tracing = make_tracing(manual_clock, journal=journal)
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
        create_pod(tracing, pod, manual_clock, f"first-{number}")
        await tracing.flush()
        journal.write_out()
        create_pod(tracing, pod, manual_clock, f"then-{number}")
        await tracing.flush()
        journal.rotate()
    journal.close()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("cut", [1, 7, 100])
async def test_incomplete_last_entry_is_ignored(make_tracing, pod, manual_clock, exporter, tmp_path, crash, cut):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    create_pod(before, pod, manual_clock, "a")
    web = create_pod(before, pod, manual_clock, "b")
    await before.flush()
    fail_attempt(before, web, manual_clock)
    await before.flush()
    crash(journal)
    (path,) = tmp_path.glob("*.trace-journal")
    path.write_bytes(path.read_bytes()[:-cut])
    after = make_tracing(manual_clock, exporter, journal=TraceJournal(tmp_path, SERVER))
    after.restored_pods.informer_synced()
    await after.flush()
    assert len(exporter.traces) == 2


async def test_invalid_files_in_folder_are_ignored(make_tracing, manual_clock, tmp_path):
    (tmp_path / "9-1.trace-journal").write_bytes(b"\xff" * 100)
    (tmp_path / "8-1.trace-journal").write_bytes(b"")
    os.mkfifo(tmp_path / "7-1.trace-journal")  # opening it for reading would wait for a writer
    (tmp_path / "6-1.trace-journal").symlink_to("/dev/zero")
    make_tracing(manual_clock, journal=TraceJournal(tmp_path, SERVER))


async def test_close_removes_empty_journal(make_tracing, pod, manual_clock, tmp_path):
    journal = TraceJournal(tmp_path, SERVER)
    make_tracing(manual_clock, journal=journal)
    journal.close()
    assert [*tmp_path.iterdir()] == []


def test_journal_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        journal = TraceJournal(tmp_path / "journal", SERVER)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "journal").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    journal.close()


def test_invalid_folder_is_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="journal"):
        TraceJournal(tmp_path / "file" / "folder", SERVER)


async def test_later_writes_have_only_new_facts(make_tracing, pod, manual_clock, exporter, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    (path,) = tmp_path.glob("*.trace-journal")
    sizes = []
    for _ in range(300):  # facts in the middle are dropped
        fail_attempt(before, web, manual_clock)
        before.open_pods.sweep()
        journal.write_out()
        sizes.append(path.stat().st_size)
    steps = [after - earlier for earlier, after in itertools.pairwise(sizes)]
    assert sorted(steps)[len(steps) // 2] < 1_000 < sizes[-1] / 100
    before.pods.bind_started(web, "n1")
    record = before.open_pods.get(web.metadata.uid)
    crash(journal)
    after = make_tracing(manual_clock, exporter, seed=2, journal=TraceJournal(tmp_path, SERVER))
    ((restored, _),) = after.restored_pods._by_key.values()
    assert restored.facts == record.facts
    assert (restored.name, restored.uid, restored.observed_ns, restored.link) == (
        record.name,
        record.uid,
        record.observed_ns,
        record.link,
    )


async def test_fact_that_ends_after_it_was_written_is_written_again(make_tracing, pod, manual_clock, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    before.pods.attempt_started(web, 1)
    before.pods.queued(web, "active")
    before.open_pods.sweep()
    journal.write_out()
    before.pods.attempt_finished(web, AttemptFacts("scheduled", node="n1"))
    before.pods.bind_started(web, "n1")
    journal.write_out()
    before.pods.bind_finished(web, "409 conflict")
    before.open_pods.sweep()
    record = before.open_pods.get(web.metadata.uid)
    crash(journal)
    after = make_tracing(manual_clock, seed=2, journal=TraceJournal(tmp_path, SERVER))
    ((restored, _),) = after.restored_pods._by_key.values()
    assert restored.facts == record.facts
    assert restored.facts[0].result.node == "n1"
    assert restored.facts[-1].error == "409 conflict"


async def test_journal_of_another_version_is_reported(
    make_tracing, pod, manual_clock, tmp_path, crash, caplog, monkeypatch
):
    monkeypatch.setattr(journal_module, "_FORMAT", 3)
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    create_pod(before, pod, manual_clock)
    crash(journal)
    monkeypatch.undo()
    after = make_tracing(manual_clock, seed=2, journal=TraceJournal(tmp_path, SERVER))
    assert not after.restored_pods._by_key
    (log_record,) = caplog.records
    assert "another version of kubeloop" in log_record.getMessage()


async def test_spans_of_plugins_are_restored(make_tracing, pod, manual_clock, tmp_path, crash):
    journal = TraceJournal(tmp_path, SERVER)
    before = make_tracing(manual_clock, journal=journal)
    web = create_pod(before, pod, manual_clock)
    journal.write_out()
    span = Span("check", "11" * 8, 1, 2, "", {"racks": ["a"], "free": [1, 2]}, events=(SpanEvent("answered", 2),))
    record = before.open_pods.get(web.metadata.uid)
    record.add_plugin_span(span)
    before.open_pods.sweep()
    crash(journal)
    after = make_tracing(manual_clock, seed=2, journal=TraceJournal(tmp_path, SERVER))
    ((restored, _),) = after.restored_pods._by_key.values()
    assert restored.plugin_spans == (span,)
