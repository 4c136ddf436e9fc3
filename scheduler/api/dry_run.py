"""Dry runs as plugins use them: whether a pod would fit a node if other pods were removed or added.

Implemented by `framework.dry_run`.
"""

from __future__ import annotations

from typing import Protocol

from kubeloop.scheduler.api.status import Status
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


class FreeCapacity(Protocol):
    """Free resources of a node in a dry run of one pod that is rejected by insufficient resources only."""

    @property
    def is_sufficient(self) -> bool:
        """True if the pod fits now."""
        ...

    def remove_pod(self, other: PodInfo) -> None:
        """Remove a pod: what it requests becomes free."""
        ...

    def add_pod_if_fits(self, other: PodInfo) -> bool:
        """Add a removed pod again if the incoming pod fits in addition to it. False: it was not added."""
        ...


class DryRuns(Protocol):
    """Dry runs of one pod on nodes of the snapshot.

    only_sums: the filters of this pod read nothing of other pods but their number and the sum of their requests.
    """

    only_sums: bool

    def __call__(self, node: NodeInfo) -> DryRunNode:
        """Start a dry run on `node`."""
        ...

    def free_capacity(self, node: NodeInfo, snapshot: Snapshot) -> FreeCapacity | None:
        """Return the free capacity of a node if that alone decides whether the pod fits.

        None: other filters reject the node, or a filter has no `resources_needed`; then start a dry run.
        """
        ...
