"""Scenarios of objects that every namespace has."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from support.faults.cluster import Cluster
from support.faults.objects import is_terminating, manifest, name_of
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


SCENARIOS = (
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
