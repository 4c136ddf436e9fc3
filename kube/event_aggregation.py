"""Event correlation as in client-go's tools/record: spam filter, aggregation of similar events, counting.

    spam filter    25 events per source, object and type, then one per 5 minutes; the rest is dropped
    aggregation    from the 10th different message of the same reason within 10 minutes on: one event,
                   "(combined from similar events): " and the latest message
    counting       an event seen before becomes a patch of that one: count, lastTimestamp, message

Source: client-go tools/record/events_cache.go.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from kubeloop.kube.client.rate_limit import TokenBucketRateLimiter
from kubeloop.kube.objects.api_types import ObjectReference

V = TypeVar("V")

_CACHED_KEYS = 4096
_SPAM_BURST = 25
_SPAM_QPS = 1.0 / 300.0
_MESSAGES_BEFORE_AGGREGATION = 10
_AGGREGATION_INTERVAL_NS = 600 * 10**9
_NOTE_LIMIT_BYTES = 1024


def event_note(message: str) -> str:
    """A message, cut to 1024 bytes. The cut may split a character, whose rest is replaced as JSON demands."""
    data = message.encode("utf-8", "replace")
    if len(data) <= _NOTE_LIMIT_BYTES:
        return data.decode()  # without lone surrogates, which JSON could not carry
    return (data[: _NOTE_LIMIT_BYTES - 4] + b" ...").decode("utf-8", "replace")


class PendingEvent(msgspec.Struct):
    """Something that happened to `about`; `name`, `first` and `count` are those of the Event that tells it."""

    component: str
    about: ObjectReference
    type: str
    reason: str
    message: str
    at_ns: int  # wall time
    first: str  # RFC 3339
    last: str
    name: str = ""
    count: int = 1
    reporting: str = ""

    @property
    def namespace(self) -> str:
        return self.about.namespace or "default"

    def _object_key(self) -> tuple[str, ...]:
        about = self.about
        return (self.component, about.kind, about.namespace, about.name, about.uid, about.api_version, self.type)

    def spam_key(self) -> tuple[str, ...]:
        return self._object_key()

    def aggregation_key(self) -> tuple[str, ...]:
        return (*self._object_key(), self.reason)

    def key(self) -> tuple[str, ...]:
        return (*self._object_key(), self.reason, self.about.field_path, self.message)

    def body(self) -> dict[str, Any]:
        """The v1 Event to create."""
        about = self.about
        reference = {
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": about.api_version,
            "resourceVersion": about.resource_version,
            "fieldPath": about.field_path,
        }
        return {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": {field: value for field, value in reference.items() if value},
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.component},
            "firstTimestamp": self.first,
            "lastTimestamp": self.last,
            "count": self.count,
            "type": self.type,
            "eventTime": None,
            "reportingComponent": self.reporting,
            "reportingInstance": "",
        }

    def patch(self) -> dict[str, Any]:
        """What changes in the Event that told this before."""
        return {"count": self.count, "lastTimestamp": self.last, "message": self.message}


class _Recent(Generic[V]):
    """The values of the keys used last, at most `limit`."""

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
    """Events of one reason: the messages seen (never more than 10), and when the last one came."""

    messages: dict[str, None]
    last_ns: int


class _LoggedEvent(msgspec.Struct, frozen=True):
    """An Event that was written before."""

    name: str
    first: str
    count: int


class EventCorrelator:
    """Decides what becomes of an occurrence: nothing, a new Event, or a patch of an earlier one. No I/O.

    Source: client-go tools/record/events_cache.go.
    """

    def __init__(self, cached_keys: int = _CACHED_KEYS) -> None:
        self._spam: _Recent[TokenBucketRateLimiter] = _Recent(cached_keys)
        self._aggregates: _Recent[_AggregateRecord] = _Recent(cached_keys)
        self._logged: _Recent[_LoggedEvent] = _Recent(cached_keys)

    def correlate(self, occurrence: PendingEvent) -> PendingEvent | None:
        """What to write: create it if its count is 1, else patch. None: filtered out as spam."""
        key = self._aggregate(occurrence)
        told = self._logged.get(key)
        if told is not None:
            occurrence.name, occurrence.first, occurrence.count = told.name, told.first, told.count + 1
        self._logged.put(key, _LoggedEvent(occurrence.name, occurrence.first, occurrence.count))
        spam_key = occurrence.spam_key()
        bucket = self._spam.get(spam_key) or TokenBucketRateLimiter(_SPAM_QPS, _SPAM_BURST)
        self._spam.put(spam_key, bucket)
        return occurrence if bucket.try_take(occurrence.at_ns / 1e9) else None

    def _aggregate(self, occurrence: PendingEvent) -> tuple[str, ...]:
        """Turn it into the combined event if there are many like it; the key under which it is counted."""
        key = occurrence.key()
        aggregation_key = occurrence.aggregation_key()
        similar = self._aggregates.get(aggregation_key)
        if similar is None or occurrence.at_ns - similar.last_ns > _AGGREGATION_INTERVAL_NS:
            similar = _AggregateRecord({}, 0)
            self._aggregates.put(aggregation_key, similar)
        similar.messages[occurrence.message] = None
        similar.last_ns = occurrence.at_ns
        if len(similar.messages) < _MESSAGES_BEFORE_AGGREGATION:
            return key
        similar.messages.popitem()  # so that the set stays small, and the next one is combined as well
        occurrence.message = event_note(f"(combined from similar events): {occurrence.message}")
        occurrence.first = occurrence.last
        occurrence.reporting = ""
        return aggregation_key
