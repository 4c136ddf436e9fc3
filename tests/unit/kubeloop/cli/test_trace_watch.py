"""Watching a pod with `kubeloop trace --watch`, without a terminal."""

import json

from kubeloop.cli import trace_watch
from kubeloop.cli.trace_watch import watch_traces
from kubeloop.process.endpoint.trace_targets import Target
from support.trace_documents import document, span


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
