"""Facts of a pod record: where each ends, and which of them the journal has as they are."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.kube.objects.observed_types import ObservedPod
from kubeloop.tracing.spans.pod_record import (
    TERMINATING,
    AttemptFacts,
    Gap,
    Phase,
    PodRecord,
    SchedulingAttempt,
    Wait,
    timeline,
)
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.traceparent import TraceContext
from kubeloop.tracing.views.pod_lines import owners_of


def record_of(*facts, **fields):
    return PodRecord(TraceContext("1" * 32, "2" * 16, True).traceparent, 0, facts=[*facts], **fields)


@pytest.mark.parametrize(
    ("facts", "ends", "woken_by"),
    [
        pytest.param(
            [Wait(1, "active"), SchedulingAttempt(5, 1, 6)], [5, 6], ["", ""], id="a wait ends with the next attempt"
        ),
        pytest.param(
            [Wait(1, "unschedulable"), Wait(5, "active", "NodeAdd")],
            [5, 100],
            ["NodeAdd", ""],
            id="a wait ends with the next wait, whose reason woke the pod",
        ),
        pytest.param([Wait(1, "active"), Wait(5, TERMINATING)], [5, 100], ["", ""], id="a deletion wakes nothing"),
        pytest.param([Wait(1, "active"), Phase(5, "bind", "n", 9)], [100, 9], ["", ""], id="a phase ends no wait"),
        pytest.param([Wait(1, "active"), Gap(5, 9, "")], [5, 9], ["", ""], id="a wait ends with a gap"),
        pytest.param(
            [SchedulingAttempt(1, 1), SchedulingAttempt(5, 2)],
            [5, 100],
            ["", ""],
            id="an attempt ends with the next one",
        ),
        pytest.param(
            [SchedulingAttempt(1, 1), Phase(2, "permit"), Gap(5, 9, ""), Phase(10, "bind")],
            [5, 5, 9, 100],
            ["", "", "", ""],
            id="a gap ends attempts and phases",
        ),
    ],
)
def test_timeline_ends_every_fact(facts, ends, woken_by):
    entries = timeline(record_of(*facts), now_ns=100)
    assert [fact for fact, _, _ in entries] == facts
    assert [end_ns for _, end_ns, _ in entries] == ends
    assert [event for _, _, event in entries] == woken_by


def test_open_facts_end_when_the_pod_is_bound_else_with_the_trace():
    assert timeline(record_of(Wait(1, "active"), bound_ns=7, end_ns=9)) == [(Wait(1, "active"), 7, "")]
    assert timeline(record_of(Wait(1, "active"), end_ns=9)) == [(Wait(1, "active"), 9, "")]


def test_only_the_last_attempt_and_phase_are_finished_once():
    record = record_of(SchedulingAttempt(1, 1), SchedulingAttempt(3, 2), Phase(4, "permit"), Phase(5, "bind"))
    record.finish_attempt(6, AttemptFacts("scheduled"))
    record.finish_attempt(7, AttemptFacts("error"))
    record.finish_phase("permit", 8, "denied")
    record.finish_phase("permit", 9, None)
    record.finish_phase("pre-bind", 9, None)
    assert record.facts == [
        SchedulingAttempt(1, 1),
        SchedulingAttempt(3, 2, 6, AttemptFacts("scheduled")),
        Phase(4, "permit", "", 8, "denied"),
        Phase(5, "bind"),
    ]
    assert record.finished_facts == 2


def test_finished_fact_must_be_written_to_the_journal_again():
    record = record_of(SchedulingAttempt(1, 1), Phase(2, "reserve", "n", 3), Wait(4, "active"), journaled_facts=3)
    record.finish_phase("bind", 5, None)
    assert record.journaled_facts == 3
    record.finish_attempt(5, AttemptFacts("scheduled"))
    assert record.journaled_facts == 0


def test_middle_of_a_long_history_becomes_one_gap():
    record = record_of(journaled_facts=25)
    for number in range(25):
        record.add(Wait(number, "active"), 24)
    gap = Gap(8, 16, "only the first and last attempts are recorded", dropped=True)
    assert record.facts == [*(Wait(n, "active") for n in range(8)), gap, *(Wait(n, "active") for n in range(16, 25))]
    assert record.journaled_facts == 8
    for number in range(25, 100):
        record.add(Wait(number, "active"), 24)
    gaps = [fact for fact in record.facts if type(fact) is Gap]
    assert [(fact.start_ns, fact.end_ns) for fact in gaps] == [(8, record.facts[9].start_ns)]


@pytest.mark.parametrize(
    ("fields", "owners"),
    [
        pytest.param({}, [], id="no owner"),
        pytest.param({"owner_kind": "StatefulSet", "owner_name": "db"}, ["statefulset/db"], id="controller only"),
        pytest.param(
            {"owner_kind": "ReplicaSet", "owner_name": "web-5f", "template_hash": "5f"},
            ["deployment/web", "replicaset/web-5f"],
            id="Deployment by the template hash",
        ),
        pytest.param(
            {"owner_kind": "Job", "owner_name": "n-1", "top_owner_kind": "CronJob", "top_owner_name": "n"},
            ["cronjob/n", "job/n-1"],
            id="topmost owner above the controller",
        ),
        pytest.param(
            {"owner_kind": "Job", "owner_name": "once", "top_owner_kind": "Job", "top_owner_name": "once"},
            ["job/once"],
            id="controller is the topmost owner",
        ),
        pytest.param(
            {"owner_kind": "Job", "owner_name": "once", "group_name": "train"},
            ["job/once", "podgroup/train"],
            id="pod group after the owners",
        ),
        pytest.param({"group_name": "train"}, ["podgroup/train"], id="pod group without an owner"),
    ],
)
def test_owners_are_listed_from_top_to_bottom(fields, owners):
    record = record_of(**fields)
    assert record.owners == owners
    assert owners_of(pod_trace(record).root.attributes) == owners


def test_group_is_that_of_the_pod(pod):
    record = record_of()
    record.set_pod(pod("a", group="train"))
    assert record.group_name == "train"
    observed = msgspec.convert({"spec": {"schedulingGroup": {"podGroupName": "other"}}}, ObservedPod)
    record.set_observed_pod(observed)
    assert record.group_name == "other"
