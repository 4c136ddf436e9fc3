"""Top owners of pods: the Deployment of a ReplicaSet, the CronJob of a Job, the custom resource of a StatefulSet.

Each owner on the way is read once, as metadata from the API server's watch cache, at a limited rate. A watch of all
ReplicaSets and Jobs would read far more, since their status changes with each pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.rate_limit import TokenBucket
from kubeloop.kube.errors import ApiError, Forbidden, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import OwnerReference, Struct
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.observed_types import ObservedMeta, ObservedOwner, TraceAnnotations
from kubeloop.tracing.observation.pod_observer import TopOwner

log = logging.getLogger(__name__)

MAX_CACHED = 50_000  # owners, some 500 bytes each
MAX_PENDING = 10_000  # owners waiting to be read; further ones are not read before they are looked up again
MAX_DEPTH = 8  # of a chain, in case that it is a circle
READS_PER_SECOND, READ_BURST = 50.0, 200
WORKERS = 4
FORBIDDEN_SECONDS = 300.0  # until a forbidden kind is tried again
_METADATA = {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}


class _OwnerMeta(ObservedMeta):
    annotations: TraceAnnotations = TraceAnnotations()
    owner_references: tuple[ObservedOwner, ...] = ()


class _OwnerObject(Struct):
    metadata: _OwnerMeta = _OwnerMeta()


class _Owner(NamedTuple):
    """An owner, and the namespace of its dependents: its own, unless it is cluster-scoped."""

    namespace: str
    reference: ObservedOwner | OwnerReference


class _ServedKind(Struct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ServedKinds(Struct):
    resources: tuple[_ServedKind, ...] = ()


class TopOwners:
    """Finds top owners, in the background.

    _controllers: the controller of each owner that was read, by UID; None: it has none, or may not be read.
    _traceparents: annotation of those that have it, by UID.
    _pending: UIDs of owners that wait to be read or are being read.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._controllers: dict[str, ObservedOwner | None] = {}
        self._traceparents: dict[str, str] = {}
        self._pending: set[str] = set()
        self._queue: deque[_Owner] = deque()
        self._wake = asyncio.Event()
        self._bucket = TokenBucket(READS_PER_SECOND, READ_BURST)
        self._kinds: dict[str, dict[str, _ServedKind]] = {}  # by apiVersion, then by kind
        self._forbidden_until: dict[tuple[str, str], float] = {}  # loop time, by apiVersion and kind
        self._reported: set[tuple[str, str]] = set()

    def find(self, namespace: str, controller: ObservedOwner | OwnerReference) -> TopOwner | None:
        """Return the top owner of a pod with this controller; None if it is not known yet: it is then looked up."""
        owner = _Owner(namespace, controller)
        depth = 0
        while depth < MAX_DEPTH and owner.reference.kind != "Node":  # the owner of a static pod
            uid = owner.reference.uid
            if uid not in self._controllers:
                self._read_later(owner)
                return None
            next_reference = self._controllers[uid]
            if next_reference is None:
                break
            owner, depth = _Owner(namespace, next_reference), depth + 1
        traceparent = self._traceparents.get(controller.uid) or self._traceparents.get(owner.reference.uid, "")
        return TopOwner(owner.reference.kind, owner.reference.name, traceparent)

    async def run(self) -> None:
        """Read owners until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(self._work(), name="top-owners")

    def _read_later(self, owner: _Owner) -> None:
        if owner.reference.uid not in self._pending and len(self._pending) < MAX_PENDING:
            self._pending.add(owner.reference.uid)
            self._queue.append(owner)
            self._wake.set()

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            owner = self._queue.popleft()
            try:
                controller = await self._controller_of(owner)
            except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
                self._report(owner.reference, error)
                continue
            finally:
                self._pending.remove(owner.reference.uid)
            self._controllers[owner.reference.uid] = controller
            if len(self._controllers) > MAX_CACHED:
                oldest = next(iter(self._controllers))
                del self._controllers[oldest]
                self._traceparents.pop(oldest, None)
            if controller is not None:
                self.find(owner.namespace, owner.reference)  # reads the next one, unless it is known

    def _report(self, owner: ObservedOwner | OwnerReference, error: Exception) -> None:
        """Log that an owner cannot be read: once per kind."""
        kind = owner.api_version, owner.kind
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("cannot read owners of a kind", extra={"kind": owner.kind, "error": str(error)})

    async def _controller_of(self, owner: _Owner) -> ObservedOwner | None:
        """Return the controller of an owner; None if it has none, does not exist, or may not be read.

        Raises what `ApiClient.raw` raises.
        """
        reference = owner.reference
        kind = reference.api_version, reference.kind
        if self._forbidden_until.get(kind, 0.0) > asyncio.get_running_loop().time():
            return None
        try:
            path = await self._path(owner)
            if not path:
                return None
            await self._bucket.take()
            response = await self._client.raw("GET", f"{path}?resourceVersion=0", headers=_METADATA)
        except NotFound:
            return None
        except Forbidden as error:
            self._forbidden_until[kind] = asyncio.get_running_loop().time() + FORBIDDEN_SECONDS
            self._report(reference, error)
            return None
        metadata = msgspec.json.decode(response.body, type=_OwnerObject).metadata
        if metadata.uid != reference.uid:  # another object of the same name
            return None
        if metadata.annotations.traceparent:
            self._traceparents[reference.uid] = metadata.annotations.traceparent
        return controller_of(metadata)

    async def _path(self, owner: _Owner) -> str:
        """Return the URL path of an owner; "" if its kind is not served."""
        reference = owner.reference
        root = f"/apis/{reference.api_version}" if "/" in reference.api_version else f"/api/{reference.api_version}"
        kinds = self._kinds.get(reference.api_version)
        if kinds is None or reference.kind not in kinds:  # a new one may be served since
            await self._bucket.take()
            response = await self._client.raw("GET", root)
            served = msgspec.json.decode(response.body, type=_ServedKinds).resources
            kinds = {kind.kind: kind for kind in served if "/" not in kind.name}
            self._kinds[reference.api_version] = kinds
        kind = kinds.get(reference.kind)
        if kind is None:
            return ""
        namespace = f"/namespaces/{quote(owner.namespace)}" if kind.namespaced else ""
        return f"{root}{namespace}/{kind.name}/{quote(reference.name)}"
