"""InterPodAffinity with arguments other than the defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import POD
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.inter_pod_affinity.inter_pod_affinity import InterPodAffinity


@pytest.mark.parametrize(("weight", "expected"), [(5, [5, 0]), (0, None)])
def test_required_affinity_of_existing_pods_scores_with_weight(
    weight: int, expected: list[int] | None, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    existing = pod(
        "existing", "a", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    )
    cluster = plugin_cluster([node("a"), node("b")], [existing])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(hard_pod_affinity_weight=weight), cluster)
    state, new, snapshot = CycleState(), PodInfo(pod("new", labels={"app": "web"})), cluster.snapshot
    status = plugin.pre_score(state, new, snapshot, snapshot.all_rows)
    if expected is None:
        assert status is not None
    else:
        assert plugin.score_rows(state, new, snapshot, snapshot.all_rows).tolist() == expected


def test_preferred_terms_of_existing_pods_are_ignored(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True), cluster)
    state, new = CycleState(), PodInfo(pod("new"))
    assert plugin.pre_score(state, new, cluster.snapshot, cluster.snapshot.all_rows) is not None


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_own_preferred_terms_count_if_those_of_existing_pods_are_ignored(
    kind: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", labels={"app": "web"})])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True), cluster)
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    weighted = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}
    state, new, snapshot = CycleState(), PodInfo(pod("new", affinity={kind: weighted})), cluster.snapshot
    assert plugin.pre_score(state, new, snapshot, snapshot.all_rows) is None
    assert plugin.score_rows(state, new, snapshot, snapshot.all_rows).tolist() == [
        5 if kind == "podAffinity" else -5,
        0,
    ]


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_malformed_term_rejects_the_pod(kind: str, plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin, snapshot = InterPodAffinity(plugin_args.InterPodAffinityArgs(), cluster), cluster.snapshot
    selector = {"matchExpressions": [{"key": "app", "operator": "Unknown"}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    new = PodInfo(pod("new", affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    result, status = plugin.pre_filter(CycleState(), new, snapshot)
    assert result is None
    assert status is not None
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message.startswith("parsing pod: ")
    score_status = plugin.pre_score(CycleState(), new, snapshot, snapshot.all_rows)
    assert score_status is not None
    assert score_status.code is Code.ERROR
    assert score_status.message.startswith("failed to parse pod: ")
    for registered in plugin.events_to_register():
        if registered.event.resource == POD and registered.hint is not None:
            with pytest.raises(ValueError, match="Unknown"):
                registered.hint(new.pod, None, pod("other", "a"))


def test_scores_without_candidates(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin = InterPodAffinity(plugin_args.InterPodAffinityArgs(), cluster)
    none = np.zeros(0, np.int64)
    normalized = plugin.normalize_scores(CycleState(), PodInfo(pod("new")), cluster.snapshot, none, none)
    assert normalized.tolist() == []


@pytest.mark.parametrize(
    ("kind", "existing", "steps"),
    [
        # After each step, whether the pod fits on node a.
        pytest.param("podAntiAffinity", 2, [("", False), ("-", False), ("-", True), ("+", False)], id="anti-affinity"),
        pytest.param("podAffinity", 2, [("", True), ("-", True), ("-", False), ("+", True)], id="affinity"),
        pytest.param("podAntiAffinity", 0, [("", True), ("+", False), ("+", False), ("-", False)], id="added"),
    ],
)
def test_pods_that_preemption_removes_and_adds(
    kind: str, existing: int, steps: list[tuple[str, bool]], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    pods = [pod(f"p{number}", "a", labels={"app": "web"}) for number in range(3)]
    elsewhere = pod("elsewhere", "b", labels={"app": "web"})
    cluster = plugin_cluster([node("a"), node("b")], [*pods[:existing], elsewhere])
    plugin, snapshot = InterPodAffinity(plugin_args.InterPodAffinityArgs(), cluster), cluster.snapshot
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    new = PodInfo(pod("new", affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    state = CycleState()
    assert plugin.pre_filter(state, new, snapshot) == (None, None)
    node_a, count = snapshot.get("a"), existing
    for change, fits in steps:
        if change == "+":
            plugin.add_pod(state, new, PodInfo(pods[count]), node_a)
            count += 1
        elif change == "-":
            count -= 1
            plugin.remove_pod(state, new, PodInfo(pods[count]), node_a)
        assert (plugin.filter(state, new, node_a) is None) is fits, f"{count} pods"
        rows = plugin.filter_rows(state, new, snapshot, snapshot.all_rows)
        assert bool(rows.passed[snapshot.row_of["a"]]) is fits
        assert (plugin.filter(state, new, snapshot.get("b")) is None) is (kind == "podAffinity")
