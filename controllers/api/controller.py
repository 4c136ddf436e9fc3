"""Controller: base class of an author's controllers, its options, and the results of a reconcile.

Source: controller-runtime pkg/reconcile and pkg/controller.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, TypeVar

import msgspec

from kubeloop.controllers.api.cache import Cache
from kubeloop.controllers.api.client import Client
from kubeloop.controllers.api.conditions import ConditionStatus, set_status_condition
from kubeloop.controllers.api.objects import ApiObject, Request, metadata_of, set_controller_reference, status_of
from kubeloop.controllers.api.patches import Patch, pinned_merge_patch
from kubeloop.controllers.api.permissions import AccessRule
from kubeloop.controllers.api.recorder import EventRecorder
from kubeloop.controllers.api.watches import Owns, Watch
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import NotFound
from kubeloop.kube.metric_families import MetricFamilies
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

T = TypeVar("T", bound=ApiObject)


class RequeueResult(Enum):
    """Result of a reconcile that waits for something: run it again after the delay of a failure, without an error."""

    BACKOFF = "backoff"


BACKOFF = RequeueResult.BACKOFF

Result = float | timedelta | RequeueResult | None
"""Result of a reconcile: None, or after how long (seconds, timedelta) it runs again if no event comes first. BACKOFF:
after the delay of the rate limiter, which grows each time."""


class TerminalError(Exception):
    """No retry can succeed: the reconcile is logged as failed, and runs again after the next event only.

    Source: reconcile.TerminalError.
    """


class ReconcileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a controller. The defaults are those of controller-runtime and client-go.

    max_concurrent_reconciles: at most one for each request, however many there are.
    backoff_base_seconds, backoff_max_seconds: delay after the first failure of a request, doubled by each further one.
    requeues_per_second, requeue_burst: limit of retries of all requests together.
    resync_seconds: interval at which all objects are reconciled without an event, at most a tenth longer; 0 for never.
    namespaces: those in which objects are watched; none for all.
    graceful_shutdown_seconds: time for reconciles in progress to end when the controller stops, before a cancellation.
    """

    max_concurrent_reconciles: int = 1
    backoff_base_seconds: float = 0.005
    backoff_max_seconds: float = 1000.0
    requeues_per_second: float = 10.0
    requeue_burst: int = 100
    resync_seconds: float = 36_000.0
    namespaces: tuple[str, ...] = ()
    graceful_shutdown_seconds: float = 30.0


@dataclass(frozen=True)
class WatchedCluster:
    """Another cluster whose resources the controller watches, with its cache and client. Source: cluster.Cluster."""

    cache: Cache
    client: Client


@dataclass(frozen=True)
class ControllerHandle:
    """The caches and clients of one controller; kubeloop creates it for each controller of a process.

    cache: reads of what the controller watches. client: live reads, and writes. recorder: events. clock: wall time.
    log: its records carry controller, object and trace.
    metrics: creates metrics of the process, or returns those of the same name.
    """

    cache: Cache
    client: Client
    recorder: EventRecorder
    clock: Clock
    log: logging.LoggerAdapter[logging.Logger]
    metrics: MetricFamilies
    add_watch: Callable[[Watch[Any]], Awaitable[None]]
    cluster: Callable[[str], WatchedCluster]
    connect: Callable[[str | None, str | None], Awaitable[Client]]


class Controller:
    """A controller: what it watches, and its reconcile.

    name: of the controller in metrics, logs, traces and events. watches: one `For`, and any number of `Owns` and
    `Watches`. permissions: what it does beyond reading its watches, writing `For` and its status, and writing `Owns`.
    queue_name, field_manager: its names in metrics of the work queue and in managedFields, by default `name`.

    An instance belongs to one run of a process: `self` holds only what can be computed again.
    """

    name: ClassVar[str]
    watches: ClassVar[Sequence[Watch[Any]]]
    permissions: ClassVar[Sequence[AccessRule]] = ()
    options: ClassVar[ReconcileOptions] = ReconcileOptions()
    queue_name: ClassVar[str] = ""
    field_manager: ClassVar[str] = ""

    def __init__(self, handle: ControllerHandle) -> None:
        self.handle = handle
        self.cache = handle.cache
        self.client = handle.client
        self.recorder = handle.recorder
        self.clock = handle.clock
        self.log = handle.log

    async def reconcile(self, request: Request) -> Result:
        """Bring what belongs to the object of `request` to the desired state.

        Level-triggered: reads the present state, and not the event, which may be lost, repeated or late; the object may
        be gone. There is at most one reconcile per request at a time. It may be cancelled at any `await`, or the
        process may end; it then runs again. An exception means: run again after a backoff; TerminalError: not before
        the next event.
        """
        raise NotImplementedError

    # --- helpers -----------------------------------------------------------------------------------------------------

    async def watch(self, watch: Watch[Any]) -> None:
        """Watch a further resource from now on, and wait until the cache has its objects. Does nothing if there is an
        equal watch; its functions must be the same ones in each call. Raises NoKindMatchError if the API server does
        not serve it."""
        await self.handle.add_watch(watch)

    def cluster(self, name: str) -> WatchedCluster:
        """Return another cluster, by the name in the watches of its resources. Raises NotWatched if no watch has it."""
        return self.handle.cluster(name)

    async def connect(self, *, kubeconfig: str | None = None, context: str | None = None) -> Client:
        """Return a client of another cluster, by default that of the kubeconfig's current context.

        One connection per kubeconfig and context, which ends with the process. Raises UserError.
        """
        return await self.handle.connect(kubeconfig, context)

    async def apply(self, owner: ApiObject, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a manifest as an object that `owner` controls; see Client.apply. Without a namespace, it is in that of
        the owner."""
        return await self.client.apply(self._owned(owner, manifest))

    async def create_or_patch(self, owner: ApiObject, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object that `owner` controls, or merge the manifest into it; see Client.create_or_patch."""
        return await self.client.create_or_patch(self._owned(owner, manifest))

    async def apply_set(self, owner: ApiObject, manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Apply the manifests as objects that `owner` controls, and delete the other objects that it controls.

        Deletes objects of the resources of `Owns` only, after all manifests were applied.
        """
        applied, names = [], set()
        for manifest in manifests:
            resource = await self.client.resource_of(manifest)
            result = await self.apply(owner, manifest)
            names.add((resource.group_resource, Request.of(result)))
            applied.append(result)
        for watch in self.watches:
            if isinstance(watch, Owns):
                for obj in self.cache.owned_by(watch.resource, owner):
                    is_wanted = (watch.resource.group_resource, Request.of(obj)) in names
                    if not is_wanted and metadata_of(obj).deletion_timestamp is None:
                        await self.client.delete(obj, propagation_policy="Background")
        return applied

    async def finalize(self, obj: T, finalizer: str, clean_up: Callable[[], Awaitable[object]]) -> T | None:
        """Return None if `obj` is being deleted, after `clean_up` succeeded and the finalizer was removed.

        Otherwise return the object, which has the finalizer then. Call it before the first effect outside of the
        cluster:

            site = await self.finalize(site, "example.com/dns", lambda: self.dns.remove(name))
            if site is None:
                return None

        clean_up: runs at least once, and possibly again after a failure.
        """
        finalizers = metadata_of(obj).finalizers
        if metadata_of(obj).deletion_timestamp is None:
            return obj if finalizer in finalizers else await self._set_finalizers(obj, [*finalizers, finalizer])
        if finalizer in finalizers:
            await clean_up()
            with suppress(NotFound):
                await self._set_finalizers(obj, [other for other in finalizers if other != finalizer])
        return None

    async def set_condition(
        self, obj: T, type_: str, status: ConditionStatus | bool, reason: str, message: str = "", **fields: Any
    ) -> T:
        """Set a condition of the status, and further fields of it, if they differ. Raises Conflict if `obj` has changed
        meanwhile.

        observedGeneration is the generation of `obj`; lastTransitionTime changes with the status.
        """
        present = status_of(obj)
        conditions = set_status_condition(
            (present.get("conditions") if isinstance(present, Mapping) else getattr(present, "conditions", None)) or (),
            type_,
            status,
            reason,
            message,
            now=self.clock.now(),
            observed_generation=metadata_of(obj).generation,
        )
        return await self.client.patch_status(obj, {"conditions": conditions, **fields})

    async def _set_finalizers(self, obj: T, finalizers: Sequence[str]) -> T:
        patch = Patch(PatchType.MERGE, lambda obj: pinned_merge_patch(obj, metadata={"finalizers": [*finalizers]}))
        return await self.client.patch(obj, patch)

    def _owned(self, owner: ApiObject, manifest: Mapping[str, Any]) -> dict[str, Any]:
        namespace = metadata_of(owner).namespace
        metadata = manifest.get("metadata") or {}
        if namespace and "namespace" not in metadata:
            manifest = {**manifest, "metadata": {**metadata, "namespace": namespace}}
        return set_controller_reference(owner, manifest)


ControllerFactory = Callable[[ControllerHandle], Controller]
"""Creates a controller for one run of a process: the class itself, or functools.partial with its further arguments."""


class ControllerLog(logging.LoggerAdapter[logging.Logger]):
    """Adds controller and object of the reconcile in progress to the fields of a record."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        reconcile = current_span.get()
        fields: dict[str, Any] = dict(self.extra or {})
        if isinstance(reconcile, Reconcile):
            fields["object"] = reconcile.key
        return msg, {**kwargs, "extra": {**fields, **(kwargs.get("extra") or {})}}
