"""Compiled terms of pod affinity."""

from __future__ import annotations

from kubeloop.kube.objects.api_types import LabelSelector, PodAffinityTerm
from kubeloop.kube.selectors.pod_affinity import AffinityTerm

WEB = LabelSelector(match_labels={"app": "web"})


def test_term_without_namespaces_matches_namespace_of_owner_only():
    term = AffinityTerm("shop", PodAffinityTerm(label_selector=WEB, topology_key="zone"))
    assert term.matches("shop", {"app": "web"}, {})
    assert not term.matches("other", {"app": "web"}, {})
    assert not term.matches("shop", {"app": "db"}, {})


def test_term_matches_listed_or_selected_namespaces():
    selector = LabelSelector(match_labels={"team": "a"})
    term = AffinityTerm("shop", PodAffinityTerm(label_selector=WEB, namespaces=("b",), namespace_selector=selector))
    assert term.matches("b", {"app": "web"}, {})
    assert term.matches("c", {"app": "web"}, {"team": "a"})
    assert not term.matches("shop", {"app": "web"}, {})
