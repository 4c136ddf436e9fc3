"""Permissions: RBAC rules that a controller needs, from what it declares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubeloop.controllers.api.watches import For, Owns, Watch, Watches
from kubeloop.kube.objects.resources import EVENTS, Resource

_READ = ("get", "list", "watch")
_OWNED = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class AccessRule:
    """Verbs on a resource, separated by spaces: AccessRule(SECRETS, "create delete"). subresource: "scale", ..."""

    resource: Resource[Any]
    verbs: str
    subresource: str = ""


def rules_for(watches: Iterable[Watch[Any]], permissions: Iterable[AccessRule]) -> list[dict[str, Any]]:
    """Return the rules of a ClusterRole, or of a Role, in the order of group, resources and verbs.

    Those in its own cluster: `For` may be read and patched, with its status and finalizers; `Owns` read and written;
    all watches read. Events are written always.
    """
    verbs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    verbs[EVENTS.group, EVENTS.plural] = {"create", "patch"}
    for watch in watches:
        if isinstance(watch, Watches) and watch.cluster:
            continue
        group, plural = watch.resource.group, watch.resource.plural
        verbs[group, plural].update(_READ)
        if isinstance(watch, For):
            verbs[group, plural].update(("update", "patch"))
            verbs[group, f"{plural}/status"].update(("update", "patch"))
            verbs[group, f"{plural}/finalizers"].add("update")  # blockOwnerDeletion in owner references
        elif isinstance(watch, Owns):
            verbs[group, plural].update(_OWNED)
    for permission in permissions:
        resource = permission.resource
        name = f"{resource.plural}/{permission.subresource}" if permission.subresource else resource.plural
        verbs[resource.group, name].update(permission.verbs.split())
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, name), allowed in sorted(verbs.items()):
        rules.setdefault((group, tuple(sorted(allowed))), []).append(name)
    return [
        {"apiGroups": [group], "resources": names, "verbs": [*allowed]} for (group, allowed), names in rules.items()
    ]
