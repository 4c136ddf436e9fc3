"""Rows of `kubeloop top`, as pure functions of the pods' lines and of the nodes. Times in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeloop.kube.values.times import parse_time
from kubeloop.tracing.views.pod_lines import PodLine
from kubeloop.tracing.views.printable import printable

SORTS: Final = ("age", "name", "stage", "time")
_ABSENT: Final = frozenset({"gone", "deleted"})  # the process still has their traces
_DONE: Final = frozenset({"ready", "completed"})
_BY_URGENCY: Final = (
    *("failed", "crash back-off", "unschedulable", "gated", "backoff", "other scheduler", "creating", "delivery"),
    *("queued", "scheduling", "binding", "bound", "starting", "running", "terminating", "completed", "ready"),
)
"""Stages of pods; a workload has the first one that any of its pods has."""
_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("failed", "crash back-off", "not ready", "unreachable"), "red"),
    **dict.fromkeys(("unschedulable", "gated", "backoff", "cordoned"), "magenta"),
    **dict.fromkeys(("ready", "complete"), "green"),
    **dict.fromkeys(("terminating", "completed"), "bright_black"),
}


class TopRow(msgspec.Struct, frozen=True):
    """A pod, workload or node. key: "shop/web-1", "shop/deployment/web" or "node-1"; in_stage_us: None if unknown."""

    key: str
    stage: str
    age_us: int
    in_stage_us: int | None
    reason: str = ""
    pods: str = ""  # of a workload "2/3", ready and all; of a node their number
    node: str = ""
    owners: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        return _STYLES.get(self.stage, "yellow")

    def matches(self, words: Iterable[str]) -> bool:
        text = f"{self.key} {self.stage} {self.reason} {self.node} {' '.join(self.owners)}".lower()
        return all(word in text for word in words)


def pod_rows(lines: Iterable[PodLine], now_us: int) -> list[TopRow]:
    """Return the pods that exist."""
    return [
        TopRow(
            key=f"{line.namespace}/{line.name or '(being created)'}",
            stage=line.stage,
            age_us=max(0, now_us - line.start_us),
            in_stage_us=max(0, now_us - line.start_us - line.stage_after_us),
            reason=line.reason,
            node=line.node,
            owners=tuple(line.owners),
        )
        for line in lines
        if line.stage not in _ABSENT
    ]


def workload_rows(pods: Iterable[TopRow]) -> list[TopRow]:
    """Return the topmost owners of the pods. Stage, time and reason are those of the pod that is the least advanced,
    and of these the one that has waited longest; "complete" if all are ready or have completed."""
    by_owner: dict[str, list[TopRow]] = {}
    for pod in pods:
        if pod.owners:
            by_owner.setdefault(f"{pod.key.partition('/')[0]}/{pod.owners[0]}", []).append(pod)
    rows = []
    for key, own in by_owner.items():
        last = min(own, key=lambda pod: (_urgency(pod.stage), -(pod.in_stage_us or 0)))
        done = sum(pod.stage in _DONE for pod in own)
        rows.append(
            TopRow(
                key=key,
                stage="complete" if done == len(own) else last.stage,
                age_us=max(pod.age_us for pod in own),
                in_stage_us=min(pod.in_stage_us or 0 for pod in own) if done == len(own) else last.in_stage_us,
                reason=last.reason,
                pods=f"{done}/{len(own)}",
            )
        )
    return rows


def node_rows(nodes: Iterable[Mapping[str, Any]], pods: Iterable[TopRow], now_us: int) -> list[TopRow]:
    """Return the nodes of /debug/objects/nodes."""
    counts: dict[str, int] = {}
    for pod in pods:
        if pod.stage not in ("completed", "failed"):
            counts[pod.node] = counts.get(pod.node, 0) + 1
    return [
        TopRow(
            key=node["name"],
            stage=node["stage"],
            age_us=now_us - _time_us(node["created"], now_us),
            in_stage_us=now_us - _time_us(node["since"], now_us),
            reason=node["reason"],
            pods=str(counts.get(node["name"], 0)),
        )
        for node in nodes
    ]


def selected(rows: Iterable[TopRow], text: str, sort: str, *, reverse: bool = False) -> list[TopRow]:
    """Return the rows with all words of `text`, sorted: the youngest, the longest in its stage, or the least advanced
    first; with `reverse`, in the opposite order."""
    words = text.lower().split()
    keys: Mapping[str, Callable[[TopRow], Any]] = {
        "age": lambda row: (row.age_us, row.key),
        "name": lambda row: row.key,
        "stage": lambda row: (_urgency(row.stage), row.key),
        "time": lambda row: (-(row.in_stage_us or 0), row.key),
    }
    return sorted((row for row in rows if row.matches(words)), key=keys[sort], reverse=reverse)


def short_age(microseconds: int | None) -> str:
    """Format as kubectl formats ages: "45s", "12m", "5h", "3d"; "" for None."""
    if microseconds is None:
        return ""
    seconds = microseconds // 1_000_000
    for unit, length, limit in (("s", 1, 120), ("m", 60, 120 * 60), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds // length}{unit}"
    return f"{seconds // 86400}d"


def columns(view: str, rows: Sequence[TopRow], width: int) -> list[tuple[str, int]]:
    """Return titles and widths of the columns. Name and reason share what the others leave of `width`, where a cell has
    a space on both sides."""
    fixed = [("STAGE", max(7, _longest(row.stage for row in rows))), ("AGE", 5), ("FOR", 5)]
    if view == "pods" and width >= 110:
        fixed.append(("NODE", min(24, _longest(row.node for row in rows))))
    if view != "pods":
        fixed.insert(1, ("PODS", 7))
    left = width - sum(size + 2 for _, size in fixed) - 4
    name = max(12, min(_longest(row.key for row in rows), left - min(left // 2, _longest(row.reason for row in rows))))
    return [("NAME", name), *fixed, ("REASON", max(8, left - name))]


def cells(row: TopRow, layout: Iterable[tuple[str, int]]) -> list[str]:
    """Return the texts of a row. A name that is too long lacks its middle: its end distinguishes pods of an owner."""
    values = {
        "STAGE": row.stage,
        "PODS": row.pods,
        "AGE": short_age(row.age_us),
        "FOR": short_age(row.in_stage_us),
        "NODE": row.node,
        "REASON": " ".join(row.reason.split()),
    }
    return [printable(_cut(row.key, size) if title == "NAME" else values[title]) for title, size in layout]


def _cut(name: str, size: int) -> str:
    return name if len(name) <= size else f"{name[: size - 1 - size // 3]}…{name[-(size // 3) :]}"


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _urgency(stage: str) -> int:
    return _BY_URGENCY.index(stage) if stage in _BY_URGENCY else -1


def _time_us(text: str, default: int) -> int:
    return int(parse_time(text).timestamp() * 1e6) if text else default
