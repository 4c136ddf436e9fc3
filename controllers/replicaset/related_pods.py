"""How many related Pods each node has: those of all ReplicaSets of one owner, a Deployment's new and old ones.

Where Pods have to go, those on crowded nodes go first. Source: getIndirectlyRelatedPods and
getPodsRankedByRelatedPodsOnSameNode in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeloop.controllers.runtime.pod_status import is_active
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import LabelSelector, Pod
from kubeloop.kube.selectors import Selector, SelectorError, selector_from

HASH_LABEL = "pod-template-hash"
HASH_INDEX = "template-hash"
"""Pods by namespace and label pod-template-hash; those without the label are not in it."""


def by_template_hash(pod: Pod) -> Iterable[str]:
    """Index function of HASH_INDEX."""
    template_hash = pod.metadata.labels.get(HASH_LABEL)
    return () if template_hash is None else (f"{pod.metadata.namespace}/{template_hash}",)


def active_pods_per_node(pods: Iterable[Pod]) -> dict[str, int]:
    """How many of these Pods each node has, those that are active."""
    counts: dict[str, int] = {}
    for pod in pods:
        if is_active(pod):
            node = pod.spec.node_name
            counts[node] = counts.get(node, 0) + 1
    return counts


def related_pods(pods: Store[Pod], namespace: str, selectors: Iterable[LabelSelector | None]) -> Iterable[Pod]:
    """The Pods in `namespace` that one of `selectors` matches, each once; an invalid selector matches none.

    A Deployment's ReplicaSets select by hash, and are answered from the index. `pods` is viewed, not copied: do not
    await while iterating.
    """
    by_hash: dict[str, list[Selector]] = {}
    others: list[Selector] = []
    for wanted in selectors:
        try:
            selector = selector_from(wanted)
        except SelectorError:
            continue
        template_hash = wanted.match_labels.get(HASH_LABEL) if wanted is not None else None
        (others if template_hash is None else by_hash.setdefault(template_hash, [])).append(selector)
    if others:
        all_selectors = [*others, *(selector for selectors in by_hash.values() for selector in selectors)]
        yield from _matching(pods.view("namespace", namespace), all_selectors)
        return
    for template_hash, hash_selectors in by_hash.items():
        yield from _matching(pods.view(HASH_INDEX, f"{namespace}/{template_hash}"), hash_selectors)


def _matching(pods: Iterable[Pod], selectors: list[Selector]) -> Iterable[Pod]:
    if len(selectors) == 1:
        matches = selectors[0].matches
        return (pod for pod in pods if matches(pod.metadata.labels))
    return (pod for pod in pods if any(selector.matches(pod.metadata.labels) for selector in selectors))


PodsPerNode = Mapping[str, int]
"""Active related Pods by node name; a node that is not in it has none."""
