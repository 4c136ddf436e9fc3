"""Event recorder: Kubernetes Events about objects, written in the background without delaying the caller.

`event()` only queues. A background task correlates each event as in client-go's tools/record (`event_aggregation`) and
sends it in the lane "events". The queue is bounded: events that do not fit are dropped and counted. While pods are
bound, few events are sent at a time, because pods start later otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import AlreadyExists, ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.events.event_aggregation import EventCorrelator, PendingEvent, event_note
from kubeloop.kube.objects.api_types import Object, ObjectReference
from kubeloop.kube.objects.resources import ALL, EVENTS
from kubeloop.kube.uids import new_uid
from kubeloop.kube.validation.name_checks import dns_subdomain

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

_MAX_NAME = 253
_TRIES = 12
_SLEEP_SECONDS = 10.0
_SENDERS = 16  # of one request each: all of them while no pod is bound
_SENDERS_WHILE_BINDING, _SENDERS_TO_BUSY_SERVER = 4, 2
_QUEUE_LIMIT = 10_000  # waiting events
_FLUSH_SECONDS = 3.0  # for sending after run() was cancelled

_KIND_OF_TYPE = {resource.type: (resource.api_version, resource.kind) for resource in ALL if resource.type is not dict}


class EventSink(Protocol):
    """Interface through which controllers and the scheduler record events."""

    def event(
        self,
        involved_object: Object | ObjectReference,
        type_: EventType,
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Object | ObjectReference | None = None,
    ) -> None:
        """Record an event about an object. Never blocks, never raises.

        action: what the component did or tried. related: another object that the event is about, see PendingEvent.
        """
        ...


def reference_to(involved_object: Object | ObjectReference) -> ObjectReference:
    """Return a reference to an object. An item of a list has no kind; its Struct's kind is used then."""
    if isinstance(involved_object, ObjectReference):
        return involved_object
    api_version, kind = _KIND_OF_TYPE.get(type(involved_object), ("", ""))
    metadata = involved_object.metadata
    return ObjectReference(
        kind=involved_object.kind or kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        api_version=involved_object.api_version or api_version,
        resource_version=metadata.resource_version,
    )


class EventBroadcaster:
    """Records events, and sends them in the background while `run()` runs.

    dropped    events that did not fit into the queue
    rejected   events that the server rejected, or that were not sent
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        rng: random.Random,
        is_binding: Callable[[], bool] = lambda: False,
        server_is_busy: Callable[[], bool] = lambda: False,
        reasons: frozenset[str] | None = None,
    ) -> None:
        """is_binding: returns True while pods are bound: bind requests are more important than events.
        server_is_busy: returns True while they wait in the API server.

        reasons: those of the events that are recorded; None for all.
        """
        self._client = client
        self._clock = clock
        self._rng = rng
        self._is_binding, self._server_is_busy = is_binding, server_is_busy
        self._reasons = reasons
        self._correlator = EventCorrelator()
        self._queues: tuple[deque[PendingEvent], ...] = tuple(deque() for _ in range(_SENDERS))
        self._wake: tuple[asyncio.Event, ...] = tuple(asyncio.Event() for _ in range(_SENDERS))
        self._sending = 0
        self._waiting_senders: deque[asyncio.Future[None]] = deque()
        self._waiting = 0
        self._last_ns = 0
        self._second = -1  # since the epoch
        self._second_text = ""  # the same in RFC 3339; formatted once per second
        self._stopping = False
        self.dropped = 0
        self.rejected = 0

    def for_component(self, component: str) -> ComponentEvents:
        """Return the EventSink of one component, whose name is in the events."""
        return ComponentEvents(self, component)

    def record(
        self,
        component: str,
        involved_object: Object | ObjectReference,
        type_: EventType,
        reason: str,
        message: str,
        action: str = "",
        related: Object | ObjectReference | None = None,
    ) -> None:
        """Record an event of a component."""
        if self._reasons is not None and reason not in self._reasons:
            return
        if self._waiting >= _QUEUE_LIMIT:
            self.dropped += 1
            if self.dropped % 1000 == 1:
                log.warning("too many events waiting, dropped", extra={"dropped": self.dropped})
            return
        now_ns = self._clock.time_ns()
        second = now_ns // 10**9
        if second != self._second:
            self._second, self._second_text = second, rfc3339(self._clock.now())
        now = self._second_text
        # The name of the event contains this time, so it must not repeat, whatever the clock's resolution.
        self._last_ns = max(now_ns, self._last_ns + 1)
        pending = PendingEvent(
            component=component,
            involved_object=reference_to(involved_object),
            type=type_,
            reason=reason,
            message=event_note(message),
            at_ns=self._last_ns,
            first_timestamp=now,
            last_timestamp=now,
            reporting=component,
            action=action,
            related=None if related is None else reference_to(related),
        )
        pending.name = self._event_name(pending)
        # By object: events that may be correlated pass through the same sender, in order.
        sender = zlib.crc32(f"{pending.namespace}/{pending.involved_object.name}".encode()) % _SENDERS
        self._waiting += 1
        self._queues[sender].append(pending)
        self._wake[sender].set()

    def _event_name(self, pending: PendingEvent) -> str:
        object_name = pending.involved_object.name
        name = f"{object_name}.{pending.at_ns:x}"
        # The object's name may be longer than an event's, or have other characters.
        return new_uid(self._rng) if len(name) > _MAX_NAME or dns_subdomain(object_name) else name

    async def run(self) -> None:
        """Send until cancelled. Then the queue gets 3 seconds to be sent; the rest is dropped."""
        self._stopping, self._sending = False, 0
        self._waiting_senders.clear()
        async with asyncio.TaskGroup() as senders:
            tasks = [senders.create_task(self._send_all(index), name=f"events/{index}") for index in range(_SENDERS)]
            try:
                await asyncio.Future()  # never done
            finally:
                self._stopping = True
                for wake in self._wake:
                    wake.set()
                self._resume_senders()
                await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
                if self._waiting:
                    log.warning("stopped before all events were sent", extra={"unsent": self._waiting})

    async def _send_all(self, index: int) -> None:
        queue, wake = self._queues[index], self._wake[index]
        while True:
            while queue:
                # Events with a related object are not combined, as by client-go's tools/events.
                correlated = queue[0] if queue[0].related is not None else self._correlator.correlate(queue[0])
                if correlated is not None:
                    await self._wait_to_send()
                    try:
                        await self._write(correlated)
                    finally:
                        self._sending -= 1
                        self._resume_senders()
                queue.popleft()
                self._waiting -= 1
            if self._stopping:
                return
            wake.clear()
            await wake.wait()

    async def _wait_to_send(self) -> None:
        """Wait until another event may be sent, and count it as being sent."""
        if self._waiting_senders or self._sending >= self._most_senders():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_senders.append(turn)
            await turn
        else:
            self._sending += 1

    def _resume_senders(self) -> None:
        while self._waiting_senders and self._sending < self._most_senders():
            turn = self._waiting_senders.popleft()
            if not turn.done():
                self._sending += 1
                turn.set_result(None)

    def _most_senders(self) -> int:
        """Return how many events are sent at once: fewer while pods are bound, if there is room for more events."""
        if self._stopping or self._waiting >= _QUEUE_LIMIT / 2 or not self._is_binding():
            return _SENDERS
        return _SENDERS_TO_BUSY_SERVER if self._server_is_busy() else _SENDERS_WHILE_BINDING

    async def _write(self, event: PendingEvent) -> None:
        """Write one event; while the server cannot be reached, later events wait. Source: recordToSink."""
        for tries in range(1, _TRIES + 1):
            try:
                await self._write_once(event)
                return
            except AlreadyExists:
                return  # created by an earlier try whose response was lost
            except ApiError as error:
                if error.code < 500:
                    self._reject(event, error)
                    return
                failure: Exception = error
            except ServerUnreachable as error:
                failure = error
            if self._stopping or tries == _TRIES:
                self._reject(event, failure)
                return
            # The first delay is random, so that clients spread out when a server becomes available again.
            await asyncio.sleep(_SLEEP_SECONDS * (self._rng.random() if tries == 1 else 1.0))

    async def _write_once(self, event: PendingEvent) -> None:
        if event.count > 1:
            try:
                await self._client.patch(EVENTS, event.name, event.patch(), PatchType.STRATEGIC, event.namespace)
                return
            except NotFound:
                pass  # it has expired
        await self._client.create_raw(EVENTS, event.body(), event.namespace)

    def _reject(self, event: PendingEvent, error: Exception) -> None:
        self.rejected += 1
        if is_namespace_terminating(error):
            return  # expected: the event would be deleted with the namespace
        key = f"{event.namespace}/{event.involved_object.name}"
        log.warning("event not written", extra={"object": key, "reason": event.reason, "error": str(error)})


class ComponentEvents(EventSink):
    """The EventSink of one component."""

    def __init__(self, recorder: EventBroadcaster, component: str) -> None:
        self._recorder = recorder
        self._component = component

    def event(self, *arguments: Any, **options: Any) -> None:
        self._recorder.record(self._component, *arguments, **options)
