"""Lookup of the Pods of related ReplicaSets."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.replicaset.related_pods import HASH_INDEX, by_template_hash, related_pods
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
