"""Merge of matchLabelKeys and mismatchLabelKeys into label selectors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.match_label_keys import merge_match_label_keys

JSON = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merged(term: JSON, field: str = "spread") -> JSON:
    """Return `term` of a pod with labels app=web and tenant=a after the merge."""
    specs: dict[str, JSON] = {
        "spread": {"topologySpreadConstraints": [term]},
        "affinity": {"affinity": {"podAffinity": {REQUIRED: [term]}}},
        "anti-affinity": {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}},
    }
    merge_match_label_keys({"metadata": {"labels": {"app": "web", "tenant": "a"}}, "spec": specs[field]})
    return term


@pytest.mark.parametrize("field", ["affinity", "anti-affinity"])
def test_label_keys_extend_the_selector_of_an_affinity_term(field):
    present = {"key": "x", "operator": "Exists"}
    term = {
        "labelSelector": {"matchExpressions": [present]},
        "matchLabelKeys": ["app"],
        "mismatchLabelKeys": ["tenant"],
    }
    assert merged(term, field)["labelSelector"]["matchExpressions"] == [
        present,
        {"key": "app", "operator": "In", "values": ["web"]},
        {"key": "tenant", "operator": "NotIn", "values": ["a"]},
    ]


def test_label_keys_extend_the_selector_of_a_spread_constraint():
    selector = {"matchLabels": {"x": "y"}}
    expression = {"key": "app", "operator": "In", "values": ["web"]}
    assert merged({"labelSelector": selector, "matchLabelKeys": ["app"]})["labelSelector"] == {
        "matchLabels": {"x": "y"},
        "matchExpressions": [expression],
    }


def test_key_of_a_label_that_the_pod_lacks_is_ignored():
    assert merged({"labelSelector": {}, "matchLabelKeys": ["missing"]})["labelSelector"] == {}


def test_term_without_selector_stays_without():
    assert "labelSelector" not in merged({"matchLabelKeys": ["app"]})
