"""Counts of requests by kube-apiserver's labels, durations and response sizes.

Per request only a dictionary lookup and a comparison are done; `metrics_page` computes the rest when metrics are read.
Labels are those of v1.36 (apiserver pkg/endpoints/metrics).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.health_paths import HEALTH

SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
BYTES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_APPLY = "application/apply-patch"
_MUTATING = ("POST", "PUT", "PATCH", "DELETE")


class Labels(NamedTuple):
    """Labels of a request."""

    component: str = ""
    dry_run: str = ""
    group: str = ""
    resource: str = ""
    scope: str = ""
    subresource: str = ""
    verb: str = ""
    version: str = ""


@dataclass(slots=True)
class Series:
    """Requests with the same labels: counts by status code, durations, response sizes."""

    labels: Labels
    deprecated: bool = False
    codes: Counter[int] = field(default_factory=Counter)
    quick: int = 0
    slow: list[int] = field(default_factory=lambda: [0] * len(SECONDS))  # by bucket; the first bucket is `quick`
    seconds: float = 0.0
    sizes: list[int] = field(default_factory=lambda: [0] * (len(BYTES) + 1))
    size: int = 0


class RequestMetrics:
    """Counts of the requests of one server. unauthenticated: those of `answered` that got 401."""

    def __init__(self) -> None:
        self._series: dict[tuple[Any, ...], Series] = {}
        self.answered = 0
        self.unauthenticated = 0

    def note(self, request: ApiRequest, response: Response, seconds: float) -> None:
        """Count one request; a watch counts when it starts."""
        info, method = request.route, request.method
        self.answered += 1
        if response.status == 401:
            self.unauthenticated += 1
        if info is None:
            key: tuple[Any, ...] = (request.path.rstrip("/"), method)
        else:
            query = request.query
            key = (
                info.served, info.subresource, method, bool(info.name), bool(info.namespace),
                (request.flag("watch"), "dryRun" in query) if query else None,
                method == "PATCH" and request.headers.get("content-type", "").startswith(_APPLY),
            )  # fmt: skip
        series = self._series.get(key)
        if series is None:
            labels = _labels(request)
            if labels is None:
                return
            series = self._series[key] = next(
                (other for other in self._series.values() if other.labels == labels),
                Series(labels, deprecated=info is not None and bool(info.served.deprecated)),
            )
        series.codes[response.status] += 1
        if type(response.body) is not bytes:
            return
        series.seconds += seconds
        if seconds <= SECONDS[0]:
            series.quick += 1
        else:
            series.slow[bisect_left(SECONDS, seconds) - 1] += 1
        if method == "GET":
            size = len(response.body)
            series.sizes[0 if size <= BYTES[0] else bisect_left(BYTES, size)] += 1
            series.size += size

    def series(self) -> list[Series]:
        """Return the series, each with different labels."""
        return list({id(entry): entry for entry in self._series.values()}.values())

    def reset(self) -> None:
        self._series.clear()
        self.answered = self.unauthenticated = 0


def _labels(request: ApiRequest) -> Labels | None:
    """Return the labels; None for unknown paths, which clients could invent without limit."""
    info, method = request.route, request.method
    if info is None:
        path = request.path.rstrip("/")
        counted = path in HEALTH or path.startswith("/openapi/v") or path in ("/metrics", "/version", "/api", "/apis")
        return Labels(subresource=path, verb=method) if counted else None
    resource = info.served.resource
    verb = method
    if method == "GET" and not info.name:
        verb = "LIST"
    elif method == "DELETE" and not info.name:
        verb = "DELETECOLLECTION"
    elif method == "PATCH" and request.headers.get("content-type", "").startswith(_APPLY):
        verb = "APPLY"
    if method == "GET" and request.flag("watch"):
        verb = "WATCH"
    scope = "namespace" if info.namespace else "cluster"
    return Labels(
        component="apiserver",
        dry_run="All" if "All" in request.query.get("dryRun", ()) and method in _MUTATING else "",
        group=resource.group,
        resource=resource.plural,
        scope="resource" if info.name or method == "POST" else scope,
        subresource=info.subresource,
        verb=verb,
        version=resource.version,
    )
