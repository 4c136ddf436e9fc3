"""Pods and nodes with all their fields, for extenders: the scheduler's own Structs hold only what it reads itself.

They are fetched when an extender is to be sent them, and kept for as long as the object stays at the resourceVersion
the scheduler knows: a scheduler without extenders fetches and keeps nothing. As in kube-scheduler, whose informers drop
them, managedFields are left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.objects.api_types import JSONValue, Node, Pod
from kubeloop.kube.objects.resources import NODES, PODS, Resource

_FETCHED_ONE_BY_ONE = 32  # more than so many nodes are cheaper to list
_MAX_PODS = 64
_PLAIN_NODES: Resource[Any] = dataclasses.replace(cast("Resource[Any]", NODES), type=dict)


class FullObjects:
    """Encoded once; every method raises ApiError or ServerUnreachable if the API server does not give the object."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: dict[str, tuple[str, msgspec.Raw]] = {}  # name -> (resourceVersion it stands for, JSON)
        self._pods: dict[str, tuple[str, msgspec.Raw]] = {}  # by UID

    async def pod(self, pod: Pod) -> msgspec.Raw:
        kept = self._pods.pop(pod.metadata.uid, None)
        if kept is None or kept[0] != pod.metadata.resource_version:
            found = await self._client.get_raw(PODS, pod.metadata.name, pod.metadata.namespace)
            kept = pod.metadata.resource_version, _encoded(found)
        while len(self._pods) >= _MAX_PODS:
            del self._pods[next(iter(self._pods))]
        self._pods[pod.metadata.uid] = kept
        return kept[1]

    async def pods(self, pods: Sequence[Pod]) -> list[msgspec.Raw]:
        return [await self.pod(each) for each in pods]

    async def nodes(self, nodes: Sequence[Node]) -> list[msgspec.Raw]:
        """In the order of `nodes`."""
        missing = [node for node in nodes if self._kept(node) is None]
        if len(missing) > _FETCHED_ONE_BY_ONE:
            await self._list(nodes)
            missing = [node for node in nodes if self._kept(node) is None]  # those that are gone by now
        try:
            async with asyncio.TaskGroup() as fetching:
                for node in missing:
                    fetching.create_task(self._fetch(node))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [self._nodes[node.metadata.name][1] for node in nodes]

    def _kept(self, node: Node) -> msgspec.Raw | None:
        kept = self._nodes.get(node.metadata.name)
        return kept[1] if kept is not None and kept[0] == node.metadata.resource_version else None

    async def _fetch(self, node: Node) -> None:
        found = _encoded(await self._client.get_raw(NODES, node.metadata.name))
        self._nodes[node.metadata.name] = node.metadata.resource_version, found

    async def _list(self, known: Sequence[Node]) -> None:
        version_of = {node.metadata.name: node.metadata.resource_version for node in known}
        listed = {each["metadata"]["name"]: each for each in (await self._client.list_all(_PLAIN_NODES)).items}
        self._nodes = {
            name: (version_of.get(name, node["metadata"].get("resourceVersion", "")), _encoded(node))
            for name, node in listed.items()
        }


def _encoded(obj: JSONValue) -> msgspec.Raw:
    """As Go writes an object out of an informer: without its type, and without managedFields."""
    obj.pop("apiVersion", None)
    obj.pop("kind", None)
    obj["metadata"].pop("managedFields", None)
    return msgspec.Raw(msgspec.json.encode(obj))
