"""Where `kubeloop trace` takes traces from: the running process, or a file that it or another tool wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kubeloop.cli import endpoint_client
from kubeloop.kube.errors import UserError
from kubeloop.process.endpoint.trace_targets import TRACES_PATH, Target, causes_of, resolve
from kubeloop.tracing.views.feed_response import FeedResponse
from kubeloop.tracing.views.otlp_json import NotOtlp, from_otlp
from kubeloop.tracing.views.pod_lines import PodLine, pod_line

_HINT = "kubectl get pods -A lists what there is; the newest traces are kept"


class Traces(Protocol):
    """What the views ask. All raise UserError if there is nothing of the kind."""

    def one(self, target: Target) -> dict[str, Any]:
        """The trace of a pod; of the slowest one for any other target."""
        ...

    def lines(self, target: Target) -> list[PodLine]:
        """The pods of a Deployment, or all of a namespace, or all."""
        ...

    def documents(self, target: Target) -> Iterator[dict[str, Any]]:
        """Whole traces, and those of what caused them."""
        ...


class ChangingLines:
    """The lines of a running process' pods, kept up to date by asking for what changed."""

    def __init__(self, ask: Callable[[str], FeedResponse]) -> None:
        """`ask`: what changed since a cursor."""
        self._ask = ask
        self._cursor = ""
        self._by_key: dict[str, PodLine] = {}
        self._now_us = 0

    def catch_up(self) -> list[PodLine]:
        """Ask until there is no more; those that changed."""
        changed: dict[str, PodLine] = {}
        while True:
            answer = self._ask(self._cursor)
            if answer.reset:
                self._by_key.clear()
                changed.clear()
            for key in answer.removed:
                self._by_key.pop(key, None)
            fresh = {line.key: line for line in answer.lines}
            self._by_key |= fresh
            changed |= fresh
            self._cursor, self._now_us = answer.cursor, answer.now_us
            if not answer.more:
                return [*changed.values()]

    def now(self) -> list[PodLine]:
        """All lines; those of pods on their way reach up to the process' present."""
        return [_prolonged(line, self._now_us) for line in self._by_key.values()]


class RunningProcessTraces:
    """Asks the endpoint of a process; `endpoint`: its URL, by default that of the process_to_ask()."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint

    def one(self, target: Target) -> dict[str, Any]:
        document: dict[str, Any] = endpoint_client.ask(TRACES_PATH, target.query(), endpoint=self._endpoint, hint=_HINT)
        return document

    def lines(self, target: Target) -> list[PodLine]:
        changing = self.changing(target)
        changing.catch_up()
        return changing.now()

    def changing(self, target: Target) -> ChangingLines:
        query = {"namespace": target.namespace}
        if target.kind == "deployment":
            query["owner"] = f"deployment/{target.name}"

        def ask(cursor: str) -> FeedResponse:
            answer = endpoint_client.ask(
                f"{TRACES_PATH}/lines", {**query, "cursor": cursor}, endpoint=self._endpoint, hint=_HINT
            )
            return msgspec.convert(answer, FeedResponse)

        return ChangingLines(ask)

    def documents(self, target: Target) -> Iterator[dict[str, Any]]:
        return endpoint_client.ask_lines(f"{TRACES_PATH}/stream", target.query(), endpoint=self._endpoint, hint=_HINT)


class FileTraces:
    """The traces of an OTLP file, "-" for stdin."""

    def __init__(self, path: Path) -> None:
        """Raises UserError if it cannot be read, or is none."""
        self._path = path
        try:
            content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", hint="--from takes a file of OTLP JSON") from None
        try:
            self._documents = from_otlp(content)
        except NotOtlp as error:
            raise UserError(
                f"{path} is no OTLP JSON: {error}", hint="kubeloop trace --otlp FILE writes one; collectors do, too"
            ) from None
        self._lines = {
            line.key: (line, document) for document in self._documents if (line := pod_line(document)) is not None
        }

    def one(self, target: Target) -> dict[str, Any]:
        candidates = self._chosen(target)
        if target.kind == "pod":
            return max(candidates, key=lambda each: each[0].start_us)[1]  # the newest of this name
        return max(candidates, key=lambda each: each[0].duration_us)[1]

    def lines(self, target: Target) -> list[PodLine]:
        return [line for line, _ in self._chosen(target)]

    def documents(self, target: Target) -> Iterator[dict[str, Any]]:
        if not target.kind and not target.namespace:
            yield from self._documents
            return
        chosen = [document for _, document in self._chosen(target)]
        yield from chosen
        by_id = {document["traceId"]: document for document in self._documents}
        told = {document["traceId"] for document in chosen}
        waiting = [cause for document in chosen for cause in causes_of(document)]
        while waiting:
            trace_id = waiting.pop()
            if trace_id not in told and trace_id in by_id:
                told.add(trace_id)
                yield by_id[trace_id]
                waiting += causes_of(by_id[trace_id])

    def _chosen(self, target: Target) -> list[tuple[PodLine, dict[str, Any]]]:
        everything = [*self._lines.values()]
        if not everything:
            raise UserError(
                f"there is no pod's trace in {self._path}",
                hint="pods are told by the span attributes of docs/tracing.md, such as kubeloop.outcome",
            )
        if not target.kind:
            found = [each for each in everything if target.namespace in ("", each[0].namespace)]
            if not found:
                spaces = sorted({line.namespace for line, _ in everything})
                raise UserError(
                    f"no pod of namespace {target.namespace} in {self._path}", hint=f"it has {', '.join(spaces)}"
                )
            return found
        named = [((each[0].namespace, _name(target.kind, each[0])), each) for each in everything]
        namespace = resolve(target.kind, target.name, target.namespace, [where for where, _ in named])
        return [each for where, each in named if where == (namespace, target.name)]


def _name(kind: str, line: PodLine) -> str:
    return line.name if kind == "pod" else line.owner.removeprefix("deployment/") if "deployment/" in line.owner else ""


def _prolonged(line: PodLine, now_us: int) -> PodLine:
    """The line of a pod that goes on, up to now: what it was last seen doing, it still does."""
    more = now_us - line.end_us
    if not line.is_open or more <= 0:
        return line
    segments = [*line.segments]
    if segments:
        segments[-1] += more
    return msgspec.structs.replace(line, duration_us=line.duration_us + more, segments=segments)
