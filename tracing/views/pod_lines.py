"""Timeline of a pod as one line: consecutive phases, compact enough for ten thousand pods in memory.

    create |watch|queue  |attempt|  unschedulable     |queue|attempt|bind|confirmation
    ------------------------------------------------------------------------------------> time

Built from a trace document. Imports msgspec, pure functions of `tracing.spans` and this folder only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubeloop.tracing.spans.owners import POD_GROUP, owner_text
from kubeloop.tracing.spans.short_text import shorten
from kubeloop.tracing.views.phases import KEYS, ON_NODE, OTHER, phase_index

Document = Mapping[str, Any]
"""{"traceId", "spans": [{"name", "spanId", "parentSpanId", "start", "end", "attributes", "links", "status"}]}."""

POD_GROUP_ROOT: Final = "pod group"  # name of the root span of a group's trace
APPLY: Final = "apply"  # name of the spans of `kubeloop up -f`: the command, and a request per object
MAX_SEGMENTS: Final = 60  # per line; of a longer history the first and last segments are shown
_GAP_US: Final = 1  # shorter gaps are rounding
_GAP_SHARE: Final = 0.002  # of the duration; shorter gaps have no span and are added to the next segment
_MAX_REASON: Final = 400  # characters

_NAMED_STAGES: Final = {
    "queue active": "queued",
    "queue backoff": "backoff",
    "queue unschedulable": "unschedulable",
    "queue gated": "gated",
    "schedule": "queued",
    "unschedulable": "unschedulable",
    "preemption wait": "unschedulable",
    "gated": "gated",
    "crash back-off": "crash back-off",
    "terminating": "terminating",
    "other scheduler": "other scheduler",
    "watch delivery": "delivery",
    "create": "creating",
}
_OWNER_KINDS: Final = (
    *("cronjob", "deployment", "statefulset", "daemonset", "job"),
    *("replicaset", "replicationcontroller"),
)  # from top to bottom
_SAYS_NOTHING: Final = frozenset({"event loop", "not followed", "not recorded", "not observed"})
_WAITING: Final = KEYS.index("waiting")
_RETRIES: Final = frozenset(map(KEYS.index, ("waiting", "queue", "scheduling", "loop", "unobserved")))
_BOUND_STAGES: Final = frozenset({"bound", "starting", "running", "ready", "completed", "crash back-off", "gone"})
_OUTCOME_STAGES: Final = {
    "bound": "bound",
    "ready": "ready",
    "completed": "completed",
    "deleted": "deleted",
    "failed": "failed",
    "create failed": "failed",
}


class PodLine(msgspec.Struct, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Timeline of one pod. Times in microseconds: `start_us` since the epoch, the others since `start_us`.

    key       ID of the pod's span, or its UID if it has no span: one trace may have several pods
    owner     topmost known owner: "deployment/web", "replicaset/web-5f"; "" for a pod without an owner
    lower_owners  further owners, down to the pod's controller; then the pod group: "podgroup/train"
    stage     creating, delivery, queued, backoff, unschedulable, gated, scheduling, binding, bound, starting, running,
              ready, completed, failed, terminating, deleted, "crash back-off", "other scheduler"; gone: bound, and
              no longer in the cluster
    segments  phase, offset, duration; phase, offset, duration; ... in order of time, gaps as phase OTHER
    edge_uncertainties  of the start of each segment and of the end of the last: the true time is earlier by at most
              this; empty if all are exact
    is_open   the trace has not ended
    is_reconstructed  the pod is older than the process: times before are from the object and its Events
    group_trace_id  of the pod's group; "" without a group, or if that has no trace
    stage_after_us  when the stage began; of a pod that waits, when it first did, if it has only been retried since
    node      that the pod was bound to; "" before
    reason    why the pod waits or failed: message of the scheduler or the API server
    """

    key: str
    trace_id: str
    namespace: str
    name: str
    start_us: int
    duration_us: int
    stage: str
    stage_after_us: int = 0
    segments: list[int] = []
    edge_uncertainties: list[int] = []
    owner: str = ""
    lower_owners: list[str] = []
    group_trace_id: str = ""
    node: str = ""
    attempts: int = 0
    reason: str = ""
    is_open: bool = False
    is_continued: bool = False
    is_reconstructed: bool = False

    def triples(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over phase, offset and duration of each segment."""
        segments = self.segments
        for at in range(0, len(segments), 3):
            yield segments[at], segments[at + 1], segments[at + 2]

    def uncertainty_us(self, first: int = 0, last: int = -1) -> int:
        """Return by how much the time between two edges (indexes) may differ from the true one; by default, of all."""
        edges = self.edge_uncertainties
        return max(edges[first], edges[last]) if edges else 0

    @property
    def owners(self) -> list[str]:
        """All known owners, the topmost first."""
        return [self.owner, *self.lower_owners] if self.owner else []

    @property
    def is_bound(self) -> bool:
        """True for a pod that was bound to a node, whether or not it still exists."""
        return self.stage in _BOUND_STAGES or bool(self.node)

    @property
    def bound_after(self) -> tuple[int, int]:
        """Time from creation to binding of a bound pod, whose trace may continue until it is ready; its uncertainty."""
        for index, (phase, offset, _) in enumerate(self.triples()):
            if phase in ON_NODE:
                return offset, self.uncertainty_us(0, index)
        return self.duration_us, self.uncertainty_us()

    @property
    def end_us(self) -> int:
        return self.start_us + self.duration_us


def pod_span(document: Document) -> Mapping[str, Any] | None:
    """Return the span of the pod, the root within kubeloop; None if the trace is not of a pod."""
    spans = (span for span in document["spans"] if span["name"] != APPLY)  # an apply request has an outcome, too
    return next((span for span in spans if "kubeloop.outcome" in span["attributes"]), None)


def relation(link: Mapping[str, Any]) -> str:
    """Return the relation of a span to the one it is linked to, such as "pod group"."""
    return str(link.get("attributes", {}).get("kubeloop.link", ""))


def pod_line(document: Document) -> PodLine | None:
    """Return the line of a pod's trace; None for another trace, such as of a reconcile."""
    root = pod_span(document)
    if root is None:
        return None
    attributes = root["attributes"]
    children = sorted(
        (span for span in document["spans"] if span["parentSpanId"] == root["spanId"]),
        key=lambda span: (span["start"], span["end"]),
    )
    owners = owners_of(attributes)
    outcome = attributes["kubeloop.outcome"]
    is_open = outcome not in _OUTCOME_STAGES
    start_us, duration_us = root["start"] // 1000, (root["end"] - root["start"]) // 1000
    segments, edge_uncertainties = segments_of(children, root["start"], duration_us)
    if edge_uncertainties:
        edge_uncertainties[0], edge_uncertainties[-1] = uncertainty_us(root, "start"), uncertainty_us(root, "end")
    return PodLine(
        key=root["spanId"],
        trace_id=document["traceId"],
        namespace=attributes.get("k8s.namespace.name", ""),
        name=attributes.get("k8s.pod.name", ""),
        start_us=start_us,
        duration_us=duration_us,
        stage=_open_stage(children) if is_open else _OUTCOME_STAGES[outcome],
        stage_after_us=_stage_after_us(segments) if is_open else duration_us,
        segments=segments,
        edge_uncertainties=edge_uncertainties if any(edge_uncertainties) else [],
        owner=owners[0] if owners else "",
        lower_owners=owners[1:],
        group_trace_id=next((link["traceId"] for link in root["links"] if relation(link) == "pod group"), ""),
        node=attributes.get("k8s.node.name", ""),
        attempts=attributes.get("kubeloop.attempts", 0),
        reason=shorten(_reason(root, children, is_open), _MAX_REASON),
        is_open=is_open,
        is_continued=bool(attributes.get("kubeloop.continued")),
        is_reconstructed=bool(attributes.get("kubeloop.reconstructed")),
    )


def owners_of(attributes: Mapping[str, Any]) -> list[str]:
    """Return the known owners of a pod, such as "deployment/web", the topmost first, then its pod group."""
    chain = [(kind, attributes.get(f"k8s.{kind}.name")) for kind in _OWNER_KINDS]
    chain.append((POD_GROUP, attributes.get("kubeloop.pod_group.name")))
    chain.insert(0, (str(attributes.get("kubeloop.owner.kind", "")), attributes.get("kubeloop.owner.name")))
    return [*dict.fromkeys(owner_text(kind, name) for kind, name in chain if name)]


def uncertainty_us(span: Mapping[str, Any], edge: str) -> int:
    """Return the uncertainty of "start" or "end" of an observed span; 0 for spans that kubeloop recorded itself.

    The true time of the edge lies in [time - uncertainty, time].
    """
    milliseconds = span["attributes"].get(f"kubeloop.{edge}.uncertainty_ms", 0)
    return int(milliseconds * 1000) if isinstance(milliseconds, int | float) else 0


class _Part(NamedTuple):
    """Part of a span: its phase, its edges (microseconds since the start of the root), and their uncertainties."""

    phase: int
    first_us: int
    last_us: int
    first_uncertainty_us: int = 0
    last_uncertainty_us: int = 0


def segments_of(children: Sequence[Mapping[str, Any]], start_ns: int, duration_us: int) -> tuple[list[int], list[int]]:
    """Return flat triples of phase, offset and duration (microseconds) that cover the whole duration, and the
    uncertainty of each of their edges.

    children: the spans directly below the root, by start. Of overlapping spans the later one is cut; one that lies
    within another is drawn over it.
    """
    parts: list[_Part] = []
    covered_us = covered_uncertainty_us = 0
    gap_us = max(_GAP_US, duration_us * _GAP_SHARE)
    for part in _without_overlaps(children, start_ns):
        first_us, last_us = min(max(covered_us, part.first_us), duration_us), min(part.last_us, duration_us)
        if last_us <= first_us:
            continue
        uncertainty_us = part.first_uncertainty_us
        if first_us - covered_us > gap_us:
            parts.append(_Part(OTHER, covered_us, first_us, covered_uncertainty_us, uncertainty_us))
        else:
            first_us, uncertainty_us = covered_us, max(covered_uncertainty_us, uncertainty_us)
        if parts and parts[-1].phase == part.phase:
            parts[-1] = parts[-1]._replace(last_us=last_us, last_uncertainty_us=part.last_uncertainty_us)
        else:
            parts.append(_Part(part.phase, first_us, last_us, uncertainty_us, part.last_uncertainty_us))
        covered_us, covered_uncertainty_us = last_us, part.last_uncertainty_us
    if duration_us - covered_us > gap_us:
        parts.append(_Part(OTHER, covered_us, duration_us, covered_uncertainty_us))
    if len(parts) > MAX_SEGMENTS:
        head, tail = parts[: MAX_SEGMENTS // 2], parts[-(MAX_SEGMENTS // 2 - 1) :]
        parts = [*head, parts[len(head)]._replace(last_us=tail[0].first_us), *tail]
    segments = [number for part in parts for number in (part.phase, part.first_us, part.last_us - part.first_us)]
    return segments, [part.first_uncertainty_us for part in parts] + [part.last_uncertainty_us for part in parts[-1:]]


def _without_overlaps(children: Sequence[Mapping[str, Any]], start_ns: int) -> list[_Part]:
    """Return a part for each span; one that contains others is split."""
    parts: list[_Part] = []
    for span in children:
        first_us, last_us = (span["start"] - start_ns) // 1000, (span["end"] - start_ns) // 1000
        uncertainties_us = uncertainty_us(span, "start"), uncertainty_us(span, "end")
        part = _Part(phase_index(span["name"]), first_us, last_us, *uncertainties_us)
        if parts and last_us > first_us >= parts[-1].first_us and last_us <= parts[-1].last_us:
            around = parts.pop()
            parts += [
                around._replace(last_us=first_us, last_uncertainty_us=part.first_uncertainty_us),
                part,
                around._replace(first_us=last_us, first_uncertainty_us=part.last_uncertainty_us),
            ]
        else:
            parts.append(part)
    return parts


def _open_stage(children: Sequence[Mapping[str, Any]]) -> str:
    """Return the stage of a pod whose trace is open, from the span that started last."""
    last = next((span["name"] for span in reversed(children) if span["name"] not in _SAYS_NOTHING), "")
    if last in _NAMED_STAGES:
        return _NAMED_STAGES[last]
    if last.startswith("scheduling attempt"):
        return "scheduling"
    if last.startswith(("reserve", "permit", "pre-bind", "bind")):
        return "binding"
    if last.startswith("confirmation") or phase_index(last) in ON_NODE:
        return "starting"
    return "creating"


def _stage_after_us(segments: Sequence[int]) -> int:
    """Return when the last segment of an open trace began, or the first of those that repeated attempts interrupt."""
    after_us = segments[-2] if segments else 0
    if segments and segments[-3] == _WAITING:
        for at in range(len(segments) - 3, -1, -3):
            if segments[at] not in _RETRIES:
                break
            if segments[at] == _WAITING:
                after_us = segments[at + 1]
    return after_us


def _reason(root: Mapping[str, Any], children: Sequence[Mapping[str, Any]], is_open: bool) -> str:
    """Return why the pod failed; for an open trace, why its last attempt failed."""
    if root["status"].get("code") == "ERROR":
        return str(root["status"].get("message", "failed"))
    if not is_open:
        return ""
    for span in reversed(children):
        if span["status"].get("code") == "ERROR":
            return str(span["attributes"].get("kubeloop.message") or span["status"].get("message", "failed"))
    if children and children[-1]["name"].startswith("queue"):
        return str(children[-1]["attributes"].get("kubeloop.reason", ""))
    return ""
