"""Dry runs as plugins use them: whether a pod would fit a node if other pods were removed or added.

Implemented by `framework.dry_run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot


class DryRunNode(Protocol):
    """A node in a dry run of one pod. Changes are not visible outside it."""

    def add_pod(self, other: PodInfo) -> Status | None:
        """Add a pod. Returns the failure of a PreFilter extension, if there is one."""
        ...

    def remove_pod(self, other: PodInfo) -> Status | None:
        """Remove a pod. Returns the failure of a PreFilter extension, if there is one."""
        ...

    def run_filters(self) -> Status | None:
        """Return the first rejection of the pod by a filter; None if it fits.

        The pod must fit both with the pods nominated to the node and without them.
        """
        ...


class DryRuns(Protocol):
    """Dry runs of one pod on nodes of the snapshot.

    only_sums: the filters of this pod read nothing of other pods but their number and the sum of their requests.
    """

    only_sums: bool

    def __call__(self, node: NodeInfo) -> DryRunNode:
        """Start a dry run on `node`."""
        ...

    def capacity_needed(self, snapshot: Snapshot, rows: Rows) -> tuple[Mapping[str, int], Mask] | None:
        """Return what the pod needs of each resource, and the rows that only a lack of it or of slots rejects [K].

        None: other filters read pods, or cannot be evaluated for all nodes at once; then start a dry run on each.
        """
        ...

    def filter_without(
        self, snapshot: Snapshot, rows: Rows, pods: Scores, requests: Mapping[str, Scores]
    ) -> RowStatuses:
        """Return the statuses of `rows` without so many pods and requests, by resource [K].

        The status of a row that the pod fits has no reasons. Only for rows that capacity_needed() returned.
        """
        ...
