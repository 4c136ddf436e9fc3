"""ServiceAccounts. Source: pkg/registry/core/serviceaccount of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.kube.json_object import JSON

_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"


def _warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    before = old["metadata"].get("annotations", {}) if old is not None else {}
    if _MOUNTABLE_SECRETS in obj["metadata"].get("annotations", {}) and _MOUNTABLE_SECRETS not in before:
        detail = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE_SECRETS}]: {detail}"


def _keep_secret_names_only(account: JSON, *_: Any) -> None:
    """Keep only the names of the references to secrets."""
    if account.get("secrets"):
        account["secrets"] = [
            {name: secret[name] for name in ("name",) if name in secret} for secret in account["secrets"]
        ]


STRATEGY = Strategy(
    prepare_create=_keep_secret_names_only,
    prepare_update=_keep_secret_names_only,
    update_steps="uws",
    warnings=_warnings,
    cells=row(AGE),
)
