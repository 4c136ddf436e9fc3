"""Merge matchLabelKeys and mismatchLabelKeys, with the pod's label values, into label selectors.

The scheduler then evaluates selectors only. The merge happens on create; later changes of labels do not affect the
selectors. Source: pkg/registry/core/pod/strategy.go (mutatePodAffinity, mutateTopologySpreadConstraints).
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_match_label_keys(pod: JSON, *, spread: bool = True) -> None:
    """Extend, in place, the selectors of pod (anti-)affinity terms and, if `spread`, topology spread constraints."""
    spec, labels = pod["spec"], pod["metadata"].get("labels", {})
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for term in pods.get(_REQUIRED, ()):
            _merge_into_selector(term, labels)
        for preferred in pods.get(_PREFERRED, ()):
            _merge_into_selector(preferred.get("podAffinityTerm", {}), labels)
    for constraint in spec.get("topologySpreadConstraints", ()) if spread else ():
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
