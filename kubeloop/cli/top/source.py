"""Pods, workloads and nodes of a process, read for `kubeloop top`. All methods may block and raise UserError."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubeloop.cli import endpoint_client
from kubeloop.cli.explain.explain import render_explanation
from kubeloop.cli.trace.sources import RunningProcessTraces
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.process.endpoint.object_pages import NODES_PATH, OBJECTS_PATH
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.views.pod_lines import PodLine
from kubeloop.tracing.views.printable import printable
from kubeloop.tracing.views.waterfall import waterfall

_HINT = "is it a kubeloop process of this version?"
_EXPLAIN_SECONDS = 60.0  # an observing process reads the cluster
_WIDTH = 78  # of tables on a terminal of 80 columns


def require_terminal() -> None:
    """Raise UserError unless stdout is a terminal and textual is installed."""
    if importlib.util.find_spec("textual") is None:
        raise UserError("kubeloop top needs the package textual", hint="pip install 'kubeloop[top]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("kubeloop top needs a terminal", hint="in a pipe, use kubeloop trace or kubectl get pods")


class TopSource:
    """Pods and nodes of one process. endpoint: its URL, by default that of default_process(); namespace "": all."""

    def __init__(self, endpoint: str | None, namespace: str) -> None:
        self._endpoint = endpoint
        self._traces = RunningProcessTraces(endpoint)
        self._feed = self._traces.line_feed(Target(namespace=namespace))
        self._polling = threading.Lock()

    def poll(self, *, with_nodes: bool) -> tuple[list[PodLine], list[dict[str, Any]], int] | None:
        """Return the pods, the nodes, and the time of the process in microseconds; None during another poll."""
        if not self._polling.acquire(blocking=False):
            return None
        try:
            self._feed.catch_up()
            nodes = self._get(NODES_PATH) if with_nodes else []
            return self._feed.now(), nodes, self._feed.now_us
        finally:
            self._polling.release()

    def waterfall(self, namespace: str, name: str) -> RenderableType:
        return waterfall(self._traces.trace(Target("pod", name, namespace)))

    def explain(self, namespace: str, name: str) -> RenderableType:
        query = {"namespace": namespace, "pod": name, "scores": "true"}
        return render_explanation(printable(self._get(EXPLAIN_PATH, query, _EXPLAIN_SECONDS)), _WIDTH)

    def describe(self, namespace: str, name: str) -> RenderableType:
        """Return containers, conditions and Events of the pod."""
        pod = printable(self._get(f"{OBJECTS_PATH}/pod", {"namespace": namespace, "pod": name}))
        parts: list[RenderableType] = [
            _table(
                ("CONTAINER", "STATE", "READY", "RESTARTS", "REASON"),
                [
                    (entry["name"], entry["state"], str(entry["ready"]), str(entry["restarts"]), entry["reason"])
                    for entry in pod["containers"]
                ],
            ),
            Text(),
            _table(
                ("CONDITION", "STATUS", "SINCE", "REASON"),
                [
                    (entry["type"], entry["status"], entry.get("lastTransitionTime", ""), _reason(entry))
                    for entry in pod["conditions"]
                ],
            ),
            Text(),
        ]
        if pod["eventsProblem"]:
            return Group(*parts, Text(f"no events: {pod['eventsProblem']}"))
        events = [(event["time"][11:19], event["reason"], event["message"]) for event in pod["events"]]
        return Group(*parts, _table(("EVENT", "REASON", "MESSAGE"), events) if events else Text("no events"))

    def log(self, namespace: str, name: str) -> RenderableType:
        """Return the last lines of the log of each container that has started."""
        query = {"namespace": namespace, "pod": name}
        containers = self._get(f"{OBJECTS_PATH}/pod", query)["containers"]
        parts = []
        for container in containers:
            try:
                log = self._get(f"{OBJECTS_PATH}/logs", query | {"container": container["name"]})["log"]
            except UserError as error:
                log = str(error)
            parts.append(Text(f"{container['name']}:", style="bold"))
            parts.append(Text(printable(log) or "(empty)"))
        return Group(*parts)

    def _get(self, path: str, query: dict[str, str] | None = None, seconds: float = 10.0) -> Any:
        return endpoint_client.get_json(path, query or {}, endpoint=self._endpoint, hint=_HINT, timeout_seconds=seconds)


def _reason(condition: dict[str, Any]) -> str:
    return ": ".join(filter(None, (condition.get("reason", ""), condition.get("message", ""))))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
