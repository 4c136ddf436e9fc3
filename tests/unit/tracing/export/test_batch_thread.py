"""Thread that sends traces in batches: drops, failures and shutdown."""

from __future__ import annotations

import logging
import math
import threading

from kubeloop.tracing.export.batch_thread import BatchSettings, BatchThread, batch_settings
from support.processes.cli_processes import TIMEOUT_SECONDS, wait_until
from support.traces.trace_metrics import CountingMetrics

SMALL = BatchSettings(queue_spans=10, batch_spans=4, delay_seconds=0.01)


def test_items_are_sent_in_order_and_in_whole_traces():
    batches, metrics = [], CountingMetrics()
    thread = BatchThread("x", SMALL, batches.append, metrics)
    for number in range(3):
        thread.put(number, 3, f"key {number}")
    thread.shut_down(TIMEOUT_SECONDS)
    assert batches == [[0], [1], [2]], "a batch of 4 spans has no room for a second trace"
    assert thread.delivered() == ["key 0", "key 1", "key 2"]
    assert thread.delivered() == []
    assert metrics.exported == 9


def test_blocked_sender_blocks_neither_queue_nor_shutdown(caplog):
    sending, blocked, metrics = threading.Event(), threading.Event(), CountingMetrics()

    def send(batch):
        sending.set()
        blocked.wait(TIMEOUT_SECONDS)

    thread = BatchThread("x", SMALL, send, metrics)
    for number in range(100):
        thread.put(number, 2, "")
    assert sending.wait(TIMEOUT_SECONDS)
    assert thread._spans <= 10
    assert metrics.dropped["queue full"] >= 180
    thread.shut_down(0.01)
    assert "timeout while exporting the last spans to x" in caplog.text
    blocked.set()
    thread._thread.join(TIMEOUT_SECONDS)
    assert not thread._thread.is_alive()
    assert metrics.exported + sum(metrics.dropped.values()) == 200
    assert metrics.dropped["shutdown"] > 0


def test_failure_drops_the_batch_and_is_logged_once_until_success(caplog):
    caplog.set_level(logging.WARNING)
    failures, metrics = [("export failed", "no"), ("export failed", "no"), None], CountingMetrics()
    thread = BatchThread("x", SMALL, lambda batch: failures.pop(0), metrics)
    for number in range(3):
        thread.put(number, 4, str(number))
    thread.shut_down(TIMEOUT_SECONDS)
    assert metrics.dropped == {"export failed": 8}
    assert metrics.exported == 4
    assert thread.delivered() == ["0", "1", "2"], "the journal deletes dropped traces too"
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(" ")[0] for message in messages] == ["cannot", "traces"]


def test_batch_is_sent_again_while_dropping_only_if_the_destination_requests_it():
    retries = []

    def send(batch):
        retries.append([thread.wait_for_retry(0.001, math.inf, requested=requested) for requested in (False, True)])
        return "export failed", "no"

    thread = BatchThread("x", SMALL, send, CountingMetrics())
    for number in range(2):
        thread.put(number, 4, "")
    wait_until(lambda: len(retries) == 2, "two batches are sent")
    assert retries == [[True, True], [False, True]]
    thread.shut_down(TIMEOUT_SECONDS)


def test_close_is_called_once_after_the_last_batch():
    calls = []
    thread = BatchThread("x", SMALL, calls.append, CountingMetrics(), lambda: calls.append("closed"))
    thread.put(1, 1, "")
    thread.shut_down(TIMEOUT_SECONDS)
    assert calls == [[1], "closed"]
    unused = BatchThread("x", SMALL, calls.append, CountingMetrics(), lambda: calls.append("closed too"))
    unused.shut_down(TIMEOUT_SECONDS)
    assert calls[2:] == ["closed too"]


def test_batch_is_not_larger_than_the_queue():
    environ = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "250"}
    settings = batch_settings(environ, queue_spans=1_000, batch_spans=500)
    assert settings == BatchSettings(queue_spans=100, batch_spans=100, delay_seconds=0.25)
