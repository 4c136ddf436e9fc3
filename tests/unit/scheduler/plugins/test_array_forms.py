"""Array forms of Filter and Score give the same results as the per-node forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from support.scheduling.scheduler_strategies import QUICKLY, pods, populated


@QUICKLY
@given(cluster_objects=populated(), incoming=pods("incoming"))
def test_array_forms_agree_with_per_node_forms(
    cluster_objects: tuple[list[Node], list[Pod]], incoming: Pod, plugin_cluster: Any
) -> None:
    cluster = plugin_cluster(*cluster_objects)
    framework, snapshot, state, info = cluster.make_framework(), cluster.snapshot, CycleState(), PodInfo(incoming)
    _, rejection, _ = framework.filters.run_pre_filter(state, info, snapshot)
    if rejection is not None:
        return
    for rows in (snapshot.all_rows, snapshot.all_rows[::2].copy()):
        for plugin in framework.filters.filter:
            if plugin.name in state.skip_filter or not hasattr(plugin, "filter_rows"):
                continue
            result = plugin.filter_rows(state, info, snapshot, rows)
            for index, row in enumerate(rows.tolist()):
                explained = None if result.passed[index] else result.explain(index)
                assert explained == plugin.filter(state, info, snapshot.node_infos[row]), plugin.name
            rejected = rows[~result.passed]
            if len(rejected) and hasattr(plugin, "explain_rows"):
                row_statuses = plugin.explain_rows(state, info, snapshot, rejected)
                reasons = [row_statuses.statuses[code] for code in row_statuses.codes.tolist()]
                assert reasons == [plugin.filter(state, info, snapshot.node_infos[row]) for row in rejected.tolist()]
        framework.scores.run_pre_score(state, info, snapshot, rows)
        for plugin in (scorer.plugin for scorer in framework.scores.scorers):
            if plugin.name in state.skip_score:
                continue
            by_rows = plugin.score_rows(state, info, snapshot, rows)
            assert by_rows.dtype == np.int64
            if hasattr(plugin, "score"):
                per_node = [plugin.score(state, info, snapshot.node_infos[row]) for row in rows.tolist()]
                assert by_rows.tolist() == per_node, plugin.name
