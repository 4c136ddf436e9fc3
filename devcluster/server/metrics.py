"""/metrics and /metrics/slis in Prometheus' text format: the families that kube-apiserver's dashboards and alerts use.

Per request only a dictionary lookup and a comparison are done; the rest is computed when metrics are read. Families and
labels are those of v1.36 (apiserver pkg/endpoints/metrics, pkg/storage/etcd3/metrics); help texts are ours.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kubeloop.devcluster.api.request import Request, Response, text_response
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.server.health_paths import HEALTH
from kubeloop.devcluster.storage.store import ObjectStore

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
BYTES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_APPLY = "application/apply-patch"
_MUTATING = ("POST", "PUT", "PATCH", "DELETE")
Labels = dict[str, str]
_NAMES = ("component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version")


@dataclass(slots=True)
class _Series:
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
    """Metrics of the requests of one server. `began`: its start in seconds since the epoch."""

    def __init__(self, store: ObjectStore, began: float) -> None:
        self._store = store
        self._began = began
        self._series: dict[tuple[Any, ...], _Series] = {}
        self._answered = 0
        self._unknown = 0

    def note(self, request: Request, response: Response, seconds: float) -> None:
        """Count one request; a watch counts when it starts."""
        info, method = request.route, request.method
        self._answered += 1
        if response.status == 401:
            self._unknown += 1
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
                _Series(labels, deprecated=info is not None and bool(info.served.deprecation)),
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

    def answer(self, request: Request, watched: Iterable[RequestInfo]) -> Response:
        """Return /metrics or /metrics/slis; DELETE resets them. watched: targets of open watches."""
        slis = request.path.rstrip("/").endswith("slis")
        if request.method == "DELETE":
            if not slis:
                self._series.clear()
                self._answered = self._unknown = 0
            return text_response(200, "metrics reset\n")
        text = "".join(_health()) if slis else self.text(watched)
        began = [("Process-Start-Time-Unix", str(int(self._began)))]
        return Response(200, text.encode(), _CONTENT_TYPE, began)

    # --- exposition ---------------------------------------------------------------------------------------------------

    def text(self, watched: Iterable[RequestInfo]) -> str:
        """Return the exposition. watched: targets of open watches."""
        series = list({id(entry): entry for entry in self._series.values()}.values())
        return "".join(
            (
                *_requests(series),
                *_durations(series),
                *_sizes(series),
                *_family("apiserver_current_inflight_requests", "gauge", "Requests in flight.", [
                    ({"request_kind": "mutating"}, 0), ({"request_kind": "readOnly"}, 1),
                ]),
                *_family("apiserver_longrunning_requests", "gauge", "Open watches.", _open(watched)),
                *_objects(self._store),
                *_family("apiserver_requested_deprecated_apis", "gauge", "1: a requested deprecated API.", [
                    ({**labels, "removed_release": ""}, 1) for labels in _deprecated(series)
                ]),
                *_family("authentication_attempts", "counter", "Authentication attempts by result.", [
                    ({"result": "failure"}, self._unknown), ({"result": "success"}, self._answered - self._unknown),
                ]),
                *_health(),
                *_process(self._began),
            )
        )  # fmt: skip


def _labels(request: Request) -> Labels | None:
    """Return the labels; None for unknown paths, which clients could invent without limit."""
    info, method = request.route, request.method
    if info is None:
        path = request.path.rstrip("/")
        counted = path in HEALTH or path.startswith("/openapi/v") or path in ("/metrics", "/version", "/api", "/apis")
        return {**dict.fromkeys(_NAMES, ""), "subresource": path, "verb": method} if counted else None
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
    return {
        "component": "apiserver",
        "dry_run": "All" if "All" in request.query.get("dryRun", ()) and method in _MUTATING else "",
        "group": resource.group,
        "resource": resource.plural,
        "scope": "resource" if info.name or method == "POST" else scope,
        "subresource": info.subresource,
        "verb": verb,
        "version": resource.version,
    }


def _requests(series: list[_Series]) -> Iterator[str]:
    lines = [
        ({"code": str(code), **entry.labels, "system_client": ""}, count)
        for entry in series
        for code, count in sorted(entry.codes.items())
    ]
    return _family("apiserver_request_total", "counter", "Requests by verb, resource, scope and response code.", lines)


def _durations(series: list[_Series]) -> Iterator[str]:
    timed = [entry for entry in series if entry.quick or any(entry.slow)]
    yield from _head("apiserver_request_duration_seconds", "histogram", "Seconds until the response, without watches.")
    for entry in timed:
        yield from _histogram("apiserver_request_duration_seconds", entry.labels, SECONDS, _all(entry), entry.seconds)
    yield from _head(
        "apiserver_request_sli_duration_seconds", "histogram", "Seconds until the response, without webhooks."
    )
    for entry in timed:
        labels = {name: text for name, text in entry.labels.items() if name != "dry_run"}
        if not entry.labels["dry_run"]:
            yield from _histogram("apiserver_request_sli_duration_seconds", labels, SECONDS, _all(entry), entry.seconds)


def _all(series: _Series) -> list[int]:
    return [series.quick, *series.slow]


def _sizes(series: list[_Series]) -> Iterator[str]:
    yield from _head("apiserver_response_sizes", "histogram", "Bytes of responses to reads.")
    for entry in series:
        if any(entry.sizes):
            labels = {name: text for name, text in entry.labels.items() if name != "dry_run"}
            yield from _histogram("apiserver_response_sizes", labels, BYTES, entry.sizes, entry.size)


def _open(watched: Iterable[RequestInfo]) -> Iterator[tuple[Labels, float]]:
    counts = Counter((info.served.resource, bool(info.name), bool(info.namespace)) for info in watched)
    for (resource, named, namespaced), count in counts.items():
        yield {
            "component": "apiserver", "group": resource.group, "resource": resource.plural, "subresource": "",
            "scope": "resource" if named else "namespace" if namespaced else "cluster",
            "verb": "WATCH", "version": resource.version,
        }, count  # fmt: skip


def _deprecated(series: list[_Series]) -> Iterator[Labels]:
    names = ("group", "resource", "subresource", "version")
    deprecated = {tuple(entry.labels[name] for name in names) for entry in series if entry.deprecated}
    return (dict(zip(names, values, strict=True)) for values in sorted(deprecated))


def _objects(store: ObjectStore) -> Iterator[str]:
    served = {
        info.resource.group_resource: 0 for info in BY_PATH.values() if info.is_stored and info.storage_resource is None
    }
    counts = sorted((served | {name: len(table) for name, table in store.tables()}).items())
    by_name = [({"resource": name}, count) for name, count in counts]
    yield from _family("apiserver_storage_objects", "gauge", "Stored objects.", by_name)
    split = [({"group": name.partition(".")[2], "resource": name.partition(".")[0]}, count) for name, count in counts]
    yield from _family("apiserver_resource_objects", "gauge", "Stored objects.", split)


def _health() -> Iterator[str]:
    checks = sorted((check, path[1:]) for path, names in HEALTH.items() for check in names)
    lines = [({"name": name, "type": type_}, 1) for name, type_ in checks]
    return _family("kubernetes_healthcheck", "gauge", "1 for a check that passes.", lines)


def _process(began: float) -> Iterator[str]:
    times = os.times()
    values: dict[str, tuple[str, str, float]] = {
        "process_cpu_seconds_total": ("counter", "CPU time of this process.", times.user + times.system),
        "process_start_time_seconds": ("gauge", "Start time of the server, in seconds since the epoch.", began),
    }
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            virtual, resident = (int(count) * os.sysconf("SC_PAGE_SIZE") for count in pages.read().split()[:2])
        values["process_open_fds"] = ("gauge", "Open files and sockets.", len(os.listdir("/proc/self/fd")))
        values["process_resident_memory_bytes"] = ("gauge", "Resident memory in bytes.", resident)
        values["process_virtual_memory_bytes"] = ("gauge", "Virtual memory in bytes.", virtual)
    except OSError:
        pass  # /proc exists on Linux only
    for name, (type_, help_text, value) in sorted(values.items()):
        yield from _family(name, type_, help_text, [({}, value)])


# --- the format -------------------------------------------------------------------------------------------------------


def _head(name: str, type_: str, help_text: str) -> tuple[str]:
    return (f"# HELP {name} {help_text}\n# TYPE {name} {type_}\n",)


def _family(name: str, type_: str, help_text: str, lines: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, type_, help_text)
    for labels, value in lines:
        yield f"{name}{_format_labels(labels)} {value:.15g}\n"


def _histogram(name: str, labels: Labels, bounds: tuple[float, ...], counts: list[int], total: float) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*bounds, None), counts, strict=False):
        so_far += count
        if bound is not None:
            yield f"{name}_bucket{_format_labels({**labels, 'le': f'{bound:g}'})} {so_far}\n"
    yield f"{name}_bucket{_format_labels({**labels, 'le': '+Inf'})} {so_far}\n"
    yield f"{name}_sum{_format_labels(labels)} {total:.15g}\n{name}_count{_format_labels(labels)} {so_far}\n"


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(text)}"' for name, text in sorted(labels.items()))
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
