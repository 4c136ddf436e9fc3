"""Pod affinity terms: selection of the pods that a term of affinity or anti-affinity matches.

Source: kube-scheduler framework/types.go, AffinityTerm. Imports `objects` and `selectors`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.api_types import PodAffinityTerm
from kubeloop.kube.selectors.selectors import Selector, selector_from


class AffinityTerm:
    """A compiled PodAffinityTerm of a pod in `owner_namespace`. Raises SelectorError for an invalid selector.

    A pod matches if its labels match, and its namespace is listed or has matching labels. Without list and selector the
    namespace is the owner's. matchLabelKeys have no effect here: the API server merges them into the selector.
    """

    __slots__ = ("namespace_selector", "namespaces", "selector", "topology_key", "weight")

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    topology_key: str
    weight: int

    def __init__(self, owner_namespace: str, term: PodAffinityTerm, weight: int = 0) -> None:
        """`weight`: of a preferred term; 0 for a required one."""
        self.selector = selector_from(term.label_selector)
        namespaces = term.namespaces
        if not namespaces and term.namespace_selector is None:
            namespaces = (owner_namespace,)
        self.namespaces = frozenset(namespaces)
        self.namespace_selector = selector_from(term.namespace_selector)
        self.topology_key = term.topology_key
        self.weight = weight

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return True if the term matches a pod with these labels, in a namespace with `namespace_labels`."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.selector.matches(labels)
