"""Rules of an aggregated ClusterRole. A pure function of JSON.

Source: v1.36 pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeloop.kube.objects.api_types import JSONValue, LabelSelector, convert
from kubeloop.kube.selectors.selectors import selector_from

_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def aggregated_rules(role: JSONValue, roles: Iterable[JSONValue]) -> list[JSONValue]:
    """Return the rules of all ClusterRoles that the selectors of `role` match, in the order of the API.

    They are sorted by the number of the selector and the name of the ClusterRole; equal ones stand once. Raises
    SelectorError.
    """
    by_name = sorted(roles, key=lambda it: str(it["metadata"]["name"]))
    rules: list[JSONValue] = []
    for value in (role["aggregationRule"] or {}).get("clusterRoleSelectors") or ():
        selector = selector_from(convert(LabelSelector, value))
        for other in by_name:
            labels: Mapping[str, str] = other["metadata"].get("labels") or {}
            if other["metadata"]["name"] != role["metadata"]["name"] and selector.matches(labels):
                rules += [rule for rule in plain_rules(other) if rule not in rules]
    return rules


def plain_rules(role: JSONValue) -> list[JSONValue]:
    """Return the rules of a ClusterRole without empty fields, to compare them."""
    return [{name: rule[name] for name in _FIELDS if rule.get(name)} for rule in role.get("rules") or ()]
