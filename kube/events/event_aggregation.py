"""Event correlation as in client-go's tools/record: spam filter, aggregation of similar events, counting.

    spam filter    25 events per source, object and type, then one per 5 minutes; the rest is dropped
    aggregation    from the 10th different message of the same reason within 10 minutes: one event with the message
                   "(combined from similar events): " and the latest message
    counting       a repeated event becomes a patch of the first one: count, lastTimestamp, message

Source: client-go tools/record/events_cache.go.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from kubeloop.kube.client.rate_limit import TokenBucket
from kubeloop.kube.objects.api_types import ObjectReference
from kubeloop.kube.values.times import time_text

V = TypeVar("V")

_CACHED_KEYS = 4096
_SPAM_BURST = 25
_SPAM_QPS = 1.0 / 300.0
_MESSAGES_BEFORE_AGGREGATION = 10
_AGGREGATION_INTERVAL_NS = 600 * 10**9
_NOTE_LIMIT_BYTES = 1024


def event_note(message: str) -> str:
    """Return a message cut to 1024 bytes. A character that is cut is replaced, as JSON requires."""
    data = message.encode("utf-8", "replace")
    if len(data) <= _NOTE_LIMIT_BYTES:
        return data.decode()  # without lone surrogates, which are invalid in JSON
    return (data[: _NOTE_LIMIT_BYTES - 4] + b" ...").decode("utf-8", "replace")


def _reference(target: ObjectReference) -> dict[str, str]:
    fields = {
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "uid": target.uid,
        "apiVersion": target.api_version,
        "resourceVersion": target.resource_version,
        "fieldPath": target.field_path,
    }
    return {field: value for field, value in fields.items() if value}


class PendingEvent(msgspec.Struct):
    """An event to write. `name`, `first_timestamp` and `count` are those of the Event object.

    related: another object that the event is about. The Event then has the form of events.k8s.io/v1, as
    kube-scheduler's have: the time of the event instead of count, firstTimestamp and lastTimestamp.
    """

    component: str
    involved_object: ObjectReference
    type: str
    reason: str
    message: str
    at_ns: int  # wall time
    first_timestamp: str  # RFC 3339
    last_timestamp: str
    name: str = ""
    count: int = 1
    reporting: str = ""
    action: str = ""
    related: ObjectReference | None = None

    @property
    def namespace(self) -> str:
        return self.involved_object.namespace or "default"

    def spam_key(self) -> tuple[str, ...]:
        """Return source, object and type."""
        target = self.involved_object
        reference = (target.kind, target.namespace, target.name, target.uid, target.api_version)
        return (self.component, *reference, self.type)

    def body(self) -> dict[str, Any]:
        """Return the v1 Event to create."""
        body = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": _reference(self.involved_object),
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.component},
            "firstTimestamp": self.first_timestamp,
            "lastTimestamp": self.last_timestamp,
            "count": self.count,
            "type": self.type,
            "eventTime": None,
            "reportingComponent": self.reporting,
            "reportingInstance": "",
        }
        if self.action:
            body["action"] = self.action
        if self.related is not None:
            for field in ("firstTimestamp", "lastTimestamp", "count"):
                del body[field]
            body["source"] = {}
            body["eventTime"] = time_text(*divmod(self.at_ns // 1000, 1_000_000))
            body["reportingInstance"] = f"{self.reporting}-{socket.gethostname()}"
            body["related"] = _reference(self.related)
        return body

    def patch(self) -> dict[str, Any]:
        """Return the patch for the existing Event."""
        return {"count": self.count, "lastTimestamp": self.last_timestamp, "message": self.message}


class _Recent(Generic[V]):
    """Values of the most recently used keys, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: tuple[str, ...], value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)


class _AggregateRecord(msgspec.Struct):
    """Events of one reason: their messages (at most 10), and the time of the last one."""

    messages: dict[str, None]
    last_ns: int


class _LoggedEvent(msgspec.Struct, frozen=True):
    """An Event that was written. client-go: eventLog."""

    name: str
    first_timestamp: str
    count: int


class EventCorrelator:
    """Decides whether an event is dropped, created, or becomes a patch of an earlier Event. No I/O.

    Source: client-go tools/record/events_cache.go.
    """

    def __init__(self) -> None:
        self._spam: _Recent[TokenBucket] = _Recent(_CACHED_KEYS)
        self._aggregates: _Recent[_AggregateRecord] = _Recent(_CACHED_KEYS)
        self._logged: _Recent[_LoggedEvent] = _Recent(_CACHED_KEYS)

    def correlate(self, event: PendingEvent) -> PendingEvent | None:
        """Return the event to write: create it if its count is 1, else patch. None: dropped as spam."""
        spam_key = event.spam_key()
        key = self._aggregate(event, spam_key)
        logged = self._logged.get(key)
        if logged is not None:
            event.name, event.first_timestamp, event.count = logged.name, logged.first_timestamp, logged.count + 1
        self._logged.put(key, _LoggedEvent(event.name, event.first_timestamp, event.count))
        bucket = self._spam.get(spam_key) or TokenBucket(_SPAM_QPS, _SPAM_BURST)
        self._spam.put(spam_key, bucket)
        return event if bucket.try_take(event.at_ns / 1e9) else None

    def _aggregate(self, event: PendingEvent, object_key: tuple[str, ...]) -> tuple[str, ...]:
        """Combine the event with similar ones if there are many. Returns the key under which it is counted."""
        aggregation_key = (*object_key, event.reason)
        aggregate = self._aggregates.get(aggregation_key)
        if aggregate is None or event.at_ns - aggregate.last_ns > _AGGREGATION_INTERVAL_NS:
            aggregate = _AggregateRecord({}, 0)
            self._aggregates.put(aggregation_key, aggregate)
        aggregate.messages[event.message] = None
        aggregate.last_ns = event.at_ns
        if len(aggregate.messages) < _MESSAGES_BEFORE_AGGREGATION:
            return (*aggregation_key, event.involved_object.field_path, event.message)
        aggregate.messages.popitem()  # keeps the set small, and the next message is combined as well
        event.message = event_note(f"(combined from similar events): {event.message}")
        event.first_timestamp = event.last_timestamp
        event.reporting = ""
        return aggregation_key
