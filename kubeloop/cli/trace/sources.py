"""Sources of traces for `kubeloop trace`: a running process, or an OTLP file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.cli import endpoint_client
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.paths import TRACES_PATH
from kubeloop.process.endpoint.trace_targets import Target, causes_of, resolve, resolve_owner
from kubeloop.tracing.views.feed_response import FeedResponse
from kubeloop.tracing.views.otlp_json import OtlpJsonError, from_otlp
from kubeloop.tracing.views.pod_lines import PodLine, pod_line

_HINT = "list pods with kubectl get pods -A; only the newest traces are stored"


class LineFeed:
    """The lines of a running process' pods, updated incrementally. now_us: time of the process at the last change."""

    def __init__(self, get_changes: Callable[[str], FeedResponse]) -> None:
        """`get_changes` returns the changes since a cursor."""
        self._get_changes = get_changes
        self._cursor = ""
        self._by_key: dict[str, PodLine] = {}
        self.now_us = 0

    def catch_up(self) -> list[PodLine]:
        """Request changes until there are no more; return the changed lines."""
        changed: dict[str, PodLine] = {}
        while True:
            response = self._get_changes(self._cursor)
            if response.reset:
                self._by_key.clear()
                changed.clear()
            for key in response.removed:
                self._by_key.pop(key, None)
            fresh = {line.key: line for line in response.lines}
            self._by_key |= fresh
            changed |= fresh
            self._cursor, self.now_us = response.cursor, response.now_us
            if not response.more:
                return [*changed.values()]

    def now(self) -> list[PodLine]:
        """Return all lines; those of pending pods are extended to the present time of the process."""
        return [_extend_to_now(line, self.now_us) for line in self._by_key.values()]


class RunningProcessTraces:
    """Traces of a running process. endpoint: its URL, by default that of default_process()."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint

    def trace(self, target: Target) -> dict[str, Any]:
        """Return the trace of a pod; for any other target, that of its slowest pod. Raises UserError for none."""
        document: dict[str, Any] = endpoint_client.get_json(
            TRACES_PATH, target.query(), endpoint=self._endpoint, hint=_HINT
        )
        return document

    def lines(self, target: Target) -> list[PodLine]:
        """Return the lines of the pods of an owner, of a namespace, or of all pods. Raises UserError for none."""
        line_feed = self.line_feed(target)
        line_feed.catch_up()
        return line_feed.now()

    def line_feed(self, target: Target) -> LineFeed:
        query = target.query()

        def get_changes(cursor: str) -> FeedResponse:
            response = endpoint_client.get_json(
                f"{TRACES_PATH}/lines", {**query, "cursor": cursor}, endpoint=self._endpoint, hint=_HINT
            )
            return msgspec.convert(response, FeedResponse)

        return LineFeed(get_changes)

    def linked_trace(self, trace_id: str) -> dict[str, Any] | None:
        """Return the trace of a pod group or a reconcile, None if there is none."""
        document: dict[str, Any] | None = endpoint_client.get_json(
            f"{TRACES_PATH}/linked", {"trace": trace_id}, endpoint=self._endpoint, hint=_HINT
        )
        return document

    def documents(self, target: Target) -> Iterator[dict[str, Any]]:
        """Yield whole traces, and those of their pod groups and causes. Raises UserError for none."""
        return endpoint_client.stream_json_lines(
            f"{TRACES_PATH}/stream", target.query(), endpoint=self._endpoint, hint=_HINT
        )


class FileTraces:
    """The traces of an OTLP file, "-" for stdin; methods as those of RunningProcessTraces."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises UserError if it cannot be read or is not OTLP JSON."""
        self._path = path
        try:
            content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", hint="--from takes a file of OTLP JSON") from None
        try:
            self._documents = from_otlp(content)
        except OtlpJsonError as error:
            raise UserError(
                f"{path} is not OTLP JSON: {error}",
                hint="--from takes a file that kubeloop trace --otlp or a collector has written",
            ) from None
        self._lines = {
            line.key: (line, document) for document in self._documents if (line := pod_line(document)) is not None
        }

    def trace(self, target: Target) -> dict[str, Any]:
        candidates = self._selected(target)
        if target.kind == "pod":
            return max(candidates, key=lambda item: item[0].start_us)[1]  # the newest of this name
        return max(candidates, key=lambda item: item[0].duration_us)[1]

    def lines(self, target: Target) -> list[PodLine]:
        return [line for line, _ in self._selected(target)]

    def linked_trace(self, trace_id: str) -> dict[str, Any] | None:
        return next((document for document in self._documents if document["traceId"] == trace_id), None)

    def documents(self, target: Target) -> Iterator[dict[str, Any]]:
        if not target.kind and not target.namespace:
            yield from self._documents
            return
        documents = [document for _, document in self._selected(target)]
        yield from documents
        by_id = {document["traceId"]: document for document in self._documents}
        sent_ids = {document["traceId"] for document in documents}
        pending_ids = [cause for document in documents for cause in causes_of(document)]
        while pending_ids:
            trace_id = pending_ids.pop()
            if trace_id not in sent_ids and trace_id in by_id:
                sent_ids.add(trace_id)
                yield by_id[trace_id]
                pending_ids += causes_of(by_id[trace_id])

    def _selected(self, target: Target) -> list[tuple[PodLine, dict[str, Any]]]:
        items = [*self._lines.values()]
        if not items:
            raise UserError(
                f"there is no pod's trace in {self._path}",
                hint="traces of pods need the span attributes of docs/tracing.md, such as kubeloop.outcome",
            )
        if not target.kind:
            selected = [item for item in items if target.namespace in ("", item[0].namespace)]
            if not selected:
                namespaces = sorted({line.namespace for line, _ in items})
                raise UserError(
                    f"no pod of namespace {target.namespace} in {self._path}", hint=f"it has {', '.join(namespaces)}"
                )
            return selected
        if target.is_owner:
            owners = {(line.namespace, owner) for line, _ in items for owner in line.owners}
            namespace, owner = resolve_owner(target.kind, target.name, target.namespace, owners)
            return [item for item in items if item[0].namespace == namespace and owner in item[0].owners]
        namespace = resolve("pod", target.name, target.namespace, {(line.namespace, line.name) for line, _ in items})
        return [item for item in items if (item[0].namespace, item[0].name) == (namespace, target.name)]


Traces = RunningProcessTraces | FileTraces


def group_trace(traces: Traces, lines: Iterable[PodLine]) -> dict[str, Any] | None:
    """Return the trace of the group that these pods belong to, the newest one; None if it has none."""
    newest = max((line for line in lines if line.group_trace_id), key=lambda line: line.start_us, default=None)
    return traces.linked_trace(newest.group_trace_id) if newest is not None else None


def _extend_to_now(line: PodLine, now_us: int) -> PodLine:
    """Return the line of a pending pod extended to now: its last phase continues."""
    more = now_us - line.end_us
    if not line.is_open or more <= 0:
        return line
    segments = [*line.segments]
    if segments:
        segments[-1] += more
    return msgspec.structs.replace(line, duration_us=line.duration_us + more, segments=segments)
