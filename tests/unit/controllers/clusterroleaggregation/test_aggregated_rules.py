"""Rules of aggregated ClusterRoles: selection, order, duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.clusterroleaggregation.aggregated_rules import aggregated_rules, plain_rules
from kubeloop.kube.selectors.selectors import SelectorError

PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
JOBS = {"verbs": ["get"], "apiGroups": ["batch"], "resources": ["jobs"]}
HEALTH = {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}


def role(name: str, *rules: Any, selectors: Any = None, **labels: str) -> Any:
    aggregation = {} if selectors is None else {"aggregationRule": {"clusterRoleSelectors": selectors}}
    return {"metadata": {"name": name, "labels": labels}, "rules": [*rules] or None, **aggregation}


VIEW = {"matchLabels": {"to": "view"}}


@pytest.mark.parametrize(
    ("selectors", "others", "expected"),
    [
        pytest.param([VIEW], [role("b", JOBS, to="view"), role("a", PODS, to="view")], [PODS, JOBS], id="by name"),
        pytest.param([VIEW], [role("a", PODS, to="view"), role("b", PODS, JOBS, to="view")], [PODS, JOBS], id="once"),
        pytest.param([VIEW], [role("a", PODS, to="edit"), role("b", JOBS)], [], id="no match"),
        pytest.param(
            [{"matchLabels": {"to": "edit"}}, VIEW],
            [role("a", PODS, to="view"), role("b", HEALTH, to="edit")],
            [HEALTH, PODS],
            id="in the order of the selectors",
        ),
        pytest.param(
            [{"matchExpressions": [{"key": "to", "operator": "Exists"}]}],
            [role("a", PODS, to="x"), role("b", JOBS)],
            [PODS],
            id="Exists",
        ),
        pytest.param([{}], [role("a", PODS), role("sum", JOBS)], [PODS], id="all but itself"),
        pytest.param(None, [role("a", PODS)], [], id="no selector"),
    ],
)
def test_rules_are_those_of_the_selected_roles(selectors: Any, others: Any, expected: Any):
    assert aggregated_rules(role("sum", selectors=selectors or []), others) == expected


def test_invalid_selector_is_an_error():
    selectors = [{"matchExpressions": [{"key": "to", "operator": "Near"}]}]
    with pytest.raises(SelectorError, match="Near"):
        aggregated_rules(role("sum", selectors=selectors), [])


def test_empty_fields_of_rules_do_not_count():
    assert plain_rules(role("a", {**PODS, "resourceNames": []})) == [PODS]
    assert plain_rules(role("a")) == []
