"""Topology spread scores from the table equal those computed per node."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Service, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.columns import ABSENT
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.pod_topology_spread import score_table

ZONE = "topology.kubernetes.io/zone"


def constraints(rng: random.Random, app: str) -> list[dict[str, Any]]:
    spread_constraints = [
        {
            "maxSkew": rng.randrange(1, 5),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        for key in ("kubernetes.io/hostname", ZONE)
    ]
    rng.shuffle(spread_constraints)
    return spread_constraints


def plain_score(state: CycleState, row: int) -> int:
    """Return the raw score of a node, computed constraint by constraint."""
    score = 0.0
    for constraint in state.read("PreScorePodTopologySpread").constraints:
        code = int(constraint.column.codes[row])
        if code != ABSENT:
            pods = int(constraint.per_node[row] if constraint.per_domain is None else constraint.per_domain[code])
            score += pods * constraint.weight + constraint.spec.max_skew - 1
    return math.floor(score + 0.5)


@pytest.mark.parametrize("few_rows", [0, 1000], ids=["arrays", "per row"])
@pytest.mark.parametrize("seed", range(20))
def test_cached_table_equals_per_node_scores(
    seed: int,
    few_rows: int,
    plugin_cluster: Callable[..., Any],
    node: Callable[..., Any],
    pod: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_table, "_FEW_ROWS", few_rows)
    rng = random.Random(seed)
    zones = ["a", "b", "c"][: rng.randrange(1, 4)]
    nodes = {f"n{number}": node(f"n{number}", labels={ZONE: rng.choice(zones)}) for number in range(12)}
    cluster = plugin_cluster(nodes.values())
    snapshot, plugin = cluster.snapshot, cluster.framework.plugins["PodTopologySpread"]
    specs = {app: constraints(rng, app) for app in ("x", "y")}
    placed: list[Any] = []
    tables = 0
    for step in range(60):
        for _ in range(rng.randrange(4)):
            change = rng.random()
            if change < 0.6:
                node_name = f"n{rng.randrange(12)}" if rng.random() < 0.7 else "n0"
                placed.append(
                    pod(f"p{step}-{len(placed)}-{rng.random()}", node_name, labels={"app": rng.choice("xyz")})
                )
                cluster.cache.add_pod(placed[-1])
            elif change < 0.8 and placed:
                cluster.cache.remove_pod(placed.pop(rng.randrange(len(placed))))
            elif change < 0.85:
                name = rng.choice(list(nodes))
                moved = node(name, labels={ZONE: rng.choice(zones)})
                cluster.cache.update_node(nodes[name], moved)
                nodes[name] = moved
            elif change < 0.9 and placed:
                old = placed.pop(rng.randrange(len(placed)))
                labels = {"app": rng.choice("xyz")}
                new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=labels))
                cluster.cache.update_pod(old, new)
                placed.append(new)
        cluster.refresh()
        app = rng.choice("xy")
        pending = PodInfo(pod(f"pending-{step}", labels={"app": app}, topologySpreadConstraints=specs[app]))
        some = np.flatnonzero(np.array([rng.random() < 0.5 for _ in range(12)]))
        for rows in (snapshot.all_rows, some):
            if len(rows) == 0:
                continue
            state = CycleState()
            assert plugin.pre_score(state, pending, snapshot, rows) is None
            table = plugin.score_table(state, pending, snapshot, rows)
            assert table is not None
            raw = plugin.score_rows(state, pending, snapshot, rows)
            assert raw.tolist() == [plain_score(state, row) for row in rows.tolist()]
            normalized = plugin.normalize_scores(state, pending, snapshot, rows, raw)
            assert table.scores[table.indexes].tolist() == normalized.tolist()
            assert 0 <= table.scores.min() <= table.scores.max() <= 100
            tables += 1
    assert tables > 60


def test_default_constraints_score_nodes_without_zone(
    plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    nodes = [node("in", labels={ZONE: "a"}), node("out"), node("other", labels={ZONE: "b"})]
    cluster = plugin_cluster(nodes, [pod("p", "in", labels={"app": "x"}), pod("q", "out", labels={"app": "x"})])
    service = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"selector": {"app": "x"}}}
    cluster.put("services", convert(Service, service))
    snapshot, plugin = cluster.snapshot, cluster.framework.plugins["PodTopologySpread"]
    state, pending = CycleState(), PodInfo(pod("pending", labels={"app": "x"}))
    assert plugin.pre_score(state, pending, snapshot, snapshot.all_rows) is None
    table = plugin.score_table(state, pending, snapshot, snapshot.all_rows)
    assert table is not None
    raw = plugin.score_rows(state, pending, snapshot, snapshot.all_rows)
    normalized = plugin.normalize_scores(state, pending, snapshot, snapshot.all_rows, raw)
    assert table.scores[table.indexes].tolist() == normalized.tolist()


def test_no_table_for_too_many_domains(
    plugin_cluster: Callable[..., Any],
    node: Callable[..., Any],
    pod: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_table, "MAX_CELLS", 8)
    rng = random.Random(1)
    cluster = plugin_cluster([node(f"n{number}", labels={ZONE: f"z{number}"}) for number in range(6)])
    plugin, state = cluster.framework.plugins["PodTopologySpread"], CycleState()
    pending = PodInfo(pod("pending", labels={"app": "x"}, topologySpreadConstraints=constraints(rng, "x")))
    assert plugin.pre_score(state, pending, cluster.snapshot, cluster.snapshot.all_rows) is None
    assert plugin.score_table(state, pending, cluster.snapshot, cluster.snapshot.all_rows) is None
    assert len(plugin.score_rows(state, pending, cluster.snapshot, cluster.snapshot.all_rows)) == 6


@pytest.mark.parametrize("few_rows", [0, 1000], ids=["arrays", "per row"])
def test_table_after_a_node_moves_to_a_new_zone(
    few_rows: int,
    plugin_cluster: Callable[..., Any],
    node: Callable[..., Any],
    pod: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_table, "_FEW_ROWS", few_rows)
    nodes = {name: node(name, labels={ZONE: zone}) for name, zone in zip("mnopqr", "aabbbb", strict=True)}
    placed_pods = [pod(f"p{number}", name, labels={"app": "x"}) for number, name in enumerate("mmnoq")]
    cluster = plugin_cluster(nodes.values(), placed_pods)
    snapshot, plugin = cluster.snapshot, cluster.framework.plugins["PodTopologySpread"]
    spec = constraints(random.Random(3), "x")
    for moved, zone in (("", ""), ("m", "new"), ("o", "newer"), ("m", "a")):
        if moved:
            changed = node(moved, labels={ZONE: zone})
            cluster.cache.update_node(nodes[moved], changed)
            nodes[moved] = changed
            cluster.refresh()
        pending = PodInfo(pod(f"pending-{zone}", labels={"app": "x"}, topologySpreadConstraints=spec))
        state, rows = CycleState(), snapshot.all_rows
        assert plugin.pre_score(state, pending, snapshot, rows) is None
        table = plugin.score_table(state, pending, snapshot, rows)
        assert table is not None
        raw = plugin.score_rows(state, pending, snapshot, rows)
        assert raw.tolist() == [plain_score(state, row) for row in rows.tolist()]
        normalized = plugin.normalize_scores(state, pending, snapshot, rows, raw)
        assert table.scores[table.indexes].tolist() == normalized.tolist(), f"{moved} in {zone}"


def test_tables_of_the_least_recently_used_class_are_dropped(
    plugin_cluster: Callable[..., Any], node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_table, "_CACHED_CLASSES", 2)
    snapshot = plugin_cluster([node("n", labels={ZONE: "a"})]).snapshot
    cells, column, pods = score_table.ScoreTableCellsByClass(), snapshot.columns.labels(ZONE), np.zeros(1, np.int64)
    first, second = (cells.of(number, "x", snapshot, column, pods) for number in (1, 2))
    assert cells.of(1, "x", snapshot, column, pods) is first
    cells.of(3, "x", snapshot, column, pods)
    assert cells.of(1, "x", snapshot, column, pods) is first
    assert cells.of(2, "x", snapshot, column, pods) is not second
    assert len(cells._cached) == 2


@pytest.mark.parametrize(
    ("limit", "is_created"), [pytest.param(15, True, id="as many cells"), pytest.param(14, False, id="one cell less")]
)
def test_table_has_cells_for_each_domain_and_number_of_pods(
    limit: int,
    is_created: bool,
    plugin_cluster: Callable[..., Any],
    node: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four zones and no zone, by 0 to 2 pods: the one that there is, and the next."""
    monkeypatch.setattr(score_table, "MAX_CELLS", limit)
    snapshot = plugin_cluster([node(f"n{number}", labels={ZONE: f"z{number}"}) for number in range(4)]).snapshot
    column, pods = snapshot.columns.labels(ZONE), np.array([1, 0, 0, 0])
    cells = score_table.ScoreTableCellsByClass().of(1, "x", snapshot, column, pods)
    assert (cells is not None) is is_created
