"""Lookup of the Pods of related ReplicaSets."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.replicaset.related_pods import (
    HASH_INDEX,
    active_pods_per_node,
    by_template_hash,
    related_pods,
)
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import LabelSelector, Pod, convert


def test_related_pods_match_any_selector_and_are_unique():
    store: Store[Pod] = Store()
    store.add_index(HASH_INDEX, by_template_hash)
    for name, labels in (
        ("new", {"app": "web", "pod-template-hash": "1"}),
        ("old", {"app": "web", "pod-template-hash": "2"}),
        ("other", {"app": "db", "pod-template-hash": "2"}),
        ("bare", {"app": "web"}),
    ):
        metadata = {"name": name, "namespace": "ns", "labels": labels}
        store.put(f"ns/{name}", convert(Pod, {"metadata": metadata}))

    def related_names(*label_selectors: dict[str, Any]) -> list[str]:
        selectors = [convert(LabelSelector, label_selector) for label_selector in label_selectors]
        return [related.metadata.name for related in related_pods(store, "ns", selectors)]

    new, old = ({"matchLabels": {"app": "web", "pod-template-hash": number}} for number in "12")
    assert related_names(new, old, new) == ["new", "old"]
    assert related_names({"matchLabels": {"app": "web"}}, new) == ["new", "old", "bare"]
    assert related_names({"matchExpressions": [{"key": "app", "operator": "Nonsense"}]}, old) == ["old"]


def test_active_pods_are_counted_per_node():
    def pod(name: str, node: str, phase: str = "Running", **metadata: Any) -> Pod:
        return convert(
            Pod,
            {
                "metadata": {"name": name, "namespace": "ns", **metadata},
                "spec": {"nodeName": node},
                "status": {"phase": phase},
            },
        )

    pods = [
        pod("a", "n"),
        pod("b", "n", "Pending"),
        pod("c", "m"),
        pod("d", ""),
        pod("e", "n", "Succeeded"),
        pod("f", "n", "Failed"),
        pod("g", "n", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    assert active_pods_per_node(pods) == {"n": 2, "m": 1, "": 1}
    assert active_pods_per_node([]) == {}


def test_hash_index_contains_pods_with_the_label():
    labelled = convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "labels": {"pod-template-hash": "1"}}})
    assert list(by_template_hash(labelled)) == ["ns/1"]
    assert list(by_template_hash(convert(Pod, {"metadata": {"name": "p", "namespace": "ns"}}))) == []
