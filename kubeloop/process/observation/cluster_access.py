"""Permissions of `kubeloop observe`: pods are required, everything else adds detail."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.client.api_client import ApiClient, Selectors
from kubeloop.kube.errors import ApiError, Forbidden, NotFound, ServerUnreachable
from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedNode, ObservedPod
from kubeloop.kube.objects.resources import LEASES, Resource, new_resource
from kubeloop.kube.user_error import UserError
from kubeloop.process.api_server_check import refused_error, unreachable_error

OBSERVED_PODS = new_resource(ObservedPod, "v1", "pods", "Pod")
OBSERVED_EVENTS = new_resource(ObservedEvent, "v1", "events", "Event")
OBSERVED_NODES = new_resource(ObservedNode, "v1", "nodes", "Node", namespaced=False)

NO_SELECTORS: Selectors = {}

MISSING_DETAIL = {
    "events": "no reasons of failed scheduling, image pulls or volumes",
    "nodes": "no lost nodes",
    "leases": "no leader election: every replica exports",
}


async def check_access(
    client: ApiClient, namespace: str, pod_selectors: Selectors, lease: tuple[str, str] | None
) -> frozenset[str]:
    """Return the keys of MISSING_DETAIL for which the server denies permission.

    `lease`: namespace and name for leader election. Raises UserError unless the server responds and permits to list and
    watch pods.
    """
    server = client.transport.server
    missing: set[str] = set()
    try:
        if not await may_watch(client, OBSERVED_PODS, namespace, pod_selectors):
            raise _pods_denied(server, namespace)
        if not await may_watch(client, OBSERVED_EVENTS, namespace):
            missing.add("events")
        if not await may_watch(client, OBSERVED_NODES):
            missing.add("nodes")
        if lease is not None and not await _may_get_lease(client, *lease):
            missing.add("leases")
    except ServerUnreachable as error:
        raise unreachable_error(server, error) from None
    except ApiError as error:
        if error.code == 400 and pod_selectors:
            raise UserError(
                f"the API server {server} rejects the selector: {error.message}",
                hint="for example -l 'app=web,tier!=cache'",
            ) from None
        raise refused_error(server, error) from None
    return frozenset(missing)


async def may_watch(
    client: ApiClient, resource: Resource[Any], namespace: str = "", selectors: Selectors = NO_SELECTORS
) -> bool:
    """Return whether the server permits to list and watch a resource. Raises ApiError and ServerUnreachable."""
    try:
        page = await client.list(resource, namespace, limit=1, **selectors)
        version = page.metadata.resource_version
        async with client.watch(resource, namespace, resource_version=version, timeout_seconds=1, **selectors):
            return True
    except Forbidden:
        return False


async def _may_get_lease(client: ApiClient, namespace: str, name: str) -> bool:
    try:
        await client.get(LEASES, name, namespace)
    except NotFound:
        return True
    except Forbidden:
        return False
    return True


def _pods_denied(server: str, namespace: str) -> UserError:
    rule = 'apiGroups: [""], resources: [pods], verbs: [list, watch]'
    if namespace:
        return UserError(
            f"the API server {server} does not permit to list and watch pods in namespace {namespace}",
            hint=f"bind a Role with the rule {rule}",
        )
    return UserError(
        f"the API server {server} does not permit to list and watch pods in all namespaces",
        hint=f"bind a ClusterRole with the rule {rule}, as in deploy/observe, or observe one namespace with -n",
    )
