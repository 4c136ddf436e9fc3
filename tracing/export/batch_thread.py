"""Bounded queue of traces, and the thread that sends them in batches of whole traces, so that no exporter blocks the
event loop.

    put(item): on the loop -> bounded queue -> thread: send(batch) -> delivered()

Limits are those of OpenTelemetry's batch span processor (OTEL_BSP_*).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kubeloop.tracing.metrics_interface import DropReason, TraceMetrics

log = logging.getLogger(__name__)

T = TypeVar("T")

DELAY_SECONDS: Final = 5.0
BATCH_SECONDS: Final = 30.0  # per batch, including retries


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Limits of the queue. Times in seconds, sizes in spans.

    queue_spans    beyond, the oldest traces are dropped
    batch_spans    sent at once
    delay_seconds  until a smaller batch is sent
    batch_seconds  after which a batch is given up, if the exporter retries
    """

    queue_spans: int
    batch_spans: int
    delay_seconds: float = DELAY_SECONDS
    batch_seconds: float = BATCH_SECONDS


def batch_settings(environ: Mapping[str, str], *, queue_spans: int, batch_spans: int) -> BatchSettings:
    """Read the OTEL_BSP_* variables; the parameters are the defaults. Logs and ignores invalid values."""

    def value(name: str, default: float) -> float:
        return positive_number(f"OTEL_BSP_{name}", environ.get(f"OTEL_BSP_{name}", "").strip(), default)

    queue = value("MAX_QUEUE_SIZE", queue_spans)
    return BatchSettings(
        queue_spans=int(queue),
        batch_spans=int(min(queue, value("MAX_EXPORT_BATCH_SIZE", batch_spans))),
        delay_seconds=value("SCHEDULE_DELAY", DELAY_SECONDS * 1000) / 1000,
        batch_seconds=value("EXPORT_TIMEOUT", BATCH_SECONDS * 1000) / 1000,
    )


class BatchThread(Generic[T]):
    """Sends items, one per trace, to a destination. Starts its thread with the first item; shut_down() ends it.

    _queue and _spans are shared with the thread, under _changed. _delivered holds the keys of traces that were sent or
    dropped until delivered() is called.
    """

    def __init__(
        self,
        destination: str,
        settings: BatchSettings,
        send: Callable[[list[T]], tuple[DropReason, str] | None],
        metrics: TraceMetrics,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`destination`: for log messages. `send` is called in the thread and returns None on success, else reason and
        text of the failure. `close` is called in the thread at its end."""
        self._destination = destination
        self._settings = settings
        self._send = send
        self._metrics = metrics
        self._close = close
        self._queue: deque[tuple[T, int, str]] = deque()
        self._spans = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop_at: float | None = None
        self._delivered: deque[str] = deque()
        self._is_dropping = False  # the last batch could not be sent

    def put(self, item: T, spans: int, key: str) -> None:
        """Queue a trace. `key`: returned by delivered() when the trace was sent or dropped; "": none."""
        dropped = 0
        with self._changed:
            self._queue.append((item, spans, key))
            self._spans += spans
            while self._spans > self._settings.queue_spans and len(self._queue) > 1:
                dropped += self._drop_oldest()
            if self._spans >= self._settings.batch_spans:
                self._changed.notify()
        if dropped:
            self._report_dropped("queue full", dropped)
        if self._thread is None:
            self._start()

    def delivered(self) -> list[str]:
        """Return the keys of traces that were sent or dropped since the last call."""
        return [self._delivered.popleft() for _ in range(len(self._delivered))]

    def shut_down(self, within_seconds: float) -> None:
        """Send the remaining traces and wait for them. A thread that does not end in time is abandoned."""
        with self._changed:
            self._stop_at = time.monotonic() + within_seconds
            self._changed.notify()
        if self._thread is None:
            self._start()
        assert self._thread is not None
        self._thread.join(within_seconds + 0.5)
        if self._thread.is_alive():
            log.warning("timeout while exporting the last spans to %s", self._destination)

    def seconds_until_stop(self) -> float:
        """Return the seconds that are left for sending; infinite before shut_down()."""
        with self._changed:
            return math.inf if self._stop_at is None else max(0.0, self._stop_at - time.monotonic())

    def wait_for_retry(self, seconds: float, give_up_at: float, *, requested: bool = False) -> bool:
        """Wait in the thread before a batch is sent again; False, at once, if the time is not enough.

        While the destination is down, there is one attempt per batch, because the queue must not stall, unless the
        destination has `requested` the retry.
        """
        with self._changed:
            if self._stop_at is not None:
                give_up_at = min(give_up_at, self._stop_at)
            if time.monotonic() + seconds >= give_up_at or (self._is_dropping and not requested):
                return False
            self._changed.wait(seconds)
            return True

    def _start(self) -> None:
        # a daemon: a sender that never returns must not block the end of the process
        self._thread = threading.Thread(target=self._run, name="trace-export", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send_forever()
        finally:
            self._close()

    def _send_forever(self) -> None:
        while True:
            with self._changed:
                if self._stop_at is None and self._spans < self._settings.batch_spans:
                    self._changed.wait(self._settings.delay_seconds)
                stopping = self._stop_at is not None
                too_late = self._stop_at is not None and time.monotonic() >= self._stop_at
                dropped = sum(self._drop_oldest() for _ in range(len(self._queue))) if too_late else 0
                batch = self._take()
            if dropped:
                self._report_dropped("shutdown", dropped)
            if batch:
                self._send_batch(batch)
            elif stopping:
                return

    def _take(self) -> list[tuple[T, int, str]]:
        """Remove and return the oldest traces, as many as fit into one batch."""
        batch: list[tuple[T, int, str]] = []
        spans = 0
        while self._queue and (not batch or spans + self._queue[0][1] <= self._settings.batch_spans):
            entry = self._queue.popleft()
            spans += entry[1]
            batch.append(entry)
        self._spans -= spans
        return batch

    def _send_batch(self, batch: list[tuple[T, int, str]]) -> None:
        spans = sum(count for _, count, _ in batch)
        failure = self._send([item for item, _, _ in batch])
        self._delivered.extend(key for _, _, key in batch if key)
        if failure is None:
            self._metrics.spans_exported(spans)
            if self._is_dropping:
                self._is_dropping = False
                log.warning("traces are exported again", extra={"destination": self._destination})
        else:
            reason, text = failure
            self._report_dropped(reason, spans, text)

    def _drop_oldest(self) -> int:
        _, spans, key = self._queue.popleft()
        self._spans -= spans
        if key:
            self._delivered.append(key)
        return spans

    def _report_dropped(self, reason: DropReason, spans: int, text: str = "") -> None:
        self._metrics.spans_dropped(reason, spans)
        with self._changed:  # both threads drop spans, one of them logs it
            was_dropping, self._is_dropping = self._is_dropping, True
        if not was_dropping:
            log.warning(
                "cannot export traces to %s (%s); spans are dropped until it can be done again, and counted in "
                "kubeloop_trace_spans_dropped_total",
                self._destination,
                text or reason,
            )


def positive_number(name: str, text: str, default: float) -> float:
    """Parse the value `text` of the variable `name`; an invalid one is logged and replaced by `default`."""
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not 0 < number < math.inf:
        log.warning("%s is not a positive number", name, extra={"value": text})
        return default
    return number
