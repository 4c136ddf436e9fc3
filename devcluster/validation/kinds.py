"""Which rules each kind has: the table that `validate_create` and `validate_update` look into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubeloop.devcluster.validation.field import Errors, dns_1035_label, dns_label, dns_subdomain
from kubeloop.devcluster.validation.metadata import NameCheck, path_segment

JSON = dict[str, Any]
Create = Callable[[Errors, JSON], None]
Update = Callable[[Errors, JSON, JSON], None]


def _nothing(errors: Errors, obj: JSON) -> None:
    """No rule but those of metadata."""
    del errors, obj


def _nothing_new(errors: Errors, obj: JSON, old: JSON) -> None:
    """No rule but those of metadata."""
    del errors, obj, old


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind's validation: what strategy.Validate and strategy.ValidateUpdate do beyond metadata.

    `core`: unqualified finalizers have to be known ones, as for all kinds that use core's ValidateObjectMeta.
    `metadata_updates`: how often an update looks at metadata's changes, besides the store's own check.
    `whole_metadata`: an update also looks at the new metadata by itself.
    """

    name: NameCheck = dns_subdomain
    create: Create = _nothing
    update: Update = _nothing_new
    status: Update = _nothing_new
    core: bool = True
    metadata_updates: int = 1
    whole_metadata: bool = False


SIMPLE = Rule()

RULES: dict[tuple[str, str], Rule] = {
    ("", "Namespace"): Rule(name=dns_label),
    ("", "Service"): Rule(name=dns_1035_label),
    ("rbac.authorization.k8s.io", "Role"): Rule(name=path_segment),
    ("rbac.authorization.k8s.io", "RoleBinding"): Rule(name=path_segment),
    ("rbac.authorization.k8s.io", "ClusterRole"): Rule(name=path_segment),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Rule(name=path_segment),
}
