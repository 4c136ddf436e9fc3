"""`kubeloop explain pod/NAME`: why a pod is pending, asked from the process whose scheduler has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH

if TYPE_CHECKING:
    from rich.console import RenderableType

_HINT = "kubectl get pods -A lists what there is; only a process that runs the scheduler can explain"
_TOLD_NODES = 6  # names in one row; the JSON document has them all
_QUEUES = {
    "active": "waits for its turn",
    "backoff": "backs off after an attempt that failed",
    "unschedulable": "waits until something changes that may help it, and for 5 minutes at most",
    "gated": "is not queued",
    "in flight": "is being scheduled",
}
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def show(*, target: str, namespace: str, as_json: bool, endpoint: str | None) -> int:
    """Run the command and return its exit code. Raises UserError for what the user can mend."""
    from kubeloop.cli import endpoint_client

    _, name = endpoint_client.parse_target(target, endpoint_client.PODS, verb="explain")
    document = endpoint_client.ask(EXPLAIN_PATH, {"namespace": namespace, "pod": name}, endpoint=endpoint, hint=_HINT)
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    from rich.console import Console

    Console(highlight=False).print(told(document))
    return 0


def told(document: Mapping[str, Any]) -> RenderableType:
    """The explanation for people: obstacles grouped by plugin and reason, with the nodes they stand on."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text.assemble((f"pod {document['pod']}", "bold"), f": {document['summary']}")]
    if not document["scheduling"]:
        parts.append(Text("This process does not schedule now: it has just started, or another replica leads"))
    if document["message"] and document["message"] != document["summary"]:
        parts.append(Text(document["message"]))
    if document["queue"]:
        parts.append(Text(_waiting(document), style="dim"))
    last = document["lastAttempt"]
    if last and not (document["message"] and last.startswith(f"Unschedulable: {document['message']}")):
        parts.append(Text(f"The last attempt ended with {last}", style="dim"))
    rows = reasons(document["nodes"])
    if any(row.plugin for row in rows):
        parts += [Text(), _table(rows)]
    parts += [Text(line) for line in ["", *help_lines(document)]] if help_lines(document) else []
    return Group(*parts)


class Reason:
    """What one plugin has against the pod, and on which nodes; plugin "" for the nodes that could take it."""

    __slots__ = ("nodes", "plugin", "reasons")

    def __init__(self, plugin: str, reasons: Sequence[str]) -> None:
        self.plugin = plugin
        self.reasons = reasons
        self.nodes: list[str] = []

    @property
    def where(self) -> str:
        told = ", ".join(self.nodes[:_TOLD_NODES])
        more = len(self.nodes) - _TOLD_NODES
        return f"{told} and {more} more" if more > 0 else told


def reasons(nodes: Sequence[Mapping[str, Any]]) -> list[Reason]:
    """The obstacles of all nodes, each with its nodes; the most frequent first."""
    found: dict[tuple[str, ...], Reason] = {}
    for node in nodes:
        for obstacle in node["obstacles"] or [{"plugin": "", "reasons": ["the pod fits here"]}]:
            key = (obstacle["plugin"], *obstacle["reasons"])
            found.setdefault(key, Reason(obstacle["plugin"], obstacle["reasons"])).nodes.append(node["node"])
    return sorted(found.values(), key=lambda each: -len(each.nodes))


def help_lines(document: Mapping[str, Any]) -> list[str]:
    """What would have to change, and what preemption could do."""
    lines = []
    if document["shortages"]:
        missing = ", ".join(f"{amount_text(name, amount)} of {name}" for name, amount in document["shortages"].items())
        lines.append(f"Missing on the nodes that come closest: {missing}.")
    if document["advice"]:
        lines += ["What would help:", *(f"  - {each}" for each in document["advice"])]
    if document["preemption"]:
        lines.append(f"Preemption: {document['preemption'].removeprefix('preemption ')}.")
        helped = [node["node"] for node in document["nodes"] if node["preemptionHelps"]]
        if helped:
            everywhere = Reason("", ())
            everywhere.nodes = helped
            lines.append(f"  on {everywhere.where}")
    return lines


def amount_text(resource: str, amount: int) -> str:
    """An amount as people write it: "500m" of cpu, "1.5Gi" of memory, 3 of anything else."""
    if resource == "cpu":
        return f"{amount / 1000:g}" if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in _UNITS:
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


def _waiting(document: Mapping[str, Any]) -> str:
    attempts = document["attempts"]
    tried = f"tried {attempts} time{'' if attempts == 1 else 's'}" if attempts else "not tried yet"
    text = f"It {_QUEUES[document['queue']]}; {tried}"
    if document["retrySeconds"]:
        text += f", again in {document['retrySeconds']:.0f} s"
    if document["rejectedBy"]:
        text += f"; rejected last by {', '.join(document['rejectedBy'])}"
    return f"{text}."


def _table(rows: Sequence[Reason]) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("plugin", no_wrap=True)
    table.add_column("reason", overflow="fold")
    table.add_column("which", overflow="fold", style="dim")
    for row in rows:
        table.add_row(str(len(row.nodes)), row.plugin or "-", ", ".join(row.reasons), row.where)
    return table
