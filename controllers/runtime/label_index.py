"""Indexes by labels, so that a Pod and the objects whose selectors select it find each other without a search.

A namespace may have thousands of Services or PodDisruptionBudgets, each of which selects a few of thousands of Pods.
"""

from __future__ import annotations

from collections.abc import Mapping, ValuesView

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod

LABELS = "labels"
"""Name of the index of Pods by labels_of."""
SELECTOR_LABEL = "selector-label"
"""Name of the index of objects with a selector, by required_label."""


def labels_of(pod: Pod) -> list[str]:
    """Return the values of a Pod in the index LABELS: one per label."""
    return [_value(pod.metadata.namespace, *item) for item in pod.metadata.labels.items()]


def required_label(namespace: str, labels: Mapping[str, str]) -> str:
    """Return the value in the index SELECTOR_LABEL of a selector that requires these labels: one of those in LABELS.

    Without labels, it is `no_label(namespace)`.
    """
    return _value(namespace, *min(labels.items())) if labels else no_label(namespace)


def no_label(namespace: str) -> str:
    return f"{namespace}/"


def pods_with(pods: Store[Pod], namespace: str, labels: Mapping[str, str]) -> ValuesView[Pod]:
    """Return a live view of the Pods with the rarest of these labels; without labels, of all in the namespace."""
    if not labels:
        return pods.view("namespace", namespace)
    values = [_value(namespace, *item) for item in labels.items()]
    return pods.view(LABELS, min(values, key=lambda value: pods.count(LABELS, value)))


def _value(namespace: str, name: str, value: str) -> str:
    return f"{namespace}/{name}={value}"
