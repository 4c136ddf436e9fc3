"""Search results per node, kept for pods whose claims have the same requests.

The devices of most nodes are local. When a pod takes some, only its node is searched again for the next pod with the
same requests. Nodes are searched on the event loop for a short time; if that is not enough, search_others goes on with
pauses, and in a thread for a node that takes long. Axes: N nodes, K rows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from kubeloop.kube.objects.api_types import Node
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.devices.allocator import NodeAllocation, NodeSearch, SearchSettings
from kubeloop.scheduler.devices.cluster.device_pools import DevicePools, Pool
from kubeloop.scheduler.devices.cluster.device_usage import DeviceUsage
from kubeloop.scheduler.devices.errors import AllocationError, AllocationTimeout, InvalidPools
from kubeloop.scheduler.devices.requests import ClaimRequests

UNKNOWN, FEASIBLE, CANNOT_ALLOCATE, INVALID_POOLS = -1, 0, 1, 2
"""Codes of results."""

_Result = tuple[int, NodeAllocation | None]

_MAX_KEPT = 64
_SLICE_SECONDS = 0.01  # of searches without a pause, and of one of them before it goes to a thread
_MAX_UNPAUSED_SECONDS = 0.5  # of one search where the scheduler cannot pause: in dry runs and explanations


class SearchesLeft(Exception):
    """Nodes that are not searched yet."""


class NodeResults:
    """Results for one list of requests. claims: those of the first pod; later ones differ in their names only.

    steps, searched: size of the searches so far, and number of searched nodes.
    """

    def __init__(self, claims: Sequence[ClaimRequests], pools: DevicePools, usage: DeviceUsage) -> None:
        self.claims = claims
        self.allocations: dict[str, NodeAllocation] = {}
        self.steps = 0
        self.searched = 0
        self._pools, self._usage = pools, usage
        self._codes = np.zeros(0, np.int8)  # [N]
        self._names = np.zeros(0, np.object_)  # [N] of the nodes
        self._layout = -1
        self._usage_version = -1
        self._generation = -1
        self._error: AllocationError | AllocationTimeout | None = None
        # For nodes with equal pools, by their IDs: the pools, which must not be replaced meanwhile, and the result.
        self._by_pools: dict[tuple[int, ...], tuple[Sequence[Pool], _Result]] = {}

    def feasible(self, snapshot: Snapshot, rows: Rows, settings: SearchSettings, *, in_slices: bool = False) -> Mask:
        """Return the nodes on which the claims can be allocated: bool [K]. Call refresh() once in each cycle before.

        in_slices: search only for a short time, then raise SearchesLeft; search_others continues. Raises
        AllocationError and AllocationTimeout; results of nodes searched before stay.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        left = self._unknown(rows)
        end_ns = settings.now_ns() + int(_SLICE_SECONDS * 1e9)
        for row in left:
            node = _node(snapshot, row)
            try:
                self._codes[row] = self._search(node, settings, _SLICE_SECONDS if in_slices else _MAX_UNPAUSED_SECONDS)
            except AllocationTimeout:
                if in_slices:
                    raise SearchesLeft from None
                raise
            if in_slices and row != left[-1] and settings.now_ns() > end_ns:
                raise SearchesLeft
        feasible: Mask = self._codes[rows] == FEASIBLE
        return feasible

    async def search_others(self, snapshot: Snapshot, rows: Rows, settings: SearchSettings) -> None:
        """Search the nodes that feasible() left; an error is raised by its next call.

        The snapshot must not change meanwhile. Cancellation: safe; results so far stay.
        """
        try:
            while True:
                row = self._unknown(rows)[0]  # the one that took too long, or the next
                await self._search_in_thread(_node(snapshot, row), row, settings)
                try:
                    self.feasible(snapshot, rows, settings, in_slices=True)
                    return
                except SearchesLeft:
                    continue
        except (AllocationError, AllocationTimeout) as error:
            self._error = error

    async def _search_in_thread(self, node: Node, row: int, settings: SearchSettings) -> None:
        name, labels = node.metadata.name, node.metadata.labels
        pools = self._pools.pools(name, labels)
        search = NodeSearch(self.claims, pools, name, labels, settings, in_thread=True)
        try:
            result = await asyncio.to_thread(self._run, search)
            if (key := self._shared_key(pools)) is not None:
                self._by_pools[key] = (pools, result)
            self._codes[row] = self._put(name, result)
        finally:
            search.stop()

    def _unknown(self, rows: Rows) -> list[int]:
        unknown: list[int] = rows[self._codes[rows] == UNKNOWN].tolist()
        return unknown

    def has_invalid_pools(self, row: int) -> bool:
        """Return True if the last search on a node found nothing and invalid pools."""
        return bool(self._codes[row] == INVALID_POOLS)

    def refresh(self, snapshot: Snapshot) -> None:
        """Forget the results of nodes on which something changed."""
        changed = self._usage.changed_since(self._usage_version)
        if changed is None:
            self._codes = np.full(len(snapshot), UNKNOWN, np.int8)
            self.allocations.clear()
            self._by_pools.clear()
        else:
            if snapshot.layout != self._layout:
                code_of = dict(zip(self._names.tolist(), self._codes.tolist(), strict=True))
                self._codes = np.array([code_of.get(name, UNKNOWN) for name in snapshot.names.tolist()], np.int8)
            rows = [row for name in changed if (row := snapshot.row_of.get(name)) is not None]
            if self._pools.has_shared:  # labels of nodes decide who can use them
                rows += snapshot.changed_since(self._generation).tolist()
            self._codes[rows] = UNKNOWN
        self._layout, self._generation, self._names = snapshot.layout, snapshot.generation, snapshot.names
        self._usage_version = self._usage.version

    def _search(self, node: Node, settings: SearchSettings, limit_seconds: float | None) -> int:
        name, labels = node.metadata.name, node.metadata.labels
        pools = self._pools.pools(name, labels)
        key = self._shared_key(pools)
        result = None
        if key is not None and key in self._by_pools:
            result = self._by_pools[key][1]
        if result is None:
            result = self._run(NodeSearch(self.claims, pools, name, labels, settings, limit_seconds=limit_seconds))
            if key is not None:
                self._by_pools[key] = (pools, result)
        return self._put(name, result)

    def _shared_key(self, pools: Sequence[Pool]) -> tuple[int, ...] | None:
        """Return the key of the result that all nodes with these pools have; None if the result is the node's own."""
        if any(pool.per_device_nodes or self._pools.node_of(pool.key) for pool in pools):
            return None
        return tuple(map(id, pools))

    def _put(self, node: str, result: _Result) -> int:
        code, allocation = result
        if allocation is not None:
            self.allocations[node] = allocation
        return code

    def _run(self, search: NodeSearch) -> _Result:
        try:
            allocation = search.run()
        except InvalidPools:
            return INVALID_POOLS, None
        finally:
            self.steps += search.steps
            self.searched += 1
        return (CANNOT_ALLOCATE if allocation is None else FEASIBLE), allocation


def _node(snapshot: Snapshot, row: int) -> Node:
    node = snapshot.node_infos[row].node
    assert node is not None
    return node


class KeptResults:
    """The results of the last lists of requests, by signature."""

    def __init__(self) -> None:
        self._results: OrderedDict[object, NodeResults] = OrderedDict()

    def get(self, signature: object) -> NodeResults | None:
        results = self._results.get(signature)
        if results is not None:
            self._results.move_to_end(signature)
        return results

    def put(self, signature: object, results: NodeResults) -> None:
        self._results[signature] = results
        if len(self._results) > _MAX_KEPT:
            self._results.popitem(last=False)
