"""`kubeloop explain`: why a pod or pod group is pending, from the scheduler's process, or from the cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeloop.cli import endpoint_client
from kubeloop.cli.options.options import ExplainOptions, FeatureGateOptions
from kubeloop.cli.targets import parse_target
from kubeloop.cli.terminal import output_console
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.process.process_files import ProcessRecord, current_kubeconfig, default_process, list_processes
from kubeloop.tracing.views.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kubeloop.cli.explain.cluster import ClusterSource

_HINT = "list pods with kubectl get pods -A; --kubeconfig reads a cluster with another scheduler"
_NOT_SCHEDULING = "This process is not scheduling: it has just started, or another replica is the leader"
_MAX_NODE_NAMES = 6  # in one row; the JSON document has all
_QUEUES = {
    "active": "is waiting in the active queue",
    "backoff": "is backing off after a failed attempt",
    "unschedulable": "is unschedulable until a relevant change, at most 5 minutes",
    "gated": "is not queued",
    "in flight": "is being scheduled",
}
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def show(target: str, options: ExplainOptions, gates: FeatureGateOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    document: dict[str, Any] | None
    explained = Target(*parse_target(target, verb="explain"), options.namespace or "")
    reads_cluster = any(option is not None for option in (options.kubeconfig, options.kube_context, options.config))
    if options.endpoint is not None and reads_cluster:
        raise UserError(
            "--endpoint and --kubeconfig, --context or --config are mutually exclusive",
            hint="--endpoint queries a kubeloop process, the others read a cluster",
        )
    process = default_process() if options.endpoint is None and list_processes() else None
    if options.endpoint is not None or (process is not None and process.schedules and not reads_cluster):
        if options.endpoint is None:
            endpoint_client.print_choice()
        query = explained.query() | ({"scores": "true"} if options.with_scores else {})
        document = endpoint_client.get_json(EXPLAIN_PATH, query, endpoint=options.endpoint, hint=_HINT)
    else:
        from kubeloop.cli.explain.cluster import explain_in_cluster

        source = _cluster_source(options, process)
        if (
            process is not None
            and not process.schedules
            and source == (process.kubeconfig, process.context or None)
            and len(list_processes()) > 1
        ):
            print(f"source: the cluster {process.server}, whose pods no kubeloop process schedules", file=sys.stderr)
        document = explain_in_cluster(
            explained, source, options.config, gates.parsed(), with_scores=options.with_scores
        )
        if document is None:
            return 130
    if options.as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    console = output_console()
    console.print(render_explanation(printable(document), console.width))
    return 0


def _cluster_source(options: ExplainOptions, process: ProcessRecord | None) -> ClusterSource:
    """Return kubeconfig and context of the cluster to read: of the options, else of the process, else the defaults."""
    if options.kubeconfig is not None or options.kube_context is not None:
        return current_kubeconfig(options.kubeconfig), options.kube_context
    if process is not None and current_kubeconfig() in ((), process.kubeconfig):
        return process.kubeconfig, process.context or None
    return current_kubeconfig(), None


def render_explanation(document: Mapping[str, Any], width: int) -> RenderableType:
    """Return the explanation for a terminal of `width` columns: rejections grouped by plugin and reason, with their
    nodes."""
    from rich.console import Group
    from rich.text import Text

    if "podGroup" in document:
        return _render_group(document, width)
    parts: list[RenderableType] = []
    if owner := document.get("owner"):
        parts.append(Text.assemble((owner["name"], "bold"), f": {_owner_summary(owner)}"))
        if not owner["pending"]:
            return Group(*parts)
    parts.append(Text.assemble((f"pod {document['pod']}", "bold"), f": {document['summary']}"))
    if not document.get("scheduling", True):
        parts.append(Text(_NOT_SCHEDULING))
    if document["message"] and document["message"] != document["summary"]:
        parts.append(Text(document["message"]))
    if document["queue"]:
        parts.append(Text(_queue_text(document), style="dim"))
    last = document["lastAttempt"]
    if last and not (document["message"] and last.startswith(f"Unschedulable: {document['message']}")):
        parts.append(Text(f"Result of the last attempt: {last}", style="dim"))
    rows = group_rejections(document["nodes"])
    if any(row.plugin for row in rows):
        parts += [Text(), _table(rows, width)]
    parts += [Text(line) for line in ["", *help_lines(document)]] if help_lines(document) else []
    notes = document.get("notes", [])
    if "scores" in document:
        parts += [Text(), *render_scores(document["scores"], width)]
    parts += [Text(), *(Text(note, style="dim") for note in notes)] if notes else []
    return Group(*parts)


def render_scores(scores: Mapping[str, Any], width: int) -> list[RenderableType]:
    """Return where the pod's node ranks, and a table of the scores of the best nodes, one plugin per row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if scores["problem"]:
        return [Text(f"No scores: {scores['problem']}")]
    nodes = sorted(scores["nodes"], key=lambda node: node["node"] != scores["node"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("weighted (raw to normalized)", overflow="fold")
    name_width = max(len("weighted (raw to normalized)"), *(len(each["plugin"]) for each in nodes[0]["plugins"]), 0)
    columns: list[list[str]] = []
    for node in nodes:
        cells = [f"{each['weighted']} ({each['raw']} to {each['normalized']})" for each in node["plugins"]]
        column = [node["node"], str(node["total"]), *cells]
        name_width += 3 + max(map(len, column))
        if name_width > width and columns:
            break
        columns.append(column)
        table.add_column(node["node"], justify="right", overflow="fold")
    names = ["total", *(each["plugin"] for each in nodes[0]["plugins"])]
    for index, name in enumerate(names, start=1):
        table.add_row(name, *(column[index] for column in columns), style="bold" if index == 1 else "")
    notes = ["Scores are those of now, without this pod" + _left_out(scores["boundLater"]) + "."]
    notes += [f"Scores of extenders are not included: {', '.join(scores['extenders'])}."] if scores["extenders"] else []
    return [Text(_rank_text(scores)), Text(), table, *(Text(note, style="dim") for note in notes)]


def _rank_text(scores: Mapping[str, Any]) -> str:
    feasible = f"{scores['feasible']} node{'' if scores['feasible'] == 1 else 's'}"
    if not scores["node"]:
        return f"The pod fits {feasible}; the highest score is that of {scores['nodes'][0]['node']}."
    if not scores["rank"]:
        return f"The pod would not fit {scores['node']} now; it fits {feasible}."
    place = "the highest score" if scores["rank"] == 1 else f"rank {scores['rank']}"
    ties = f", as {scores['ties']} more" if scores["ties"] else ""
    return f"Of {feasible} that the pod fits, {scores['node']} has {place}{ties}."


def _left_out(bound_later: int) -> str:
    return f" and {bound_later} bound after it" if bound_later else ""


def _render_group(document: Mapping[str, Any], width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble((f"pod group {document['podGroup']}", "bold"), f": {document['summary']}")
    ]
    if not document.get("scheduling", True):
        parts.append(Text(_NOT_SCHEDULING))
    parts += [Text(line) for line in group_lines(document)]
    pod = document["pod"]
    if pod is not None:
        fitting = sum(1 for node in pod["nodes"] if not node["obstacles"])
        if fitting:
            parts += [
                Text(),
                Text(
                    f"Without the other pods of the group, pod {pod['pod']} fits on {fitting} of "
                    f"{len(pod['nodes'])} nodes."
                ),
            ]
        else:
            parts += [Text(), render_explanation(pod, width)]
    notes = document.get("notes", [])
    parts += [Text(), *(Text(note, style="dim") for note in notes)] if notes else []
    return Group(*parts)


def group_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the number of a group's pods, its placements, the pods that are gated or wait on permit, and shortages."""
    policy = f"minCount {document['minCount']}" if document["minCount"] else "not a gang"
    next_attempt = f" Next attempt in {document['retrySeconds']:.0f} s." if document["retrySeconds"] else ""
    counts = f"It has {document['pods']} pods, {document['bound']} of them bound; {policy}.{next_attempt}"
    lines = [counts] if document["pods"] else []
    attempt = document["lastAttempt"]
    if attempt and attempt["placements"]:
        lines += ["", f"Placements by {document['topologyKey']}:"]
        lines += [f"  - {placement['name']}: {placement['message'] or 'fits'}" for placement in attempt["placements"]]
        left_out = attempt["placementCount"] - len(attempt["placements"])
        lines += [f"  - and {left_out} more"] if left_out > 0 else []
    if document["gated"]:
        lines += ["", "Pods that are gated:"]
        lines += [f"  - {gated['pod']} by {gated['plugin']}: {gated['reason']}" for gated in document["gated"]]
    if document["permit"]:
        lines += ["", "Pods that have a node and wait on permit:"]
        lines += [
            f"  - {wait['pod']} on {wait['node']}, for {wait['waitedSeconds']:.0f} s of {wait['timeoutSeconds']:.0f} s"
            for wait in document["permit"]
        ]
    if document["shortages"]:
        where = f"in the {document['topologyKey']} with most of it" if document["topologyKey"] else "on all nodes"
        lines += ["", f"Missing for all of its pods, {where}: {_quantities(document['shortages'])}."]
    if attempt and attempt["preemption"]:
        lines += ["", f"Preemption: {attempt['preemption'].rpartition('preemption: ')[2]}"]
    return lines


def _quantities(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{format_quantity(name, quantity)} of {name}" for name, quantity in amounts.items())


def _owner_summary(owner: Mapping[str, Any]) -> str:
    if not owner["pending"]:
        return f"none of its pods ({owner['pods']}) waits for a node"
    return f"{owner['pending']} of its pods ({owner['pods']}) wait for a node; the first one:"


class Rejection:
    """Reasons of one plugin to reject the pod, with their nodes; plugin "" for nodes that fit."""

    __slots__ = ("nodes", "plugin", "reasons")

    def __init__(self, plugin: str, reasons: Sequence[str]) -> None:
        self.plugin = plugin
        self.reasons = reasons
        self.nodes: list[str] = []

    @property
    def node_names(self) -> str:
        render_explanation = ", ".join(self.nodes[:_MAX_NODE_NAMES])
        more = len(self.nodes) - _MAX_NODE_NAMES
        return f"{render_explanation} and {more} more" if more > 0 else render_explanation


def group_rejections(nodes: Sequence[Mapping[str, Any]]) -> list[Rejection]:
    """Return the rejections of all nodes, grouped, the most frequent first."""
    rejections: dict[tuple[str, ...], Rejection] = {}
    for node in nodes:
        for obstacle in node["obstacles"] or [{"plugin": "", "reasons": ["the pod fits here"]}]:
            key = (obstacle["plugin"], *obstacle["reasons"])
            rejections.setdefault(key, Rejection(obstacle["plugin"], obstacle["reasons"])).nodes.append(node["node"])
    return sorted(rejections.values(), key=lambda rejection: -len(rejection.nodes))


def help_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the changes that would help, and the effect of preemption."""
    lines = []
    if document["shortages"]:
        lines.append(f"Missing on the nodes with the smallest shortage: {_quantities(document['shortages'])}.")
    if document["details"]:
        lines += ["Details:", *(f"  - {detail}" for detail in document["details"])]
    if document["advice"]:
        lines += ["What would help:", *(f"  - {advice}" for advice in document["advice"])]
    if document["preemption"]:
        lines.append(f"Preemption: {document['preemption'].removeprefix('preemption ')}.")
        nodes = [node["node"] for node in document["nodes"] if node["preemptionHelps"]]
        if nodes:
            rejection = Rejection("", ())
            rejection.nodes = nodes
            lines.append(f"  on {rejection.node_names}")
    return lines


def format_quantity(resource: str, quantity: int) -> str:
    """Return a quantity in its usual unit: "500m" of cpu, "1.5Gi" of memory, 3 of other resources."""
    if resource == "cpu":
        return f"{quantity / 1000:g}" if quantity % 1000 == 0 else f"{quantity}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in _UNITS:
            if quantity >= size:
                return f"{quantity / size:.1f}".removesuffix(".0") + unit
    return str(quantity)


def _queue_text(document: Mapping[str, Any]) -> str:
    attempts = document["attempts"]
    tried = f"tried {attempts} time{'' if attempts == 1 else 's'}" if attempts else "not tried yet"
    text = f"It {_QUEUES[document['queue']]}; {tried}"
    if document["retrySeconds"]:
        text += f", again in {document['retrySeconds']:.0f} s"
    if document["rejectedBy"]:
        text += f"; last rejected by {', '.join(document['rejectedBy'])}"
    return f"{text}."


def _table(rows: Sequence[Rejection], width: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from kubeloop.tracing.views.columns import fitting_columns, text_width, word_width

    headings = ("nodes", "plugin", "reason", "which")
    cells = [(str(len(row.nodes)), row.plugin or "-", ", ".join(row.reasons), row.node_names) for row in rows]
    columns = [[heading, *column] for heading, column in zip(headings, zip(*cells, strict=True), strict=True)]
    widths = [*(text_width(column) for column in columns[:2]), *(word_width(column) for column in columns[2:])]
    shown = fitting_columns(widths, (3, 1), width, gap=3)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in shown:
        table.add_column(
            headings[index],
            justify="left" if index else "right",
            no_wrap=index < 2,
            min_width=widths[index],
            overflow="fold",
            style="dim" if index == 3 else "",
        )
    for row in cells:
        table.add_row(*(Text(row[index]) for index in shown))
    return table
