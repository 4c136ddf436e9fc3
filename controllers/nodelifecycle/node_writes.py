"""Writes of Nodes by the node lifecycle controller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Node, Taint, to_json
from kubeloop.kube.objects.resources import NODES

log = logging.getLogger(__name__)

_TRIES = 5  # of a write that conflicts

Plan = Callable[[Node], JSONValue]
"""Returns the patch of a version of a Node; None if there is nothing to write."""


async def patch_node(client: ApiClient, node: Node, plan: Plan, *, subresource: str = "") -> Node:
    """Patch a Node as planned, after a conflict its current version. Return the version that the plan holds for."""
    name, uid = node.metadata.name, node.metadata.uid
    for tries_left in reversed(range(_TRIES)):
        patch = plan(node)
        if patch is None or node.metadata.uid != uid:
            return node
        patch_type = PatchType.STRATEGIC if subresource else PatchType.MERGE
        try:
            return await client.patch(NODES, name, patch, patch_type, subresource=subresource)
        except Conflict:
            if not tries_left:
                raise
            node = await client.get(NODES, name)
    raise AssertionError("unreachable: the last conflict is raised")


def taints_patch(node: Node, taints: Iterable[Taint]) -> JSONValue:
    values = [to_json(taint) for taint in taints]
    return {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": values or None}}


async def guarded(node: Node, work: Awaitable[None]) -> None:
    """Await the work on one node. A failure is logged, and must not stop the check of the others."""
    try:
        await work
    except NotFound:
        return
    except (ApiError, ServerUnreachable) as error:
        log.warning("could not update node %s: %s", node.metadata.name, error)
    except Exception:
        log.exception("could not check node %s", node.metadata.name)
