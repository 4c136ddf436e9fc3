"""Scenarios of objects that every namespace has, and of token Secrets."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from support.faults.cluster import Cluster
from support.faults.objects import JSON, is_terminating, manifest, name_of
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create

_CERTIFICATES = "kube-root-ca.crt"


def _damage(cluster: Cluster) -> None:
    """Delete the ServiceAccount of one namespace, and change the certificates of another one."""
    cluster.delete(SERVICE_ACCOUNTS, "default", namespace="first")
    cluster.patch(CONFIG_MAPS, _CERTIFICATES, {"data": {"ca.crt": "wrong", "other": "x"}}, namespace="second")


def _missing_defaults(cluster: Cluster) -> Iterator[str]:
    for namespace in map(name_of, cluster.all(NAMESPACES, lambda namespace: not is_terminating(namespace))):
        if cluster.get(SERVICE_ACCOUNTS, "default", namespace) is None:
            yield f"namespace {namespace} has no ServiceAccount"
        if (cluster.get(CONFIG_MAPS, _CERTIFICATES, namespace) or {}).get("data") != {"ca.crt": ""}:
            yield f"namespace {namespace} has no certificates"


_ACCOUNT = "kubernetes.io/service-account.name"


def _token_secret(name: str, account: str) -> JSON:
    return {
        **manifest(SECRETS, name, annotations={_ACCOUNT: account}),
        "type": "kubernetes.io/service-account-token",
    }


def _spoil(cluster: Cluster) -> None:
    """Remove the token of one Secret, and delete the account of another one."""
    cluster.patch(SECRETS, "spoilt", {"data": {"token": None}})
    cluster.delete(SERVICE_ACCOUNTS, "leaving")


def _wrong_token_secrets(cluster: Cluster) -> Iterator[str]:
    for secret in cluster.all(SECRETS):
        name, data = name_of(secret), secret.get("data") or {}
        if cluster.get(SERVICE_ACCOUNTS, secret["metadata"]["annotations"][_ACCOUNT]) is None:
            yield f"Secret {name} has no account"
        elif not data.get("token") or not data.get("namespace"):
            yield f"Secret {name} has no token"
    if cluster.get(SECRETS, "spoilt") is None:
        yield "the Secret of an existing account is deleted"


SCENARIOS = (
    Scenario(
        "service account tokens",
        ("serviceaccount-token",),
        (
            Step(
                "create accounts and token Secrets",
                create(
                    *(manifest(SERVICE_ACCOUNTS, name) for name in ("robot", "leaving")),
                    *(_token_secret(name, "robot") for name in ("plain", "spoilt")),
                    _token_secret("of-leaving", "leaving"),
                    _token_secret("of-nobody", "nobody"),
                ),
            ),
            Step("remove a token and an account", _spoil, UNTIL_SETTLED),
        ),
        desired=lambda cluster: [*_wrong_token_secrets(cluster)],
        exact=(),
    ),
    Scenario(
        "namespace defaults",
        ("serviceaccount", "root-ca-cert-publisher", "namespace"),
        (
            Step("create namespaces", create(manifest(NAMESPACES, "first"), manifest(NAMESPACES, "second"))),
            Step("delete and change what they have", _damage, UNTIL_SETTLED),
            Step("delete a namespace", lambda cluster: cluster.delete(NAMESPACES, "second"), UNTIL_SETTLED),
        ),
        desired=lambda cluster: [*_missing_defaults(cluster)],
        exact=("serviceaccounts", "configmaps"),
    ),
)
