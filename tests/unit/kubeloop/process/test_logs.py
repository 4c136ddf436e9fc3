"""Log records with fields and trace ids, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
import random
import sys

import pytest

from kubeloop.kube.clock import SystemClock
from kubeloop.process.logs import TraceFilter, configure_logging, configure_packages
from kubeloop.tracing.provider import Tracing


@pytest.fixture
def logged(monkeypatch):
    """Configure logging with a format; yield the logger and a function that returns its output."""
    root = logging.getLogger()
    before, levels = root.handlers[:], (root.level, logging.getLogger("kubeloop").level)
    written = io.StringIO()

    def configure(log_format):
        monkeypatch.setattr(sys, "stderr", written)
        root.handlers.clear()
        configure_logging("info", log_format)
        return logging.getLogger("kubeloop.test"), written

    yield configure
    root.handlers[:] = before
    root.setLevel(levels[0])
    logging.getLogger("kubeloop").setLevel(levels[1])


def traced():
    return Tracing(clock=SystemClock(), rng=random.Random(1), environ={}).reconciles.reconcile("deployment", "a/b")


def test_text_format_has_fields_and_trace_ids(logged):
    log, written = logged("text")
    reconcile = traced()
    log.warning("binding failed", extra={"pod": "a/web-1", "node": "n1"})
    reconcile.finish(changed=True)
    log.info("idle")
    first, second = written.getvalue().splitlines()
    _, trace_id, span_id, _ = reconcile.traceparent.split("-")
    assert first.endswith(
        f"WARNING kubeloop.test: binding failed [pod=a/web-1 node=n1 trace_id={trace_id} span_id={span_id}]"
    )
    assert second.endswith("INFO kubeloop.test: idle")


def test_text_format_omits_fields_that_the_message_has(logged):
    log, written = logged("text")
    log.warning("failed: %s: %s", "a/web", OSError("no disk"), extra={"key": "a/web", "error": "no disk", "times": 1})
    log.warning("%d things", 2, extra={"count": 2, "more": "2 things"})
    log.warning("%(first)s", {"first": "x"}, extra={"pod": "x"})
    first, second, third = written.getvalue().splitlines()
    assert first.endswith("failed: a/web: no disk [times=1]")
    assert second.endswith("2 things [more=2 things]")
    assert third.endswith("x [pod=x]")


def test_json_format_has_one_object_per_line(logged):
    log, written = logged("json")
    reconcile = traced()
    log.warning("failed %d times", 3, extra={"pod": "a/web-1", "level": "mine", "error": ValueError("x")})
    reconcile.finish(changed=True)
    try:
        raise OSError("no\ndisk")
    except OSError:
        log.exception("crashed")
    first, second = map(json.loads, written.getvalue().splitlines())
    _, trace_id, span_id, _ = reconcile.traceparent.split("-")
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "kubeloop.test",
        "message": "failed 3 times",
        "pod": "a/web-1",
        "level_": "mine",
        "error": "x",
        "trace_id": trace_id,
        "span_id": span_id,
    }
    assert "trace_id" not in second
    assert "OSError: no\ndisk" in second["error"]


def test_records_of_other_libraries_have_no_trace(logged):
    _, written = logged("json")
    tracing = Tracing(clock=SystemClock(), rng=random.Random(1), environ={})
    reconcile = tracing.reconciles.reconcile("deployment", "a/b")
    logging.getLogger("somebody").warning("else")
    reconcile.finish(changed=False)
    assert "trace_id" not in json.loads(written.getvalue())
    assert tracing.recent.reconciles() == []


def test_records_of_an_authors_package_have_level_and_trace(logged, monkeypatch):
    _, written = logged("json")
    monkeypatch.setattr(logging.getLogger("my_operator"), "level", logging.NOTSET)
    monkeypatch.setattr("kubeloop.process.logs._traces.packages", {"kubeloop"})
    configure_packages({"my_operator"}, "info")
    reconcile = traced()
    logging.getLogger("my_operator.dns").info("record set")
    logging.getLogger("my_operator.dns").debug("too much")
    reconcile.finish(changed=True)
    [record] = map(json.loads, written.getvalue().splitlines())
    _, trace_id, span_id, _ = reconcile.traceparent.split("-")
    assert (record["message"], record["trace_id"], record["span_id"]) == ("record set", trace_id, span_id)


def test_filter_adds_traces_to_the_handlers_of_a_program():
    record = logging.makeLogRecord({"name": "my_operator.dns", "msg": "record set"})
    other = logging.makeLogRecord({"name": "other", "msg": "x"})
    reconcile = traced()
    assert TraceFilter("my_operator").filter(record)
    assert TraceFilter("my_operator").filter(other)
    reconcile.finish(changed=True)
    assert reconcile.traceparent.split("-")[1:3] == [record.trace_id, record.span_id]
    assert not hasattr(other, "trace_id")


def test_records_follow_a_replaced_stderr(logged, monkeypatch):
    log, before = logged("text")
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stderr", replaced)  # as a live display does on a terminal
    log.warning("late")
    assert (before.getvalue(), replaced.getvalue().split()[-1]) == ("", "late")
