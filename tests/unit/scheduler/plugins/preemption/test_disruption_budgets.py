"""Budgets in a dry run: the pods they cover, and evictions that violate them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import PodDisruptionBudget, convert
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget, split_by_violation

DB = {"matchLabels": {"app": "db"}}
MALFORMED = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
NO_APP = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}


def budget(selector: Any, allowed: int = 0, **changes: Any) -> Budget:
    status = {"disruptionsAllowed": allowed, "disruptedPods": changes.get("disrupted", {})}
    metadata = {"name": "b", "namespace": changes.get("namespace", "default")}
    return Budget(
        convert(PodDisruptionBudget, {"metadata": metadata, "spec": {"selector": selector}, "status": status})
    )


@pytest.mark.parametrize(
    ("selector", "changes", "labels", "covered"),
    [
        pytest.param(DB, {}, {"app": "db"}, True, id="matching labels"),
        pytest.param(DB, {}, {"app": "web"}, False, id="other labels"),
        pytest.param(DB, {"namespace": "other"}, {"app": "db"}, False, id="other namespace"),
        pytest.param(DB, {"disrupted": {"p": "2026-01-01T00:00:00Z"}}, {"app": "db"}, False, id="already counted"),
        pytest.param({}, {}, {"app": "db"}, False, id="empty selector"),
        pytest.param(NO_APP, {}, {}, False, id="pod without labels"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "Near"}]},
            {},
            {"app": "db"},
            False,
            id="malformed selector",
        ),
    ],
)
def test_pods_that_a_budget_covers(
    selector: Any, changes: dict[str, Any], labels: dict[str, str], covered: bool, pod: Any
) -> None:
    assert budget(selector, **changes).covers(pod("p", labels=labels)) is covered


def test_every_budget_of_a_pod_counts_even_after_a_violation(pod: Any) -> None:
    pods = [PodInfo(pod("both", labels={"app": "db", "tier": "data"})), PodInfo(pod("tier", labels={"tier": "data"}))]
    budgets = [budget(DB, allowed=0), budget({"matchLabels": {"tier": "data"}}, allowed=1)]
    assert split_by_violation(pods, budgets) == (pods, [])
    assert split_by_violation(pods[1:], budgets) == ([], pods[1:])
