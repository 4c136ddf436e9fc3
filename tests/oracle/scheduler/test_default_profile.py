"""Decisions of the default profile on clusters without persistent volumes: verdicts, reasons, scores, winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kubeloop.kube.objects import Pod, convert
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.interface import CycleState, Status

Records = Callable[[str], Iterator[dict[str, Any]]]


def as_recorded(status: Status) -> dict[str, Any]:
    return {"plugin": status.plugin, "code": status.code.api_name, "reasons": sorted(status.reasons)}


def recorded(status: dict[str, Any]) -> dict[str, Any]:
    return {"plugin": status.get("plugin", ""), "code": status["code"], "reasons": sorted(status.get("reasons", []))}


def test_every_decision_is_the_recorded_one(records: Records, make_cluster: Any) -> None:
    for case in records("scheduler/default_profile.jsonl.gz"):
        check_case(case, make_cluster)


def check_case(case: dict[str, Any], make_cluster: Any) -> None:
    cluster = make_cluster(case["cluster"])
    snapshot = cluster.snapshot
    assert [info.name for info in snapshot.node_infos] == case["snapshotNodeOrder"]
    for decision in case["decisions"]:
        check_decision(cluster, decision, case["name"])


def check_decision(cluster: Any, decision: dict[str, Any], case_name: str) -> None:
    snapshot = cluster.snapshot
    pod = PodInfo(convert(Pod, decision["pod"]))
    about = f"{case_name} {pod.key}"
    gated = cluster.pre_enqueue(pod)
    if decision.get("preEnqueueRejected"):
        assert gated is not None, about
        assert as_recorded(gated) == recorded(decision["preEnqueueRejected"]), about
        return
    assert gated is None, about

    state = CycleState()
    rejection, names, naming = cluster.pre_filter(state, pod)
    pre_filter = decision.get("preFilter") or {}
    if pre_filter.get("rejected"):
        assert rejection is not None, about
        assert as_recorded(rejection) == recorded(pre_filter["rejected"]), about
        return
    assert rejection is None, about
    ours = {name for name in pre_filter.get("skippedFilterPlugins", ()) if name in cluster.plugins}
    assert state.skip_filter == ours, about
    assert (sorted(names) if names is not None else None) == (
        sorted(pre_filter["nodeNames"]) if pre_filter.get("nodeNames") is not None else None
    ), about
    assert sorted(naming) == sorted(pre_filter.get("nodeNamesPlugins", ())), about

    infeasible = decision.get("infeasibleNodes") or {}
    looked_at = [
        info.name
        for info in snapshot.node_infos
        if not infeasible.get(info.name, {}).get("excludedByPreFilterNodeNames")
    ]
    rows = cluster.rows(looked_at)
    if len(rows) == len(snapshot):
        rows = snapshot.all_rows
    with_nominated = bool(cluster.nominator.nodes())
    verdicts = {plugin.name: cluster.filter_rows(plugin, state, pod, rows) for plugin in cluster.at("filter")}
    for index, row in enumerate(rows.tolist()):
        info = snapshot.node_infos[row]
        expected = infeasible.get(info.name)
        if with_nominated:
            status = cluster.run_filters_with_nominated_pods(state, pod, info)
            assert (status and as_recorded(status)) == (expected and recorded(expected)), (about, info.name)
            continue
        failing = {
            name: as_recorded(verdict.explain(index))
            for name, verdict in verdicts.items()
            if verdict is not None and not verdict.passed[index]
        }
        wanted = {}
        if expected is not None:
            wanted = {expected["plugin"]: recorded(expected)} | {
                name: recorded(status) for name, status in (expected.get("alsoFailing") or {}).items()
            }
        assert failing == wanted, (about, info.name)

    score = decision.get("score")
    if score is not None:
        check_scores(cluster, state, pod, decision, about)


def check_scores(cluster: Any, state: CycleState, pod: PodInfo, decision: dict[str, Any], about: str) -> None:
    score = decision["score"]
    feasible = cluster.rows(decision["feasibleNodes"])
    skipped = {
        plugin.name
        for plugin in cluster.at("pre_score")
        if (status := plugin.pre_score(state, pod, cluster.snapshot, feasible)) is not None
    }
    assert skipped == set(score.get("skippedPlugins", ())), about
    totals = np.zeros(len(feasible), np.int64)
    for plugin in cluster.at("score"):
        if plugin.name in skipped:
            continue
        expected = score["plugins"][plugin.name]
        weighted = cluster.score_rows(plugin, state, pod, feasible) * expected["weight"]
        assert weighted.tolist() == expected["scores"], (about, plugin.name)
        totals += weighted
    assert totals.tolist() == score["totals"], about
    names = [cluster.snapshot.node_infos[row].name for row in feasible.tolist()]
    best = totals.max()
    assert sorted(name for name, total in zip(names, totals, strict=True) if total == best) == score["topNodes"], about
