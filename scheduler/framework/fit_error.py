"""FitError: the status of each node that was rejected, and kube-scheduler's event message about them.

Source: framework.FitError and NodeToStatus of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
import numpy as np

from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.snapshot import Snapshot

_ABSENT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
_NOT_REJECTED = -1
_NOT_COMPUTED = np.zeros(0, np.intp)


class RejectionStatuses(Protocol):
    """Computes the statuses of rows that one filter rejected."""

    def __call__(self, row: int) -> Status: ...

    def statuses(self, rows: Rows) -> RowStatuses: ...


class NodeToStatus:
    """The status of each node that was rejected in one cycle. Filters compute the statuses of rows on demand.

    One filter rejects a node; overridden statuses take precedence over it, and statuses set by name over both.
    absent: the status of nodes that were not filtered. Axis: N nodes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.absent = _ABSENT
        self._codes = _NOT_COMPUTED  # [N] once computed: indexes of _statuses
        self._statuses: list[Status] = []
        self._counts: list[int] | None = None  # of the rows with each of _statuses, if computed
        self._set: dict[str, Status] = {}
        self._unexplained: list[tuple[str, Rows, RejectionStatuses]] = []  # not yet in _codes
        self._overridden: list[tuple[Rows, RowStatuses]] = []  # likewise

    def __len__(self) -> int:
        self._compute_codes()
        return int(np.count_nonzero(self._codes >= 0)) + len(self._unknown_nodes())

    def set(self, node_name: str, status: Status) -> None:
        self._set[node_name] = status
        row = self._snapshot.row_of.get(node_name)
        if row is not None and len(self._codes):
            self._append(row, status)

    def reject_rows(self, plugin: str, rows: Rows, explain: RejectionStatuses) -> None:
        """Record that `plugin` rejected `rows` of the snapshot."""
        self._unexplained.append((plugin, rows, explain))

    def override_rows(self, rows: Rows, statuses: RowStatuses) -> None:
        """Record other statuses for `rows`, which take precedence over those of filters."""
        self._overridden.append((rows, statuses))

    def get(self, node_name: str) -> Status | None:
        status = self._set.get(node_name)
        if status is not None:
            return status
        self._compute_codes()
        row = self._snapshot.row_of.get(node_name)
        code = _NOT_REJECTED if row is None else int(self._codes[row])
        return self.absent if code < 0 else self._statuses[code]

    def items(self) -> Iterator[tuple[str, Status]]:
        """Yield each node that was filtered and rejected, with its status."""
        self._compute_codes()
        infos, statuses = self._snapshot.node_infos, self._statuses
        for row, code in enumerate(self._codes.tolist()):
            if code >= 0:
                yield infos[row].name, statuses[code]
        yield from self._unknown_nodes().items()

    def nodes_with_code(self, code: Code) -> Iterable[str]:
        """Return the names of nodes with this code, in the order of the rows."""
        names: list[str] = self._snapshot.names[self.rows_with_code(code)].tolist()
        return names + [name for name, status in self._unknown_nodes().items() if status.code is code]

    def rows_with_code(self, code: Code) -> Rows:
        """Return the rows with this code."""
        self._compute_codes()
        has_code = np.array([*(status.code is code for status in self._statuses), self.absent.code is code])
        return np.flatnonzero(has_code[self._codes])  # _NOT_REJECTED (-1): the last entry

    def count_reasons(self, num_all_nodes: int) -> Counter[str]:
        """Return reason -> number of nodes, including nodes that were not filtered."""
        self._compute_codes()
        counts: Counter[str] = Counter()
        rejected = 0
        for status, number in (
            *zip(self._statuses, self._by_status, strict=True),
            *((status, 1) for status in self._unknown_nodes().values()),
        ):
            rejected += number
            if number:
                for reason in status.reasons:
                    counts[reason] += number
        left = num_all_nodes - rejected
        if left > 0:
            for reason in self.absent.reasons:
                counts[reason] += left
        return counts

    def plugins(self) -> dict[str, int]:
        """Return plugin -> number of nodes that it rejected. Computes statuses only if a node was rejected twice."""
        if not (self._set or self._unexplained or self._overridden or len(self._codes)):
            return {}
        counts: Counter[str] = Counter()
        if len(self._codes) or self._overridden or (self._set and self._unexplained):
            self._compute_codes()
            for status, number in zip(self._statuses, self._by_status, strict=True):
                if number:
                    counts[status.plugin] += number
            counts.update(status.plugin for status in self._unknown_nodes().values())
            return dict(counts)
        counts.update(status.plugin for status in self._set.values())
        for plugin, rows, _ in self._unexplained:
            counts[plugin] += len(rows)
        return dict(counts)

    @property
    def _by_status(self) -> list[int]:
        """The number of rows with each of `_statuses`."""
        if self._counts is None:
            self._counts = np.bincount(self._codes - _NOT_REJECTED, minlength=len(self._statuses) + 1)[1:].tolist()
        return self._counts

    def _unknown_nodes(self) -> dict[str, Status]:
        """Return nodes that are not in the snapshot: extenders may name any node."""
        if not self._set:
            return {}
        row_of = self._snapshot.row_of
        return {name: status for name, status in self._set.items() if name not in row_of}

    def _append(self, row: int, status: Status) -> None:
        self._codes[row] = len(self._statuses)
        self._statuses.append(status)
        self._counts = None

    def _compute_codes(self) -> None:
        if not len(self._codes) and len(self._snapshot):
            self._codes = np.full(len(self._snapshot), _NOT_REJECTED, np.intp)
            is_first = True
        else:
            is_first = False
        for _, rows, explain in self._unexplained:
            statuses = explain.statuses(rows)
            self._codes[rows] = statuses.codes + len(self._statuses)
            self._statuses.extend(statuses.statuses)
        for rows, statuses in self._overridden:
            self._codes[rows] = statuses.codes + len(self._statuses)
            self._statuses.extend(statuses.statuses)
        if is_first or self._unexplained or self._overridden:
            self._counts = None
            row_of = self._snapshot.row_of
            for name, status in self._set.items():
                if name in row_of:
                    self._append(row_of[name], status)
        self._unexplained.clear()
        self._overridden.clear()


class Diagnosis(msgspec.Struct):
    """The result of a failed attempt. The plugin sets determine which events make the pod schedulable.

    errors: those of Filter plugins, which end the attempt after all nodes were filtered.
    """

    node_to_status: NodeToStatus
    unschedulable_plugins: set[str] = msgspec.field(default_factory=set)
    pending_plugins: set[str] = msgspec.field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""
    errors: list[Status] = msgspec.field(default_factory=list)

    def restart(self, snapshot: Snapshot) -> None:
        """Drop the rejections of nodes: the filters will run again."""
        absent = self.node_to_status.absent
        self.node_to_status = NodeToStatus(snapshot)
        self.node_to_status.absent = absent
        self.errors.clear()

    def note(self, status: Status) -> None:
        if not status.plugin:
            return
        if status.code is Code.PENDING:
            self.pending_plugins.add(status.plugin)
        if status.is_rejection:
            self.unschedulable_plugins.add(status.plugin)


class FitError(Exception):
    """No node fits the pod. The text is that of kube-scheduler's event."""

    def __init__(self, num_all_nodes: int, diagnosis: Diagnosis) -> None:
        super().__init__()
        self.num_all_nodes = num_all_nodes
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        diagnosis = self.diagnosis
        reasons = {} if diagnosis.pre_filter_message else diagnosis.node_to_status.count_reasons(self.num_all_nodes)
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
    """Return "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. preemption: ...".

    pre_filter_message: shown instead of the nodes' reasons.
    """
    message = f"0/{num_all_nodes} nodes are available:"
    if pre_filter_message:
        message += f" {pre_filter_message}."
    elif reasons:
        parts = sorted((f"{count} {reason}" for reason, count in reasons.items()), key=str.encode)
        message += f" {', '.join(parts)}."
    return f"{message} {post_filter_message}" if post_filter_message else message
