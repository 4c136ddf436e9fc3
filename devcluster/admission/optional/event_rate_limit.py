"""EventRateLimit: writes of Events at a limited rate, by server, namespace, user or source and object.

Source: plugin/pkg/admission/eventratelimit of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, PluginEnvironment
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS

_CACHE_SIZE = 4096
_SOURCE = ("component", "host")
_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion")


class _Bucket(msgspec.Struct):
    """Tokens that are left, and when that was computed, in seconds."""

    tokens: float
    seconds: float


class _Limit:
    """One limit: a bucket of tokens for each key, of which the least recently used is forgotten."""

    def __init__(self, limit: JSON) -> None:
        self.type: str = limit["type"]
        self._rate, self._burst = limit["qps"], limit["burst"]
        self._size = limit.get("cacheSize") or _CACHE_SIZE
        self._buckets: dict[str, _Bucket] = {}

    def refusal(self, request: Attributes, now: float) -> str:
        """Return why a write is refused, "" if it is accepted."""
        key = _KEYS[self.type](request)
        bucket = self._buckets.pop(key, None) or _Bucket(self._burst, now)
        if len(self._buckets) >= self._size:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.seconds) * self._rate)
        bucket.seconds = now
        if bucket.tokens < 1:
            return f"limit reached on type {self.type} for key {key}"
        bucket.tokens -= 1
        return ""


class EventRateLimit(OptionalPlugin):
    resource = EVENTS

    def __init__(self, environment: PluginEnvironment) -> None:
        super().__init__(environment)
        self._limits = [_Limit(limit) for limit in environment.configuration["EventRateLimit"]["limits"]]

    def check(self, request: Attributes) -> None:
        if request.dry_run:
            return
        now = self.store.seconds()
        refusals = list(filter(None, [limit.refusal(request, now) for limit in self._limits]))
        if refusals:
            reason = refusals[0] if len(refusals) == 1 else f"[{', '.join(refusals)}]"
            raise StatusError(429, "TooManyRequests", f"Too many requests: {reason}")


def _source_and_object(request: Attributes) -> str:
    event = request.object or {}
    parts: list[tuple[Any, tuple[str, ...]]] = [(event.get("source"), _SOURCE), (event.get("involvedObject"), _OBJECT)]
    return "".join((value or {}).get(field) or "" for value, fields in parts for field in fields)


_KEYS: dict[str, Callable[[Attributes], str]] = {
    "Server": lambda request: "",
    "Namespace": lambda request: request.namespace,
    "User": lambda request: str(request.user["username"]),
    "SourceAndObject": _source_and_object,
}
