"""Node selectors and required node affinity."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, RequiredNodeAffinity
from kubeloop.kube.selectors.selectors import (
    SelectorError,
)


def term(key: str, operator: str, *some: str, fields: bool = False) -> NodeSelectorTerm:
    requirement = (NodeSelectorRequirement(key=key, operator=operator, values=some),)
    return NodeSelectorTerm(match_fields=requirement) if fields else NodeSelectorTerm(match_expressions=requirement)


def test_invalid_term_raises_only_if_no_term_matches():
    good, bad = term("cpu", "Gt", "4"), term("cpu", "Gt", "four")
    matcher = NodeSelectorMatcher(NodeSelector(node_selector_terms=(bad, good)))
    assert matcher.matches_or_raises("n", {"cpu": "8"})
    with pytest.raises(SelectorError, match="must be an integer"):
        matcher.matches_or_raises("n", {"cpu": "2"})
    with pytest.raises(SelectorError):
        matcher.check()


def test_match_fields_select_node_by_name():
    matcher = NodeSelectorMatcher(
        NodeSelector(node_selector_terms=(term("metadata.name", "In", "node-1", fields=True),))
    )
    assert matcher.matches("node-1", {})
    assert not matcher.matches("node-2", {})


def test_empty_required_affinity_matches_every_node():
    anywhere = RequiredNodeAffinity({}, None)
    assert anywhere.empty
    assert anywhere.matches("n", {})
    assert not RequiredNodeAffinity({"disk": "ssd"}, None).matches("n", {})
