"""Pod affinity terms: which pods a term of affinity or anti-affinity is about.

Source: kube-scheduler framework/types.go, AffinityTerm. May import `objects` and `selectors`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.api_types import PodAffinityTerm
from kubeloop.kube.selectors import Selector, selector_from


class AffinityTerm:
    """A PodAffinityTerm of a pod in `owner_namespace`, compiled. Raises SelectorError if one of its selectors is bad.

    A pod is meant if its labels match, and its namespace is listed or has matching labels. Neither list nor selector
    means the owner's own namespace. matchLabelKeys count only as merged into the selector by the API server.
    """

    __slots__ = ("namespace_selector", "namespaces", "selector", "topology_key", "weight")

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    topology_key: str
    weight: int

    def __init__(self, owner_namespace: str, term: PodAffinityTerm, weight: int = 0) -> None:
        """`weight` of a preferred term; 0 for a required one."""
        self.selector = selector_from(term.label_selector)
        namespaces = term.namespaces
        if not namespaces and term.namespace_selector is None:
            namespaces = (owner_namespace,)
        self.namespaces = frozenset(namespaces)
        self.namespace_selector = selector_from(term.namespace_selector)
        self.topology_key = term.topology_key
        self.weight = weight

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether it is about a pod with these labels in this namespace, which has `namespace_labels`."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.selector.matches(labels)
