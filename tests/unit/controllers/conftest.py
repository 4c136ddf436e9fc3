"""A small API server for controllers that treat all kinds alike: discovery, lists, watches, deletion, patches.

It knows owners and finalizers, and nothing of what objects mean.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request, Response, json_response
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, Resource
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock

JSON = dict[str, Any]
WIDGETS: Resource[JSON] = Resource("example.com", "v1", "Widget", "widgets", True, dict)
SERVED: tuple[Resource[Any], ...] = (PODS, CONFIG_MAPS, NAMESPACES, NODES, DEPLOYMENTS, REPLICA_SETS, WIDGETS)


class ObjectApi:
    """The server. `requests` are the writes it got: (method, path, body). `refuse` may answer in its place."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = Store(seconds=asyncio.get_running_loop().time)
        self.requests: list[tuple[str, str, Any]] = []
        self.refuse: Callable[[str, str], errors.StatusError | None] = lambda method, path: None
        self.client = Client(MemoryTransport(self.handle), clock=self.clock, rng=random.Random(1))
        self.informers = InformerFactory(self.client, clock=self.clock, rng=random.Random(2))
        self._uids = 0

    def add(self, resource: Resource[Any], name: str, *owners: JSON, namespace: str = "ns", **metadata: Any) -> JSON:
        """Create an object; `owners` are objects, or references as they stand."""
        self._uids += 1
        references = [each if "uid" in each else owner_reference(each) for each in owners]
        meta: JSON = {"name": name, "uid": f"uid-{self._uids}", **metadata}
        if resource.namespaced:
            meta["namespace"] = namespace
        if references:
            meta["ownerReferences"] = references
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return self.store.create(resource, obj)

    def names(self, resource: Resource[Any]) -> list[str]:
        return [each["metadata"]["name"] for each in self.store.list(resource)]

    def delete(self, resource: Resource[Any], name: str, policy: str = "Background", namespace: str = "ns") -> None:
        obj = self.store.get(resource, namespace, name)
        assert obj is not None
        self._delete(resource, obj, {"propagationPolicy": policy})

    def written(self, method: str) -> list[str]:
        return [path for each, path, _ in self.requests if each == method]

    # --- answering

    async def handle(self, request: Request) -> Response:
        await asyncio.sleep(0)
        try:
            refusal = self.refuse(request.method, request.path)
            if refusal is not None:
                raise refusal
            return self._answer(request)
        except errors.StatusError as error:
            return json_response(error.code, error.status)

    def _answer(self, request: Request) -> Response:
        if request.path in ("/api", "/apis"):
            return json_response(200, _discovery(core=request.path == "/api"))
        resource, namespace, name = _parse(request.path)
        body = json.loads(request.body) if request.body else {}
        if request.method != "GET":
            self.requests.append((request.method, request.path, body))
        if not name:
            if request.method == "GET":
                return (
                    self._watch(request, resource, namespace)
                    if request.flag("watch")
                    else self._list(resource, namespace)
                )
            if resource is WIDGETS:
                raise errors.method_not_allowed()
            for obj in self.store.list(resource, namespace):
                self._delete(resource, obj, body)
            return json_response(200, {"kind": "Status", "status": "Success"})
        obj = self.store.get(resource, namespace, name)
        if obj is None:
            raise errors.not_found(resource, name)
        if request.method == "DELETE":
            return json_response(200, self._delete(resource, obj, body))
        if request.method == "PATCH":
            if "strategic" in request.headers["content-type"]:
                if resource is WIDGETS:
                    raise errors.unsupported_patch()
                body = _strategic(obj, body)
            return json_response(200, self._update(resource, obj, _merged(obj, body)))
        if request.method == "PUT":
            return json_response(200, self._update(resource, obj, body))
        return json_response(200, obj)

    def _list(self, resource: Resource[Any], namespace: str) -> Response:
        metadata = {"resourceVersion": str(self.store.revision)}
        return json_response(200, {"kind": "List", "metadata": metadata, "items": self.store.list(resource, namespace)})

    def _watch(self, request: Request, resource: Resource[Any], namespace: str) -> Response:
        table, queue = self.store.table(resource), asyncio.Queue[Change]()
        end = table.subscribe(queue.put_nowait)
        initial = self.store.list(resource, namespace) if request.flag("sendInitialEvents") else None
        missed = [] if initial is not None else table.changes_since(int(request.option("resourceVersion") or 0))
        revision = str(self.store.revision)

        async def chunks() -> AsyncIterator[bytes]:
            try:
                if initial is not None:
                    for obj in initial:
                        yield msgspec.json.encode({"type": "ADDED", "object": obj}) + b"\n"
                    annotations = {"k8s.io/initial-events-end": "true"}
                    metadata = {"resourceVersion": revision, "annotations": annotations}
                    bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
                    yield msgspec.json.encode({"type": "BOOKMARK", "object": bookmark}) + b"\n"
                for change in missed:
                    yield change.frame()
                while True:
                    yield (await queue.get()).frame()
            finally:
                end()

        return Response(200, chunks())

    def _delete(self, resource: Resource[Any], obj: JSON, options: JSON) -> JSON:
        metadata = obj["metadata"]
        for field, expected in (options.get("preconditions") or {}).items():
            if metadata[field] != expected:
                raise errors.conflict(resource, metadata["name"])
        finalizers = [each for each in metadata.get("finalizers", []) if each not in ("orphan", "foregroundDeletion")]
        policy = options.get("propagationPolicy")
        finalizers += {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(policy or "", [])
        finalizing = finalizers or (obj.get("spec") or {}).get("finalizers")
        if not finalizing:
            return self.store.delete(resource, metadata.get("namespace", ""), metadata["name"])
        stamp = metadata.get("deletionTimestamp") or rfc3339(self.clock.now())
        return self.store.update(
            resource, {**obj, "metadata": {**metadata, "deletionTimestamp": stamp, "finalizers": finalizers}}
        )

    def _update(self, resource: Resource[Any], old: JSON, new: JSON) -> JSON:
        if new["metadata"].get("uid") != old["metadata"]["uid"]:
            raise errors.conflict(resource, old["metadata"]["name"])
        stored = self.store.update(resource, new)
        metadata = stored["metadata"]
        gone = not metadata.get("finalizers") and not (stored.get("spec") or {}).get("finalizers")
        if metadata.get("deletionTimestamp") and gone:
            return self.store.delete(resource, metadata.get("namespace", ""), metadata["name"])
        return stored


def owner_reference(obj: JSON, *, block: bool = True, **fields: str) -> JSON:
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }
    return {**reference, **fields}


def _discovery(*, core: bool) -> JSON:
    groups: dict[str, list[JSON]] = {}
    for resource in SERVED:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        entry = {
            "resource": resource.plural,
            "responseKind": {"kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "verbs": verbs if resource is WIDGETS else [*verbs, "deletecollection"],
        }
        if core == (resource.group == ""):
            groups.setdefault(resource.group, []).append(entry)
    items = [
        {"metadata": {"name": group}, "versions": [{"version": "v1", "resources": found}]}
        for group, found in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "items": items}


def _parse(path: str) -> tuple[Resource[Any], str, str]:
    """Resource, namespace and name; subresources are written like the object itself."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    for resource in SERVED:
        if (resource.group, resource.plural) == (group, rest[0]):
            return resource, namespace, rest[1] if len(rest) > 1 else ""
    raise errors.path_not_found()


def _merged(obj: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _strategic(obj: JSON, patch: JSON) -> JSON:
    """`patch` with its list of owner references merged by uid: a merge patch."""
    references = {each["uid"]: each for each in obj["metadata"].get("ownerReferences", [])}
    for change in patch["metadata"].get("ownerReferences", []):
        if change.get("$patch") == "delete":
            references.pop(change["uid"], None)
        else:
            references[change["uid"]] = {**references.get(change["uid"], {}), **change}
    return {**patch, "metadata": {**patch["metadata"], "ownerReferences": list(references.values())}}


class RecordedEvents:
    """An EventSink that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        self.told.append((type_, reason, message))


@pytest.fixture
async def object_api() -> ObjectApi:
    return ObjectApi()


@pytest.fixture
def recorded_events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
async def running() -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Start components; they are stopped after the test, and must not have failed."""
    tasks: list[asyncio.Task[None]] = []

    async def start(*components: Any) -> None:
        tasks.extend(asyncio.ensure_future(each.run()) for each in components)
        await asyncio.sleep(1)

    yield start
    for task in reversed(tasks):
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in results), results
