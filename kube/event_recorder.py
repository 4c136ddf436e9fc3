"""Events: tell the people who look at an object what was done with it, without ever delaying the work.

`event()` only queues. In the background each event is correlated as client-go's tools/record does it, and sent in the
lane "events":

The queue is bounded: what does not fit is dropped and counted. May import `client`, `clock`, `objects`, `resources`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
import zlib
from collections import deque
from typing import Literal, Protocol

from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import AlreadyExists, ApiError, NotFound, ServerUnreachable
from kubeloop.kube.event_aggregation import EventCorrelator, PendingEvent, event_note
from kubeloop.kube.field_errors import subdomain_errors
from kubeloop.kube.objects.api_types import Object, ObjectReference
from kubeloop.kube.objects.resources import ALL, EVENTS

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

_TRIES = 12
_SLEEP_SECONDS = 10.0
_SENDERS = 4

_KIND_OF_TYPE = {each.type: (each.api_version, each.kind) for each in ALL if each.type is not dict}


class EventSink(Protocol):
    """Where controllers and the scheduler report to."""

    def event(self, about: Object | ObjectReference, type_: EventType, reason: str, message: str) -> None:
        """Report something about an object. Never blocks, never raises."""
        ...


def reference_to(about: Object | ObjectReference) -> ObjectReference:
    """The ObjectReference of an object. Items of lists carry no kind; then its Struct says which it is."""
    if isinstance(about, ObjectReference):
        return about
    api_version, kind = _KIND_OF_TYPE.get(type(about), ("", ""))
    metadata = about.metadata
    return ObjectReference(
        kind=about.kind or kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        api_version=about.api_version or api_version,
        resource_version=metadata.resource_version,
    )


class EventRecorder:
    """Records events and sends them in the background, while `run()` runs.

    dropped    events that did not fit into the queue
    refused    events that the server did not take
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: random.Random,
        component: str = "kubeloop",
        queue_limit: int = 10_000,
        flush_seconds: float = 3.0,
    ) -> None:
        """`queue_limit`: events waiting at most. `flush_seconds`: how long a cancelled run() goes on sending."""
        self._client = client
        self._clock = clock
        self._rng = rng
        self._component = component
        self._queue_limit = queue_limit
        self._flush_seconds = flush_seconds
        self._correlator = EventCorrelator()
        self._queues: tuple[deque[PendingEvent], ...] = tuple(deque() for _ in range(_SENDERS))
        self._wake: tuple[asyncio.Event, ...] = tuple(asyncio.Event() for _ in range(_SENDERS))
        self._waiting = 0
        self._last_ns = 0
        self._second = -1  # since the epoch
        self._second_text = ""  # the same as RFC 3339, which is only written once a second
        self._stopping = False
        self.dropped = 0
        self.rejected = 0

    def for_component(self, component: str) -> ComponentEvents:
        """Where one component reports to; its name stands in the events."""
        return ComponentEvents(self, component)

    def event(self, about: Object | ObjectReference, type_: EventType, reason: str, message: str) -> None:
        """Report something about an object. Never blocks, never raises."""
        self.record(self._component, about, type_, reason, message)

    def record(
        self, component: str, about: Object | ObjectReference, type_: EventType, reason: str, message: str
    ) -> None:
        """Report something in the name of a component."""
        if self._waiting >= self._queue_limit:
            self.dropped += 1
            if self.dropped % 1000 == 1:
                log.warning("too many events waiting, dropped", extra={"dropped": self.dropped})
            return
        now_ns = self._clock.time_ns()
        second = now_ns // 10**9
        if second != self._second:
            self._second, self._second_text = second, rfc3339(self._clock.now())
        now = self._second_text
        # Names of events are made of it, so it must not repeat, however coarse the clock.
        self._last_ns = max(now_ns, self._last_ns + 1)
        occurrence = PendingEvent(
            component=component,
            about=reference_to(about),
            type=type_,
            reason=reason,
            message=event_note(message),
            at_ns=self._last_ns,
            first=now,
            last=now,
            reporting=component,
        )
        occurrence.name = self._event_name(occurrence)
        # By object: all that is correlated with each other passes through the same sender, in order.
        sender = zlib.crc32(f"{occurrence.namespace}/{occurrence.about.name}".encode()) % _SENDERS
        self._waiting += 1
        self._queues[sender].append(occurrence)
        self._wake[sender].set()

    def _event_name(self, occurrence: PendingEvent) -> str:
        name = f"{occurrence.about.name}.{occurrence.at_ns:x}"
        # An object's name may be longer than an event's, or have other characters.
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4)) if subdomain_errors(name) else name

    async def run(self) -> None:
        """Send until cancelled; then what is queued gets `flush_seconds` more, and the rest is dropped."""
        self._stopping = False
        async with asyncio.TaskGroup() as senders:
            tasks = [senders.create_task(self._send_all(index), name=f"events/{index}") for index in range(_SENDERS)]
            try:
                await asyncio.Future()  # never done
            finally:
                self._stopping = True
                for wake in self._wake:
                    wake.set()
                await asyncio.wait(tasks, timeout=self._flush_seconds)
                if self._waiting:
                    log.warning("stopped before all events were sent", extra={"unsent": self._waiting})

    async def _send_all(self, index: int) -> None:
        queue, wake = self._queues[index], self._wake[index]
        while True:
            while queue:
                correlated = self._correlator.correlate(queue[0])
                if correlated is not None:
                    await self._write(correlated)
                queue.popleft()
                self._waiting -= 1
            if self._stopping:
                return
            wake.clear()
            await wake.wait()

    async def _write(self, occurrence: PendingEvent) -> None:
        """Write one event; while the server cannot be reached, everything behind it waits. Source: recordToSink."""
        for tries in range(1, _TRIES + 1):
            try:
                await self._write_once(occurrence)
                return
            except AlreadyExists:
                return  # by an earlier try whose answer was lost
            except ApiError as error:
                if error.code < 500:
                    self._refuse(occurrence, error)
                    return
                failure: Exception = error
            except ServerUnreachable as error:
                failure = error
            if self._stopping or tries == _TRIES:
                self._refuse(occurrence, failure)
                return
            # The first wait is random, so that clients spread out when a server comes back.
            await asyncio.sleep(_SLEEP_SECONDS * (self._rng.random() if tries == 1 else 1.0))

    async def _write_once(self, occurrence: PendingEvent) -> None:
        if occurrence.count > 1:
            try:
                await self._client.patch(
                    EVENTS,
                    occurrence.name,
                    occurrence.patch(),
                    PatchType.STRATEGIC,
                    occurrence.namespace,
                    lane="events",
                )
            except NotFound:  # expired meanwhile
                pass
            else:
                return
        await self._client.create_raw(EVENTS, occurrence.body(), occurrence.namespace, lane="events")

    def _refuse(self, occurrence: PendingEvent, error: Exception) -> None:
        self.rejected += 1
        if isinstance(error, ApiError) and error.has_cause("NamespaceTerminating"):
            return  # expected: the namespace goes, and so would the event
        log.warning(
            "event not written",
            extra={
                "about": f"{occurrence.namespace}/{occurrence.about.name}",
                "reason": occurrence.reason,
                "error": str(error),
            },
        )


class ComponentEvents:
    """The EventSink of one component."""

    def __init__(self, recorder: EventRecorder, component: str) -> None:
        self._recorder = recorder
        self._component = component

    def event(self, about: Object | ObjectReference, type_: EventType, reason: str, message: str) -> None:
        self._recorder.record(self._component, about, type_, reason, message)
