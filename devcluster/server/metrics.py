"""/metrics and /metrics/slis: what a kube-apiserver's dashboards and alerts ask for, in Prometheus' text format.

Counted per request: a look into a dict and a comparison with the lowest bound. Everything else is worked out when
somebody asks. Families and labels are those of v1.36 (apiserver pkg/endpoints/metrics, pkg/storage/etcd3/metrics); the
help texts are ours.
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
from kubeloop.devcluster.storage.store import Store

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
    """Requests of one kind: how many by code, how long they took, how much they were answered."""

    labels: Labels
    deprecated: bool = False
    codes: Counter[int] = field(default_factory=Counter)
    quick: int = 0
    slow: list[int] = field(default_factory=lambda: [0] * len(SECONDS))  # by the next bound below; the first is `quick`
    seconds: float = 0.0
    sizes: list[int] = field(default_factory=lambda: [0] * (len(BYTES) + 1))
    size: int = 0


class RequestMetrics:
    """What one server has answered. `began`: seconds since the epoch when it began."""

    def __init__(self, store: Store, began: float) -> None:
        self._store = store
        self._began = began
        self._series: dict[tuple[Any, ...], _Series] = {}
        self._answered = 0
        self._unknown = 0

    def note(self, request: Request, response: Response, seconds: float) -> None:
        """Count one answered request; a watch counts when it begins."""
        found, method = request.route, request.method
        self._answered += 1
        if response.status == 401:
            self._unknown += 1
        if found is None:
            key: tuple[Any, ...] = (request.path.rstrip("/"), method)
        else:
            query = request.query
            key = (
                found.served, found.subresource, method, bool(found.name), bool(found.namespace),
                (request.flag("watch"), "dryRun" in query) if query else None,
                method == "PATCH" and request.headers.get("content-type", "").startswith(_APPLY),
            )  # fmt: skip
        series = self._series.get(key)
        if series is None:
            labels = _labels(request)
            if labels is None:
                return
            series = self._series[key] = next(
                (each for each in self._series.values() if each.labels == labels),
                _Series(labels, deprecated=found is not None and bool(found.served.deprecation)),
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
        """/metrics and /metrics/slis, to which a DELETE means to begin anew. watched: what open watches watch."""
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
        """watched: what open watches watch."""
        series = list({id(each): each for each in self._series.values()}.values())
        return "".join(
            (
                *_requests(series),
                *_durations(series),
                *_sizes(series),
                *_family("apiserver_current_inflight_requests", "gauge", "Requests being answered.", [
                    ({"request_kind": "mutating"}, 0), ({"request_kind": "readOnly"}, 1),
                ]),
                *_family("apiserver_longrunning_requests", "gauge", "Open watches.", _open(watched)),
                *_objects(self._store),
                *_family("apiserver_requested_deprecated_apis", "gauge", "1: deprecated, and asked for.", [
                    ({**labels, "removed_release": ""}, 1) for labels in _deprecated(series)
                ]),
                *_family("authentication_attempts", "counter", "Requests by whether their sender is known.", [
                    ({"result": "failure"}, self._unknown), ({"result": "success"}, self._answered - self._unknown),
                ]),
                *_health(),
                *_process(self._began),
            )
        )  # fmt: skip


def _labels(request: Request) -> Labels | None:
    """None for paths that are not counted: those of nobody, which anybody may make up."""
    found, method = request.route, request.method
    if found is None:
        path = request.path.rstrip("/")
        counted = path in HEALTH or path.startswith("/openapi/v") or path in ("/metrics", "/version", "/api", "/apis")
        return {**dict.fromkeys(_NAMES, ""), "subresource": path, "verb": method} if counted else None
    resource = found.served.resource
    verb = method
    if method == "GET" and not found.name:
        verb = "LIST"
    elif method == "DELETE" and not found.name:
        verb = "DELETECOLLECTION"
    elif method == "PATCH" and request.headers.get("content-type", "").startswith(_APPLY):
        verb = "APPLY"
    if method == "GET" and request.flag("watch"):
        verb = "WATCH"
    scope = "namespace" if found.namespace else "cluster"
    return {
        "component": "apiserver",
        "dry_run": "All" if "All" in request.query.get("dryRun", ()) and method in _MUTATING else "",
        "group": resource.group,
        "resource": resource.plural,
        "scope": "resource" if found.name or method == "POST" else scope,
        "subresource": found.subresource,
        "verb": verb,
        "version": resource.version,
    }


def _requests(series: list[_Series]) -> Iterator[str]:
    lines = [
        ({"code": str(code), **each.labels, "system_client": ""}, count)
        for each in series
        for code, count in sorted(each.codes.items())
    ]
    return _family("apiserver_request_total", "counter", "Requests by what they ask for and how they end.", lines)


def _durations(series: list[_Series]) -> Iterator[str]:
    timed = [each for each in series if each.quick or any(each.slow)]
    yield from _head("apiserver_request_duration_seconds", "histogram", "Seconds to the answer, without watches.")
    for each in timed:
        yield from _histogram("apiserver_request_duration_seconds", each.labels, SECONDS, _all(each), each.seconds)
    yield from _head("apiserver_request_sli_duration_seconds", "histogram", "The same, without what others add to it.")
    for each in timed:
        labels = {name: text for name, text in each.labels.items() if name != "dry_run"}
        if not each.labels["dry_run"]:
            yield from _histogram("apiserver_request_sli_duration_seconds", labels, SECONDS, _all(each), each.seconds)


def _all(series: _Series) -> list[int]:
    return [series.quick, *series.slow]


def _sizes(series: list[_Series]) -> Iterator[str]:
    yield from _head("apiserver_response_sizes", "histogram", "Bytes of answers to reads.")
    for each in series:
        if any(each.sizes):
            labels = {name: text for name, text in each.labels.items() if name != "dry_run"}
            yield from _histogram("apiserver_response_sizes", labels, BYTES, each.sizes, each.size)


def _open(watched: Iterable[RequestInfo]) -> Iterator[tuple[Labels, float]]:
    counts = Counter((each.served.resource, bool(each.name), bool(each.namespace)) for each in watched)
    for (resource, named, spaced), count in counts.items():
        yield {
            "component": "apiserver", "group": resource.group, "resource": resource.plural, "subresource": "",
            "scope": "resource" if named else "namespace" if spaced else "cluster",
            "verb": "WATCH", "version": resource.version,
        }, count  # fmt: skip


def _deprecated(series: list[_Series]) -> Iterator[Labels]:
    names = ("group", "resource", "subresource", "version")
    told = {tuple(each.labels[name] for name in names) for each in series if each.deprecated}
    return (dict(zip(names, each, strict=True)) for each in sorted(told))


def _objects(store: Store) -> Iterator[str]:
    served = {each.resource.group_resource: 0 for each in BY_PATH.values() if each.stored and each.stored_as is None}
    counts = sorted((served | {name: len(table) for name, table in store.tables()}).items())
    by_name = [({"resource": name}, count) for name, count in counts]
    yield from _family("apiserver_storage_objects", "gauge", "Stored objects.", by_name)
    split = [({"group": name.partition(".")[2], "resource": name.partition(".")[0]}, count) for name, count in counts]
    yield from _family("apiserver_resource_objects", "gauge", "Stored objects.", split)


def _health() -> Iterator[str]:
    checks = sorted((check, place[1:]) for place, names in HEALTH.items() for check in names)
    lines = [({"name": name, "type": type_}, 1) for name, type_ in checks]
    return _family("kubernetes_healthcheck", "gauge", "1 for a check that passes.", lines)


def _process(began: float) -> Iterator[str]:
    times = os.times()
    values: dict[str, tuple[str, str, float]] = {
        "process_cpu_seconds_total": ("counter", "CPU time of this process.", times.user + times.system),
        "process_start_time_seconds": ("gauge", "When this server began, since the epoch.", began),
    }
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            virtual, resident = (int(each) * os.sysconf("SC_PAGE_SIZE") for each in pages.read().split()[:2])
        values["process_open_fds"] = ("gauge", "Open files and sockets.", len(os.listdir("/proc/self/fd")))
        values["process_resident_memory_bytes"] = ("gauge", "Memory in use.", resident)
        values["process_virtual_memory_bytes"] = ("gauge", "Memory that is mapped.", virtual)
    except OSError:
        pass  # elsewhere than on Linux there is nothing to read
    for name, (type_, told, value) in sorted(values.items()):
        yield from _family(name, type_, told, [({}, value)])


# --- the format -------------------------------------------------------------------------------------------------------


def _head(name: str, type_: str, told: str) -> tuple[str]:
    return (f"# HELP {name} {told}\n# TYPE {name} {type_}\n",)


def _family(name: str, type_: str, told: str, lines: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, type_, told)
    for labels, value in lines:
        yield f"{name}{_shown(labels)} {value:.15g}\n"


def _histogram(name: str, labels: Labels, bounds: tuple[float, ...], counts: list[int], total: float) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*bounds, None), counts, strict=False):
        so_far += count
        if bound is not None:
            yield f"{name}_bucket{_shown({**labels, 'le': f'{bound:g}'})} {so_far}\n"
    yield f"{name}_bucket{_shown({**labels, 'le': '+Inf'})} {so_far}\n"
    yield f"{name}_sum{_shown(labels)} {total:.15g}\n{name}_count{_shown(labels)} {so_far}\n"


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(text)}"' for name, text in sorted(labels.items()))
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
