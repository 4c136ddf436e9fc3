"""Sources of traces: files, and the line feed of a running process."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kubeloop.cli.trace.sources import FileTraces, LineFeed
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.views.otlp_json import to_otlp
from support.traces.trace_documents import document, span


def response(cursor: str, lines: dict[str, str], *, removed: tuple[str, ...] = (), **flags: bool) -> Any:
    entries = [SimpleNamespace(key=key, text=text) for key, text in lines.items()]
    options = {"reset": False, "more": False, **flags}
    return SimpleNamespace(cursor=cursor, lines=entries, removed=removed, now_us=1, **options)


def feed(*responses: Any) -> tuple[LineFeed, list[str]]:
    cursors: list[str] = []
    remaining = iter(responses)

    def get_changes(cursor: str) -> Any:
        cursors.append(cursor)
        return next(remaining)

    return LineFeed(get_changes), cursors


def test_feed_polls_until_there_are_no_more_changes():
    line_feed, cursors = feed(response("1", {"a": "old"}, more=True), response("2", {"a": "new", "b": "x"}))
    assert {line.key: line.text for line in line_feed.catch_up()} == {"a": "new", "b": "x"}
    assert cursors == ["", "1"]


def test_feed_returns_only_lines_after_a_reset():
    line_feed, _ = feed(response("1", {"a": "x"}, more=True), response("2", {"b": "y"}, reset=True))
    assert [line.key for line in line_feed.catch_up()] == ["b"]


@pytest.mark.parametrize(
    ("content", "problem"), [(b"no json", "is not OTLP JSON"), (b"[1]", "is not OTLP JSON"), (None, "cannot read")]
)
def test_unusable_file_is_rejected_with_its_path(tmp_path, content, problem):
    path = tmp_path / "traces.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=problem) as raised:
        FileTraces(path)
    assert "traces.json" in str(raised.value)


def test_file_without_traces_has_no_documents(tmp_path):
    path = tmp_path / "traces.json"
    path.write_text('{"resourceSpans": []}')
    assert list(FileTraces(path).documents(Target())) == []


def test_file_with_a_group_has_its_trace_and_pods(tmp_path):
    group = {"traceId": "a" * 32, "spans": [span("pod group", 0, 10, parent="", span_id="1" * 16)]}
    links = [{"traceId": "a" * 32, "spanId": "1" * 16, "attributes": {"kubeloop.link": "pod group"}}]
    documents = [group]
    for number in (0, 1):
        trace = document(name=f"train-{number}", kubeloop__pod_group__name="train")
        trace["traceId"] = f"{number + 1:032x}"
        trace["spans"][0] |= {"spanId": f"{number + 1:016x}", "links": links}
        documents.append(trace)
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(to_otlp(documents, version="1")))
    traces, target = FileTraces(path), Target("podgroup", "train")
    assert sorted(line.name for line in traces.lines(target)) == ["train-0", "train-1"]
    assert traces.linked_trace("a" * 32)["spans"][0]["name"] == "pod group"
    assert traces.linked_trace("b" * 32) is None
    assert sorted(trace["traceId"] for trace in traces.documents(target)) == sorted(
        trace["traceId"] for trace in documents
    )
