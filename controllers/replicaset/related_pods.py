"""Related Pods per node: the Pods of all ReplicaSets of one owner, such as a Deployment's new and old ones.

A scale-down deletes Pods on nodes with many related Pods first. Source: getIndirectlyRelatedPods and
getPodsRankedByRelatedPodsOnSameNode in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeloop.controllers.runtime.pods.pod_availability import is_active
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import LabelSelector, Pod
from kubeloop.kube.objects.object_fields import POD_TEMPLATE_HASH_LABEL
from kubeloop.kube.selectors.selectors import Selector, SelectorError, selector_from

HASH_INDEX = "template-hash"
"""Index of Pods by namespace and label pod-template-hash; Pods without the label are not in it."""


def by_template_hash(pod: Pod) -> Iterable[str]:
    """Index function of HASH_INDEX."""
    template_hash = pod.metadata.labels.get(POD_TEMPLATE_HASH_LABEL)
    return () if template_hash is None else (f"{pod.metadata.namespace}/{template_hash}",)


def active_pods_per_node(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the number of active Pods per node."""
    counts: dict[str, int] = {}
    for pod in pods:
        if is_active(pod):
            node = pod.spec.node_name
            counts[node] = counts.get(node, 0) + 1
    return counts


def related_pods(pods: Store[Pod], namespace: str, selectors: Iterable[LabelSelector | None]) -> Iterable[Pod]:
    """Return the Pods in `namespace` that any of `selectors` matches, each once; an invalid selector matches none.

    ReplicaSets of a Deployment select by hash; their Pods come from the index. The store is not copied: do not await
    while iterating.
    """
    by_hash: dict[str, list[Selector]] = {}
    others: list[Selector] = []
    for label_selector in selectors:
        try:
            selector = selector_from(label_selector)
        except SelectorError:
            continue
        template_hash = label_selector.match_labels.get(POD_TEMPLATE_HASH_LABEL) if label_selector is not None else None
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
"""Active related Pods by node name; nodes without any are missing."""
