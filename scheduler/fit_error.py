"""Why a pod fits nowhere: the verdict of each node, and kube-scheduler's sentence about them.

Source: framework.FitError and NodeToStatus of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.interface import Code, Rows, Status

EVENT_NOTE_BYTES = 1024
EXTENDER = "Extender"  # stands for a plugin's name where extenders rejected nodes

_ABSENT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


class NodeVerdicts:
    """Why nodes were rejected in one cycle. Filters that work on rows explain a node only when somebody asks.

    absent: the status of nodes that were not looked at.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.absent = _ABSENT
        self._statuses: dict[str, Status] = {}
        self._unexplained: dict[int, Callable[[int], Status]] = {}  # row -> who explains it
        self._segments: list[tuple[str, Rows, Callable[[int], Status]]] = []  # not yet in _unexplained

    def __len__(self) -> int:
        self._spread()
        return len(self._statuses) + len(self._unexplained)

    def set(self, node_name: str, status: Status) -> None:
        self._spread()
        row = self._snapshot.row_of.get(node_name)
        if row is not None:
            self._unexplained.pop(row, None)
        self._statuses[node_name] = status

    def reject_rows(self, plugin: str, rows: Rows, explain: Callable[[int], Status]) -> None:
        """`rows` of the snapshot were rejected by `plugin`; explain(row) says why."""
        self._segments.append((plugin, rows, explain))

    def get(self, node_name: str) -> Status | None:
        self._spread()
        status = self._statuses.get(node_name)
        if status is None:
            row = self._snapshot.row_of.get(node_name)
            explain = self._unexplained.get(row) if row is not None else None
            if row is None or explain is None:
                return self.absent
            status = self._statuses[node_name] = explain(row)
            del self._unexplained[row]
        return status

    def is_explicit(self, node_name: str) -> bool:
        """Was this node looked at and rejected?"""
        self._spread()
        return node_name in self._statuses or self._snapshot.row_of.get(node_name) in self._unexplained

    def items(self) -> Iterator[tuple[str, Status]]:
        """All nodes that were looked at and rejected."""
        self._explain_all()
        return iter(self._statuses.items())

    def nodes_with_code(self, code: Code) -> Iterable[str]:
        self._explain_all()
        if self.absent.code is code:
            statuses, absent = self._statuses, self.absent
            return [i.name for i in self._snapshot.node_infos if statuses.get(i.name, absent).code is code]
        return [name for name, status in self._statuses.items() if status.code is code]

    def reasons(self, num_all_nodes: int) -> Counter[str]:
        """Reason -> number of nodes, those included that were not looked at."""
        self._explain_all()
        counts: Counter[str] = Counter()
        for reasons, number in Counter(status.reasons for status in self._statuses.values()).items():
            for reason in reasons:
                counts[reason] += number
        left = num_all_nodes - len(self._statuses)
        if left > 0:
            for reason in self.absent.reasons:
                counts[reason] += left
        return counts

    def plugins(self) -> dict[str, int]:
        """Plugin -> number of nodes it rejected. Asks nobody to explain."""
        counts: Counter[str] = Counter(status.plugin for status in self._statuses.values())
        if self._unexplained:
            self._explain_all()
            return dict(Counter(status.plugin for status in self._statuses.values()))
        for plugin, rows, _ in self._segments:
            counts[plugin] += len(rows)
        return dict(counts)

    def _spread(self) -> None:
        for _, rows, explain in self._segments:
            self._unexplained.update(dict.fromkeys(rows.tolist(), explain))
        self._segments.clear()

    def _explain_all(self) -> None:
        self._spread()
        infos, statuses = self._snapshot.node_infos, self._statuses
        for row, explain in self._unexplained.items():
            statuses[infos[row].name] = explain(row)
        self._unexplained.clear()


@dataclass(slots=True)
class Diagnosis:
    """What is known of a failed attempt. The plugin sets decide which events wake the pod."""

    verdicts: NodeVerdicts
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def note(self, status: Status) -> None:
        if not status.plugin:
            return
        if status.code is Code.PENDING:
            self.pending_plugins.add(status.plugin)
        if status.is_rejection:
            self.unschedulable_plugins.add(status.plugin)


class FitError(Exception):
    """No node can take the pod. The text is that of kube-scheduler's event."""

    def __init__(self, num_all_nodes: int, diagnosis: Diagnosis) -> None:
        super().__init__()
        self.num_all_nodes = num_all_nodes
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        diagnosis = self.diagnosis
        reasons = {} if diagnosis.pre_filter_message else diagnosis.verdicts.reasons(self.num_all_nodes)
        return fit_error_message(
            self.num_all_nodes, reasons, diagnosis.pre_filter_message, diagnosis.post_filter_message
        )


class NoNodesAvailable(Exception):
    """The cluster has no nodes."""

    def __init__(self) -> None:
        super().__init__("no nodes available to schedule pods")


def fit_error_message(
    num_all_nodes: int, reasons: Mapping[str, int], pre_filter_message: str = "", post_filter_message: str = ""
) -> str:
    """ "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. preemption: ..."; a message of
    PreFilter stands in place of the nodes' reasons."""
    message = f"0/{num_all_nodes} nodes are available:"
    if pre_filter_message:
        message += f" {pre_filter_message}."
    elif reasons:
        parts = sorted((f"{count} {reason}" for reason, count in reasons.items()), key=str.encode)
        message += f" {', '.join(parts)}."
    return f"{message} {post_filter_message}" if post_filter_message else message


def event_note(message: str) -> bytes:
    """The text as it stands in an event: UTF-8, at most 1024 bytes, cut without regard to characters."""
    data = message.encode()
    return data if len(data) <= EVENT_NOTE_BYTES else data[: EVENT_NOTE_BYTES - 4] + b" ..."


def num_feasible_nodes_to_find(num_all_nodes: int, percentage: int) -> int:
    """At how many feasible nodes filtering stops; percentage 0: an adaptive share. Source: schedule_one.go."""
    if num_all_nodes < 100:
        return num_all_nodes
    if percentage == 0:
        percentage = max(5, 50 - num_all_nodes // 125)
    return max(100, num_all_nodes * percentage // 100)


def rows_of(snapshot: Snapshot, node_names: Iterable[str]) -> Rows:
    """Rows of the nodes that exist, ascending."""
    row_of = snapshot.row_of
    return np.array(sorted(row_of[name] for name in node_names if name in row_of), np.intp)
