"""Cached filter results of nodes with nominated pods equal those computed without a cache."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.framework.nominated_fit_cache import NominatedFitCache


def filter_results(framework: Any, snapshot: Any, info: PodInfo) -> tuple[list[int], dict[str, Any], dict[str, int]]:
    """Return the feasible rows, the statuses of the other nodes, and the number of rejections by plugin."""
    state, diagnosis = CycleState(), Diagnosis(NodeToStatus(snapshot))
    framework.filters.run_pre_filter(state, info, snapshot)
    rows = framework.filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis).tolist()
    return rows, dict(diagnosis.node_to_status.items()), diagnosis.node_to_status.plugins()


@pytest.mark.parametrize("seed", range(12))
def test_cached_results_equal_results_without_cache(
    seed: int, plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(5 if seed % 2 else 12)]  # many nodes are filtered at once
    taints = [{"key": "k", "effect": "NoSchedule"}]
    nodes = {
        name: node(
            name,
            allocatable={"cpu": "4", "pods": str(rng.randrange(3, 6))},
            taints=taints if rng.random() < 0.1 else [],
        )
        for name in names
    }
    cluster = plugin_cluster(nodes.values())
    cached, plain = cluster.make_framework(), cluster.make_framework(class_cache=False)
    placed: list[Any] = []
    nominated: list[str] = []
    rejected_by_nominations = 0
    for step in range(60):
        if rng.random() < 0.4:
            placed.append(pod(f"placed-{step}", rng.choice(names), cpu=f"{rng.randrange(1, 4)}"))
            cluster.cache.add_pod(placed[-1])
        elif placed and rng.random() < 0.5:
            cluster.cache.remove_pod(placed.pop(rng.randrange(len(placed))))
        if rng.random() < 0.5:
            waiting = pod(f"nominated-{step}", cpu=f"{rng.randrange(1, 4)}", priority=rng.randrange(3))
            cluster.pods.put(waiting.key, waiting)
            cluster.nominator.add(PodInfo(waiting), rng.choice(names))
            nominated.append(waiting.metadata.uid)
        elif nominated and rng.random() < 0.6:
            cluster.nominator.remove(nominated.pop(rng.randrange(len(nominated))))
        if rng.random() < 0.1:
            name = rng.choice(names)
            cluster.cache.remove_node(nodes[name])
            cluster.refresh()
            cluster.cache.add_node(nodes[name])
        cluster.refresh()
        incoming = pod(f"incoming-{step}", cpu="1", priority=rng.randrange(1, 3))
        cluster.pods.put(incoming.key, incoming)
        if rng.random() < 0.3:
            cluster.nominator.add(PodInfo(incoming), rng.choice(names))
            nominated.append(incoming.metadata.uid)
        with_cache = filter_results(cached, cluster.snapshot, PodInfo(incoming))
        assert with_cache == filter_results(plain, cluster.snapshot, PodInfo(incoming)), step
        cluster.nominator.check()
        state = CycleState()
        cached.filters.run_pre_filter(state, PodInfo(incoming), cluster.snapshot)
        without_nominations = [
            cached.node_filters.run_filters_on_node(state, PodInfo(incoming), info)
            for info in cluster.snapshot.node_infos
        ]
        rejected_by_nominations += without_nominations.count(None) - len(with_cache[0])
    assert rejected_by_nominations > 5, "the nominated pods changed no result"


def test_filters_run_for_changed_nominations_only(
    plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    cluster = plugin_cluster([node(f"n{number}") for number in range(3)])
    waiting = [PodInfo(pod(name)) for name in "ab"]
    for number, info in enumerate(waiting):
        cluster.pods.put(info.key, info.pod)
        cluster.nominator.add(info, f"n{number}")
    cache, filtered, status = NominatedFitCache(), [], unschedulable("P", "full")

    def rejected(own_node: str = "") -> list[str]:
        """Return the rejected nodes; a filter rejects all but n0."""

        def filter_rows(rows: Any) -> Any:
            names = [cluster.snapshot.node_infos[row].name for row in rows]
            filtered.extend(names)
            return [None if name == "n0" else status for name in names]

        rows, statuses = cache.rejections(cluster.refresh(), cluster.nominator, own_node, filter_rows)
        assert [statuses.statuses[code] for code in statuses.codes] == [status] * len(rows)
        return [cluster.snapshot.node_infos[row].name for row in rows]

    assert rejected() == ["n1"]
    assert filtered == ["n0", "n1"]
    assert rejected() == ["n1"]
    assert filtered == ["n0", "n1"]
    cluster.cache.add_pod(pod("placed", "n1"))
    cluster.nominator.add(waiting[0], "n2")
    filtered.clear()
    assert rejected(own_node="n2") == ["n1"]  # not cached
    assert filtered == ["n0", "n1"]
    assert rejected() == ["n1", "n2"]
    assert filtered == ["n0", "n1", "n2"]
