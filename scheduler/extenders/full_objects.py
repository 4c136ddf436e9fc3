"""Complete Pod and Node objects for extenders: the scheduler's own Structs have only the fields that it reads.

Objects are fetched when an extender needs them, and cached while their resourceVersion is the one in the informer: a
scheduler without extenders fetches nothing. As in kube-scheduler, whose informers drop them, managedFields are left
out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.objects.api_types import JSONValue, Node, Pod
from kubeloop.kube.objects.resources import NODES, PODS, Resource

_MAX_SINGLE_REQUESTS = 32  # more nodes than this are listed, which is cheaper
_MAX_PODS = 64
_PLAIN_NODES: Resource[Any] = msgspec.structs.replace(cast("Resource[Any]", NODES), type=dict)


class FullObjects:
    """Complete objects in JSON, encoded once. Methods raise ApiError or ServerUnreachable if a request fails."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._nodes: dict[str, tuple[str, msgspec.Raw]] = {}  # name -> (resourceVersion, JSON)
        self._pods: dict[str, tuple[str, msgspec.Raw]] = {}  # by UID

    async def pod(self, pod: Pod) -> msgspec.Raw:
        cached = self._pods.pop(pod.metadata.uid, None)
        if cached is None or cached[0] != pod.metadata.resource_version:
            obj = await self._client.get_raw(PODS, pod.metadata.name, pod.metadata.namespace)
            cached = pod.metadata.resource_version, _encoded(obj)
        while len(self._pods) >= _MAX_PODS:
            del self._pods[next(iter(self._pods))]
        self._pods[pod.metadata.uid] = cached
        return cached[1]

    async def pods(self, pods: Sequence[Pod]) -> list[msgspec.Raw]:
        return [await self.pod(pod) for pod in pods]

    async def nodes(self, nodes: Sequence[Node]) -> list[msgspec.Raw]:
        """Return the nodes in the order of `nodes`."""
        missing = [node for node in nodes if self._cached(node) is None]
        if len(missing) > _MAX_SINGLE_REQUESTS:
            await self._list(nodes)
            missing = [node for node in nodes if self._cached(node) is None]  # those deleted in the meantime
        try:
            async with asyncio.TaskGroup() as fetching:
                for node in missing:
                    fetching.create_task(self._fetch(node))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [self._nodes[node.metadata.name][1] for node in nodes]

    def _cached(self, node: Node) -> msgspec.Raw | None:
        cached = self._nodes.get(node.metadata.name)
        return cached[1] if cached is not None and cached[0] == node.metadata.resource_version else None

    async def _fetch(self, node: Node) -> None:
        encoded = _encoded(await self._client.get_raw(NODES, node.metadata.name))
        self._nodes[node.metadata.name] = node.metadata.resource_version, encoded

    async def _list(self, nodes: Sequence[Node]) -> None:
        version_of = {node.metadata.name: node.metadata.resource_version for node in nodes}
        by_name = {node["metadata"]["name"]: node for node in (await self._client.list_all(_PLAIN_NODES)).items}
        self._nodes = {
            name: (version_of.get(name, node["metadata"].get("resourceVersion", "")), _encoded(node))
            for name, node in by_name.items()
        }


def _encoded(obj: JSONValue) -> msgspec.Raw:
    """Return an object as Go encodes it from an informer: without apiVersion, kind and managedFields."""
    obj.pop("apiVersion", None)
    obj.pop("kind", None)
    obj["metadata"].pop("managedFields", None)
    return msgspec.Raw(msgspec.json.encode(obj))
