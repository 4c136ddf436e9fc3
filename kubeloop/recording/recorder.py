"""ClusterRecorder of a cluster: lists and watches what is recorded, and writes each state as it arrives. Read-only.

    reflector --> ObjectStream --> ResourceRecorder --> RecordingWriter       one of the first three per resource

Nothing is stored but the hashes of the writer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypedDict

import msgspec

from kubeloop.informers.reflector import Reflector
from kubeloop.kube.client.api_client import ApiClient, ListPage
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, Forbidden, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.user_error import UserError
from kubeloop.process.api_server_check import refused_error, unreachable_error
from kubeloop.process.observation.cluster_access import may_watch
from kubeloop.process.observation.object_stream import ObjectReceiver, ObjectStream
from kubeloop.process.signals import first_of
from kubeloop.recording.changes import ClusterState, Finding, key_of
from kubeloop.recording.memory import MemoryLimit
from kubeloop.recording.resources import RECORDED, REQUIRED
from kubeloop.recording.writer import RecordingWriter

FLUSH_SECONDS: Final = 1.0
_CONCURRENT: Final = 4  # resources that are read, or whose permissions are checked, at the same time


class _Metadata(TypedDict, total=False):
    """ObjectMeta without managedFields, which are not decoded."""

    name: str
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


_decode: Final[Callable[[msgspec.Raw], Any]] = msgspec.json.Decoder().decode
_decode_metadata: Final[Callable[[msgspec.Raw], Any]] = msgspec.json.Decoder(_Metadata).decode


class ResourceRecorder(ObjectReceiver[JSON]):
    """Writes the states of the objects of one resource.

    listed_once: set when the first list is complete. newest_version: returns the last resourceVersion received.
    """

    def __init__(self, writer: RecordingWriter, resource: Resource[Any]) -> None:
        self._writer = writer
        self._name = resource.group_resource
        self.listed_once = asyncio.Event()
        self.newest_version: Callable[[], str] = lambda: ""
        self.count = 0

    def observed(self, obj: JSON, arrival_ns: int, late_since_ns: int, *, initial: bool) -> None:
        self.count += initial
        self._writer.put(self._name, obj)

    def deleted(self, obj: JSON, arrival_ns: int, late_since_ns: int) -> None:
        self._writer.delete(self._name, obj)

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        self._writer.gap(self._name, since_ns, self.newest_version())

    def list_started(self) -> None:
        self._writer.start_list(self._name)

    def list_lost(self, uid: str) -> None:
        self._writer.remove_listed(self._name, uid)

    def listed(self, arrival_ns: int, resource_version: str) -> None:
        self._writer.end_list(self._name, resource_version)
        self.listed_once.set()


class ClusterRecorder:
    """Records one cluster. resources: those that recorded_resources() returns. namespace: "" for all."""

    def __init__(
        self,
        client: ApiClient,
        writer: RecordingWriter,
        resources: list[Resource[Any]],
        *,
        namespace: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._recorders = {resource: ResourceRecorder(writer, resource) for resource in resources}
        self.listed_once = asyncio.Event()

    def counts(self) -> Counter[str]:
        """Return the number of objects of the first lists, by resource."""
        return Counter({resource.group_resource: recorder.count for resource, recorder in self._recorders.items()})

    async def run(self) -> None:
        """Record until cancelled. The recording has no end then; see RecordingWriter.close()."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush(), name="flush")
            for resource, recorder in self._recorders.items():
                stream = ObjectStream(recorder, self._clock, assumes_gaps=True)
                rng = random.Random(self._rng.getrandbits(64))
                reflector = Reflector(
                    self._client, _plain(resource), stream, rng=rng, namespace=self._namespace_of(resource)
                )
                recorder.newest_version = partial(getattr, reflector, "resource_version")
                group.create_task(reflector.run(), name=f"record/{resource.plural}")
            for recorder in self._recorders.values():
                await recorder.listed_once.wait()
            self.listed_once.set()

    async def snapshot(self) -> None:
        """Record one list of each resource. Raises ApiError and ServerUnreachable."""
        for resource, recorder in self._recorders.items():
            recorder.list_started()
            version = ""
            async for page in self._client.pages(_plain(resource), self._namespace_of(resource)):
                if page.restarted:
                    recorder.list_started()
                version = page.metadata.resource_version
                for obj in page.items:
                    body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
                    recorder.observed(body, 0, 0, initial=True)
            recorder.listed(0, version)
            self._writer.flush()

    def _namespace_of(self, resource: Resource[Any]) -> str:
        return self._namespace if resource.namespaced else ""

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._writer.flush()


async def recorded_resources(
    client: ApiClient, namespace: str, *, watch: bool
) -> tuple[list[Resource[Any]], dict[str, str]]:
    """Return the resources that the user may list (and watch), and why others that the server serves are left out.

    Raises UserError if the server does not respond, or nodes or pods may not be listed.
    """
    slots = asyncio.Semaphore(_CONCURRENT)
    denied: dict[str, str] = {}

    async def is_recorded(resource: Resource[Any]) -> bool:
        scope = namespace if resource.namespaced else ""
        try:
            async with slots:
                await client.list(_plain(resource), scope, limit=1)
                if not watch or await may_watch(client, _plain(resource), scope):
                    return True
            denied[resource.group_resource] = "the user may list them, but not watch them"
        except Forbidden as error:
            denied[resource.group_resource] = error.message
        except NotFound:
            pass  # this version of Kubernetes does not serve it
        return False

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {resource: group.create_task(is_recorded(resource)) for resource in RECORDED}
    except* (ApiError, ServerUnreachable) as failed:
        error, server = failed.exceptions[0], client.transport.server
        problem = refused_error(server, error) if isinstance(error, ApiError) else unreachable_error(server, error)
        raise problem from None
    for resource in REQUIRED:
        if not tasks[resource].result():
            reason = denied.get(resource.group_resource, "the server does not serve them")
            raise UserError(
                f"{resource.plural} cannot be recorded: {reason}",
                hint="bind the ClusterRole of deploy/record to the user",
            )
    return [resource for resource, task in tasks.items() if task.result()], denied


async def read_cluster(
    client: ApiClient, clock: Clock, limit: MemoryLimit | None = None
) -> tuple[ClusterState, list[Finding]]:
    """Return the present objects of a cluster, read-only, and what may not be listed.

    Raises UserError if the server does not respond, nodes or pods may not be listed, or the cluster exceeds the limit.
    """
    resources, denied = await recorded_resources(client, "", watch=False)
    server, state = client.transport.server, ClusterState(clock.now())
    limit = limit or MemoryLimit(server)
    slots = asyncio.Semaphore(_CONCURRENT)

    async def read(resource: Resource[Any], group: asyncio.TaskGroup) -> None:
        async with slots:
            state.objects[resource.group_resource] = await _read_all(client, resource, limit, group)

    try:
        async with asyncio.TaskGroup() as group:
            for resource in resources:
                group.create_task(read(resource, group), name=f"read/{resource.plural}")
    except ExceptionGroup as failed:
        raise first_of(failed, UserError) or failed from None
    findings = [
        Finding(server, f"{name} may not be listed: {reason}", f"the result is that of a cluster without {name}")
        for name, reason in sorted(denied.items())
    ]
    return state, findings


async def _read_all(
    client: ApiClient, resource: Resource[Any], limit: MemoryLimit, group: asyncio.TaskGroup
) -> dict[str, JSON]:
    """Return the objects of a resource by key, without managedFields, which are half of what the server sends.

    group: of the tasks that wait for the next page while one is decoded.
    """
    objects: dict[str, JSON] = {}
    pages = client.pages(msgspec.structs.replace(resource, type=dict[str, msgspec.Raw]))

    async def next_page() -> ListPage[dict[str, msgspec.Raw]] | None:
        return await anext(pages, None)

    following = group.create_task(next_page())
    while (page := await following) is not None:
        following = group.create_task(next_page())
        await asyncio.sleep(0)  # send the request
        if page.restarted:
            objects.clear()
        for fields in page.items:
            limit.add(sum(map(len, fields.values())))
            obj = {"apiVersion": resource.api_version, "kind": resource.kind}
            obj |= {name: (_decode_metadata if name == "metadata" else _decode)(raw) for name, raw in fields.items()}
            objects[key_of(obj)] = obj
    return objects


def _plain(resource: Resource[Any]) -> Resource[dict[str, Any]]:
    """Return the resource with objects in plain JSON."""
    return msgspec.structs.replace(resource, type=dict)
