"""Search results per node, kept for pods whose claims have the same requests.

The devices of most nodes are local. When a pod takes some, only its node is searched again for the next pod with the
same requests. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from kubeloop.kube.objects.api_types import Node
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.devices.allocator import NodeAllocation, NodeSearch, SearchSettings
from kubeloop.scheduler.devices.device_pools import DevicePools, Pool
from kubeloop.scheduler.devices.device_usage import DeviceUsage
from kubeloop.scheduler.devices.errors import InvalidPools
from kubeloop.scheduler.devices.requests import ClaimRequests

UNKNOWN, FEASIBLE, CANNOT_ALLOCATE, INVALID_POOLS = -1, 0, 1, 2
"""Codes of results."""

_MAX_KEPT = 64


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
        self._by_pools: dict[tuple[int, ...], tuple[int, NodeAllocation | None]] = {}  # for nodes with equal pools

    def feasible(self, snapshot: Snapshot, rows: Rows, settings: SearchSettings) -> Mask:
        """Return the nodes on which the claims can be allocated: bool [K].

        Raises AllocationError and AllocationTimeout; results of nodes searched before stay.
        """
        self.refresh(snapshot)
        for row in rows[self._codes[rows] == UNKNOWN].tolist():
            node = snapshot.node_infos[row].node
            assert node is not None
            self._codes[row] = self._search(node, settings)
        feasible: Mask = self._codes[rows] == FEASIBLE
        return feasible

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

    def _search(self, node: Node, settings: SearchSettings) -> int:
        name = node.metadata.name
        pools = self._pools.pools(name, node.metadata.labels)
        shares_result = not any(pool.per_device_nodes or self._pools.node_of(pool.key) for pool in pools)
        key = tuple(map(id, pools))
        result = self._by_pools.get(key) if shares_result else None
        if result is None:
            result = self._run(pools, node, settings)
            if shares_result:
                self._by_pools[key] = result
        code, allocation = result
        if allocation is not None:
            self.allocations[name] = allocation
        return code

    def _run(self, pools: Sequence[Pool], node: Node, settings: SearchSettings) -> tuple[int, NodeAllocation | None]:
        search = NodeSearch(self.claims, pools, node.metadata.name, node.metadata.labels, settings)
        try:
            allocation = search.run()
        except InvalidPools:
            return INVALID_POOLS, None
        finally:
            self.steps += search.steps
            self.searched += 1
        return (CANNOT_ALLOCATE if allocation is None else FEASIBLE), allocation


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
