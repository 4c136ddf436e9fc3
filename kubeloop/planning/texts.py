"""The plan as text, as Markdown for a comment on a pull request, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubeloop.planning.fit import MOST_RUNS
from kubeloop.planning.result import (
    DisplacedPod,
    FitResult,
    ObjectChange,
    Plan,
    ResourceUse,
    UnplacedPods,
    WorkloadResult,
)
from kubeloop.process.junit import junit_document

_SIGNS: Final = {"create": "+", "change": "~", "delete": "-"}
_MAX_NAMES: Final = 5
_MAX_DISPLACED: Final = 20
_MAX_DETAILS: Final = 3
_WORDS: Final = {"create": "created", "change": "changed", "delete": "deleted"}


def plan_text(plan: Plan) -> str:
    """Return the plan for a terminal."""
    return "\n".join(_lines(plan)) + "\n"


def plan_markdown(plan: Plan) -> str:
    """Return the plan as Markdown: the verdict first, details folded."""
    verdict = "everything fits" if plan.fits else "not everything fits"
    lines = [f"### kubeloop plan: {verdict}", "", f"`{plan.cluster}`, {_total(plan)}", ""]
    if plan.workloads:
        lines += ["| workload | pods placed | pending | rollout |", "|---|---|---|---|"]
        for workload in plan.workloads:
            pending = sum(pods.count for pods in workload.pending)
            rollout = _cell("; ".join([_rollout(workload), *workload.reasons]))
            lines.append(f"| `{_title(workload)}` | {_placed(workload)} | {pending or ''} | {rollout} |")
        lines.append("")
    if use := _use(plan.resources):
        lines += [f"Requested of {plan.nodes_after} nodes: {use}.", ""]
    if plan.would_help:
        lines += [f"Would help: {plan.would_help}.", ""]
    body = plan_text(plan).rstrip().replace("```", "'''")
    lines += ["<details><summary>the whole plan</summary>", "", "```text", body, "```", "</details>"]
    return "\n".join(lines) + "\n"


def plan_junit(plan: Plan) -> str:
    """Return the plan as JUnit XML: a test case per workload, drain and fit, which fails if it does not fit."""
    cases = []
    for workload in plan.workloads:
        reasons = [*workload.reasons, *(f"{pods.count} pending: {pods.message}" for pods in workload.pending)]
        cases.append((_title(workload), reasons if workload.rollout == "failed" else []))
    cases += [(f"drain {pod.node}: {pod.pod}", [pod.reason]) for pod in plan.blocked]
    if plan.fit is not None:
        cases.append((f"fit {plan.fit.like}", [] if plan.fit.nodes is not None else ["no number of nodes suffices"]))
    return junit_document("kubeloop.plan", cases)


# --- text -------------------------------------------------------------------------------------------------------------


def _lines(plan: Plan) -> Iterator[str]:
    yield f"plan for {plan.cluster} at {plan.moment}"
    workloads = {(workload.kind, workload.namespace, workload.name): workload for workload in plan.workloads}
    for change in plan.changes:
        yield _change_line(change)
        workload = workloads.pop((change.kind, change.namespace, change.name), None)
        if workload is not None:
            yield from _workload_lines(workload)
    for workload in filter(_is_worth_a_line, workloads.values()):
        yield f"  {_title(workload)}"
        yield from _workload_lines(workload)
    yield from _displaced_lines("preempts", plan.preempted)
    yield from _displaced_lines("evicts", plan.evicted)
    for blocked in plan.blocked:
        yield f"! drain of {blocked.node} never ends: {blocked.pod}: {blocked.reason}"
    for workload in plan.pending_before:
        yield f"  {_title(workload)}: pending before, and still"
        for pods in workload.pending:
            yield from _pending_lines(pods)
    if not plan.changes and not any(map(_is_worth_a_line, plan.workloads)):
        yield "  nothing changes"
    if use := _use(plan.resources):
        yield f"requested: {use} of {_node_count(plan)}"
    if plan.would_help:
        yield f"would help: {plan.would_help}"
    if plan.fit is not None:
        yield fit_line(plan.fit)
    for finding in plan.findings:
        yield f"warning: {finding}"
    yield f"{_total(plan)}; {'everything fits' if plan.fits else 'not everything fits'}"


def _change_line(change: ObjectChange) -> str:
    name = f"{change.namespace}/{change.name}" if change.namespace else change.name
    fields = f"    {', '.join(change.fields)}" if change.fields else ""
    return f"{_SIGNS[change.action]} {change.kind.lower()} {name}{fields}"


def _is_worth_a_line(workload: WorkloadResult) -> bool:
    """Return False for a workload that was applied again without an effect."""
    return bool(workload.created or workload.deleted or workload.pending) or workload.rollout == "failed"


def _workload_lines(workload: WorkloadResult) -> Iterator[str]:
    placed = _placed(workload)
    if placed:
        yield f"    {placed}"
    for pods in workload.pending:
        yield from _pending_lines(pods)
    if workload.created or workload.deleted or workload.rollout != "complete":
        yield f"    {_rollout(workload)}"
    for reason in workload.reasons if workload.rollout == "failed" else ():
        yield f"      {reason}"


def _pending_lines(pods: UnplacedPods) -> Iterator[str]:
    before = ", as before" if pods.pending_before else ""
    yield f"    {pods.count} pending{before}: {pods.message}"
    for detail in pods.details[:_MAX_DETAILS]:
        yield f"      {detail}"
    for help_ in pods.helps:
        yield f"      would help: {help_}"


def _displaced_lines(verb: str, pods: list[DisplacedPod]) -> Iterator[str]:
    for pod in pods[:_MAX_DISPLACED]:
        lost = "" if pod.replaced else ", and nothing replaces it"
        owner = f" of {pod.workload}" if pod.workload else ""
        yield f"! {verb} {pod.pod}{owner} on {pod.node}: {pod.reason}{lost}"
    if len(pods) > _MAX_DISPLACED:
        yield f"! {verb} {len(pods) - _MAX_DISPLACED} more pods"


def _placed(workload: WorkloadResult) -> str:
    """Return "9 of 12 pods placed (pool-a 5, pool-b 4)", "" if no pods are created."""
    if not workload.created:
        return ""
    pending = sum(pods.count for pods in workload.pending)
    where = workload.nodes
    for groups in (workload.pools, workload.zones):
        if len(groups) > 1:
            where = groups
            break
    shown = [f"{name} {count}" for name, count in sorted(where.items(), key=lambda item: (-item[1], item[0]))]
    more = [f"{len(shown) - _MAX_NAMES} more"] if len(shown) > _MAX_NAMES else []
    places = f" ({', '.join(shown[:_MAX_NAMES] + more)})" if shown else ""
    return f"{workload.placed} of {workload.placed + pending} new pods placed{places}"


def _rollout(workload: WorkloadResult) -> str:
    waits = f" ({', '.join(workload.waits)})" if workload.waits else ""
    match workload.rollout:
        case "complete":
            return f"complete after about {max(1.0, workload.seconds):.0f} s{waits}"
        case "running":
            return "its pods run; when they end is not known"
        case "suspended":
            return "suspended"
        case _:
            return f"the rollout never completes{waits}"


def _title(workload: WorkloadResult) -> str:
    return f"{workload.kind.lower()} {workload.namespace}/{workload.name}"


def _use(resources: Mapping[str, ResourceUse]) -> str:
    """Return "cpu 61 % -> 84 %, memory 48 %"."""
    parts = []
    for name, use in resources.items():
        if name != "pods":
            before = _share(use.requested_before, use.allocatable_before)
            after = _share(use.requested_after, use.allocatable_after)
            parts.append(f"{name} {before}" if before == after else f"{name} {before} -> {after}")
    return ", ".join(parts)


def _share(requested: int, allocatable: int) -> str:
    if not allocatable:
        return "none" if not requested else "more than there is"
    return f"{100 * requested / allocatable:.0f} %"


def _node_count(plan: Plan) -> str:
    if plan.nodes_before == plan.nodes_after:
        return f"{plan.nodes_after} nodes"
    return f"{plan.nodes_before} -> {plan.nodes_after} nodes"


def fit_line(fit: FitResult) -> str:
    """Return how many nodes are enough, and the pods that are pending with other numbers."""
    if fit.nodes == 0:
        return f"nothing is pending without more nodes like {fit.like}"
    runs = "; ".join(f"{run.pending} pending with {run.nodes}" for run in fit.runs)
    if not fit.is_fewest:
        runs += "; fewer were not tried"
    if fit.nodes is not None:
        count, verb = ("1 more node", "is") if fit.nodes == 1 else (f"{fit.nodes} more nodes", "are")
        return f"{count} like {fit.like} {verb} enough ({runs})"
    if len(fit.runs) < MOST_RUNS:
        return f"no number of nodes like {fit.like} is enough ({runs})"
    return f"{max(run.nodes for run in fit.runs)} more nodes like {fit.like} are not enough ({runs})"


def _total(plan: Plan) -> str:
    counts = [f"{sum(change.action == action for change in plan.changes)} {word}" for action, word in _WORDS.items()]
    pending = sum(pods.count for workload in plan.workloads for pods in workload.pending)
    parts = [", ".join(counts)]
    parts += [f"{pending} pods pending"] if pending else []
    parts += [f"{len(plan.preempted)} preempted"] if plan.preempted else []
    parts += [f"{len(plan.evicted)} evicted"] if plan.evicted else []
    return ", ".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
