"""Watching pods and pod groups with `kubeloop trace --watch`."""

import json

import msgspec
import pytest

from kubeloop.cli.trace import watch as trace_watch
from kubeloop.cli.trace.watch import watch_traces
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.views.pod_lines import pod_line
from kubeloop.tracing.views.rollout import rollout
from support.traces.trace_documents import NS, document, rendered, span


class ScriptedTraces:
    """Returns the documents of a pod in turn."""

    def __init__(self, *documents):
        self._documents = iter(documents)

    def trace(self, target):
        assert target == Target("pod", "web-1", "shop")
        return next(self._documents)


def watch(monkeypatch, *documents, as_json=False):
    monkeypatch.setattr(trace_watch, "_POLL_SECONDS", 0)
    return watch_traces(ScriptedTraces(*documents), Target("pod", "web-1", "shop"), as_json=as_json)


def test_json_watch_prints_each_state_until_the_pod_is_bound(monkeypatch, capsys):
    states = [document(outcome="open", end_ms=10), document(end_ms=100)]
    assert watch(monkeypatch, *states, as_json=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["spans"][0]["attributes"]["kubeloop.outcome"] for line in lines] == ["open", "bound"]


def test_text_watch_prints_each_ended_span_once(monkeypatch, capsys):
    queued = span("queue active", 0, 5)
    states = [document(queued, outcome="open", end_ms=10), document(queued, span("bind", 20, 100), end_ms=100)]
    assert watch(monkeypatch, *states) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "+0" in lines[0]
    assert "5.00 ms" in lines[0]


LINE = pod_line(document(span("queue active", 0, 5), outcome="open", end_ms=10))
QUORUM = span("quorum wait", 0, 20, kubeloop__pod_group__min_count=2)
ATTEMPT = span("group attempt", 20, 25, kubeloop__attempt=1)
BINDING = span("group binding", 25, 40, kubeloop__bound_pods=2)


def event(name, at_ms, **attributes):
    return {
        "name": name,
        "time": at_ms * NS,
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    }


def group_document(*children, end_ms, outcome="open", events=()):
    attributes = {
        "k8s__namespace__name": "shop",
        "kubeloop__pod_group__name": "train",
        "kubeloop__pod_group__outcome": outcome,
    }
    root = span("pod group", 0, end_ms, parent="", span_id="root", **attributes)
    return {"traceId": "cd" * 16, "spans": [{**root, "events": [*events]}, *children]}


GROUP_STATES = [
    group_document(span("quorum wait", 0, 10), end_ms=10),
    group_document(QUORUM, ATTEMPT, span("group binding", 25, 30), end_ms=30),
    group_document(
        *(QUORUM, ATTEMPT, BINDING),
        end_ms=40,
        outcome="bound",
        events=[
            event("quorum reached", 20),
            event("placement found", 25, kubeloop__placement="rack=a"),
            event("last pod bound", 40),
        ],
    ),
]


class GroupTraces:
    """A pod of a group, and the states of the group's trace in turn; then the user presses Ctrl-C."""

    def __init__(self):
        self._states = iter(GROUP_STATES)

    def line_feed(self, target):
        assert target == Target("podgroup", "train", "shop")
        return self

    def catch_up(self):
        return []

    def now(self):
        return [msgspec.structs.replace(LINE, group_trace_id="cd" * 16)]

    def linked_trace(self, trace_id):
        assert trace_id == "cd" * 16
        state = next(self._states, None)
        if state is None:
            raise KeyboardInterrupt
        return state


def watch_group(monkeypatch, **options):
    monkeypatch.setattr(trace_watch, "_POLL_SECONDS", 0)
    return watch_traces(GroupTraces(), Target("podgroup", "train", "shop"), **options)


def test_text_watch_of_a_group_prints_its_steps_once(monkeypatch, capsys):
    assert watch_group(monkeypatch, as_json=False) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("+")] == [
        "+0 µs quorum wait 20.0 ms until 2 pods exist (minCount)",
        "+20.0 ms group attempt 1 5.00 ms",
        "+25.0 ms group binding 15.0 ms",
        "+0 µs pod group shop/train 40.0 ms first pod, quorum reached after 20.0 ms, placement found (rack=a) after "
        "25.0 ms, last pod bound after 40.0 ms",
    ]
    assert sum("1 pod: 1 " in line for line in lines) == 1


def test_json_watch_of_a_group_prints_its_trace_as_steps_end(monkeypatch, capsys):
    assert watch_group(monkeypatch, as_json=True) == 0
    groups = [json.loads(line)["group"] for line in capsys.readouterr().out.splitlines()]
    assert groups == GROUP_STATES[1:]


@pytest.mark.parametrize("rows", [6, 40])
def test_screen_of_a_group_has_its_steps_above_its_pods(rows):
    text = rendered(trace_watch._rollout(rollout("podgroup shop/train", [LINE]), GROUP_STATES[-1], rows), width=160)
    places = [text.index(part) for part in ("quorum wait", "group binding", "last pod bound after", "1 pod: 1 ")]
    assert places == sorted(places)
