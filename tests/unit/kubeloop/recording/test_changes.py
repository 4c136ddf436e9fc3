"""kubeloop/recording/changes.py: keys and findings."""

from __future__ import annotations

from kubeloop.recording.changes import Finding, key_of
from support.objects.recorded_objects import node, pod


def test_key_has_the_namespace_of_a_namespaced_object():
    assert key_of(pod("web-1")) == "shop/web-1"
    assert key_of(node("node-1")) == "node-1"


def test_finding_names_place_object_problem_and_effect():
    finding = Finding("day.kubeloop, line 7", "unknown kind", "it is left out", "widget shop/x")
    assert str(finding) == "day.kubeloop, line 7: widget shop/x: unknown kind; it is left out"
    assert str(Finding("a", "b", "c")) == "a: b; c"
