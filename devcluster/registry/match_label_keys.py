"""matchLabelKeys and mismatchLabelKeys: the API server puts the pod's own labels into its selectors.

So that the scheduler needs to look at selectors only. On create alone: labels may change later, selectors stay.
Source: pkg/registry/core/pod/strategy.go (mutatePodAffinity, mutateTopologySpreadConstraints).
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_match_label_keys(pod: JSON) -> None:
    """Extend, in place, the selectors of pod (anti-)affinity terms and of topology spread constraints."""
    spec, labels = pod["spec"], pod["metadata"].get("labels", {})
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for term in pods.get(_REQUIRED, ()):
            _merge_into_selector(term, labels)
        for weighted in pods.get(_PREFERRED, ()):
            _merge_into_selector(weighted.get("podAffinityTerm", {}), labels)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _merge_into_selector(constraint, labels)


def _merge_into_selector(term: JSON, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name, ())
        if key in labels
    ]
    if added:
        term["labelSelector"] = {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), *added]}
