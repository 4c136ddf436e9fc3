"""Which PolicyRules a set of rules does not cover.

Sources: component-helpers auth/rbac/validation/policy_comparator.go, pkg/registry/rbac/validation/policy_compact.go,
pkg/apis/rbac/v1/evaluation_helpers.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from kubeloop.devcluster.authorization.rbac import url_matches
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted_list


class RulePermission(NamedTuple):
    """One verb on one resource, or on one URL: the smallest part of a rule. name: None for all objects."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str | None = None
    url: str | None = None


def missing_permissions(owned: Sequence[JSON], rules: Iterable[JSON]) -> list[RulePermission]:
    """Return the permissions of `rules` that no single rule of `owned` contains."""
    permissions = (permission for rule in rules for permission in _permissions(rule))
    return [permission for permission in permissions if not any(_covers(rule, permission) for rule in owned)]


def _permissions(rule: JSON) -> Iterator[RulePermission]:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or (None,)
    for group, resource, verb, name in product(groups, resources, verbs, names):
        yield RulePermission(verb, group, resource, name)
    for url, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield RulePermission(verb, url=url)


def _covers(rule: JSON, permission: RulePermission) -> bool:
    verbs = rule.get("verbs") or ()
    if permission.verb not in verbs and "*" not in verbs:
        return False
    if permission.url is not None:
        # a rule with resources covers URLs as well, because the permission names no resource
        return not rule.get("resourceNames") and any(
            url_matches(url, permission.url) for url in rule.get("nonResourceURLs") or ()
        )
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    names = rule.get("resourceNames") or ()
    _, is_subresource, subresource = permission.resource.partition("/")
    return (
        (permission.group in groups or "*" in groups)
        and (
            permission.resource in resources
            or "*" in resources
            or bool(is_subresource and f"*/{subresource}" in resources)
        )
        and (not names or permission.name in names)
    )


def description(permissions: Iterable[RulePermission]) -> str:
    """Return permissions as the error of an escalation lists them: a line for each resource, with all verbs."""
    verbs: dict[RulePermission, list[str]] = {}
    lines = set()
    for permission in permissions:
        if permission.url is None:
            verbs.setdefault(permission._replace(verb=""), []).append(permission.verb)
        else:
            lines.add(f"{{NonResourceURLs:{quoted_list([permission.url])}, Verbs:{quoted_list([permission.verb])}}}")
    for resource, its_verbs in verbs.items():
        named = "" if resource.name is None else f"ResourceNames:{quoted_list([resource.name])}, "
        lines.add(
            f"{{APIGroups:{quoted_list([resource.group])}, Resources:{quoted_list([resource.resource])},"
            f" {named}Verbs:{quoted_list(its_verbs)}}}"
        )
    return "\n".join(sorted(lines))
