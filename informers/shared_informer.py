"""Shared informer: one watch of one resource, one store, any number of handlers.

    reflector --replace/apply--> store --on_add/on_update/on_delete--> every handler, in the same order

A handler receives a consistent sequence of calls per key: on_add, any number of on_update, on_delete, and again from
the start. Handlers are called after the store shows the change.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kubeloop.informers.metadata_accessor import MetadataAccessor, is_older
from kubeloop.informers.reflector import Listing, Reflector, yield_to_event_loop
from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import ApiClient, Selectors, UnreadableObject
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.objects.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ResourceEventHandler(Protocol[T_contra]):
    """Event handler. Called on the event loop, in the order of changes, after the store changed. Must not block."""

    def on_add(self, obj: T_contra, initial: bool) -> None:
        """Handle a new object. `initial`: it existed when this handler was added."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Handle a changed object; on a resync `old is new`."""
        ...

    def on_delete(self, obj: T_contra, final_state_unknown: bool) -> None:
        """Handle a deletion. `final_state_unknown`: the delete event was missed, and `obj` is the last cached state."""
        ...


class ResourceEventHandlerFuncs(Generic[T]):
    """ResourceEventHandler made of functions, whose results are ignored; None ignores the event."""

    def __init__(
        self,
        on_add: Callable[[T, bool], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T, bool], object] | None = None,
    ) -> None:
        self._on_add, self._on_update, self._on_delete = on_add, on_update, on_delete

    def on_add(self, obj: T, initial: bool) -> None:
        if self._on_add is not None:
            self._on_add(obj, initial)

    def on_update(self, old: T, new: T) -> None:
        if self._on_update is not None:
            self._on_update(old, new)

    def on_delete(self, obj: T, final_state_unknown: bool) -> None:
        if self._on_delete is not None:
            self._on_delete(obj, final_state_unknown)


class HandlerRegistration(Generic[T]):
    """One handler added to one informer.

    pending adds --all delivered, informer synced--> synced --remove()--> inactive
    """

    def __init__(
        self,
        informer: SharedInformer[T],
        handler: ResourceEventHandler[T],
        resync_seconds: float,
        pending_adds: dict[str, T],
        synced: Callable[[], None] | None,
    ) -> None:
        self.handler = handler
        self.resync_seconds = resync_seconds
        self._report_synced = synced
        self.informer = informer
        self._pending_adds = pending_adds  # for a handler added later: the objects in the store at that time, by key
        self._active = True
        self._synced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_synced(self) -> bool:
        """Return True if the handler has received all objects of the first list."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the handler has received all objects of the first list. Cancellation: safe."""
        await self._synced.wait()

    def remove(self) -> None:
        """Stop all calls to the handler."""
        self._active = False
        self._pending_adds.clear()
        self.informer._registrations = tuple(
            registration for registration in self.informer._registrations if registration is not self
        )
        for task in self._tasks:
            task.cancel()

    # Notifications from the informer.

    def _notify(self, method: str, key: str, *arguments: Any) -> None:
        if self._pending_adds and (pending_obj := self._pending_adds.pop(key, None)) is not None:
            self._notify("on_add", key, pending_obj, True)
        if self._active:
            self._call(getattr(self.handler, method), method, key, *arguments)

    def _call(self, function: Callable[..., object], method: str, key: str, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            resource = self.informer.resource.group_resource
            fields = {"resource": resource, "key": key, "handler": repr(self.handler), "method": method}
            log.exception("handler failed", extra=fields)

    # Tasks, which run in the informer's task group.

    def _start(self, tasks: asyncio.TaskGroup, rng: random.Random) -> None:
        self._tasks = [tasks.create_task(self._deliver_pending_adds(), name=f"initial adds of {self.informer!r}")]
        if self.resync_seconds and not self.informer.loses_no_event:
            self._tasks.append(tasks.create_task(self._resync(rng), name=f"resync of {self.informer!r}"))

    async def _deliver_pending_adds(self) -> None:
        """Deliver pending adds, a slice at a time. An event for a key delivers the pending add of that key first."""
        steps = 0
        while self._pending_adds:
            key = next(iter(self._pending_adds))
            self._notify("on_add", key, self._pending_adds.pop(key), True)
            steps = await yield_to_event_loop(steps)
        await self.informer.wait_synced()
        self._synced.set()
        if self._report_synced is not None:
            self._call(self._report_synced, "synced", "")

    async def _resync(self, rng: random.Random) -> None:
        await self._synced.wait()
        store = self.informer.store
        while True:
            await asyncio.sleep(self.resync_seconds * (1 + rng.random() / 10))
            steps = 0
            for key in [*store.keys()]:
                obj = store.get(key)
                if obj is not None:
                    self._notify("on_update", key, obj, obj)
                steps = await yield_to_event_loop(steps)


class SharedInformer(Generic[T]):
    """Keeps `store` up to date with the API server, and calls handlers for every change.

    run() lists and watches until it is cancelled; it may be called again, and then lists anew.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        *,
        rng: random.Random,
        namespace: str = "",
        selectors: Selectors | None = None,
    ) -> None:
        """`namespace`, `selectors`: the objects to list and watch, by default all."""
        self.resource = resource
        self._client = client
        self.store: Store[T] = Store()
        self._metadata = MetadataAccessor(resource)
        self._rng = rng
        self._reflector = Reflector(client, resource, self, rng=rng, namespace=namespace, selectors=selectors)
        # Replaced as a whole, never modified: a handler may add or remove registrations during an iteration.
        self._registrations: tuple[HandlerRegistration[T], ...] = ()
        self._synced = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None  # not None during run()

    def __repr__(self) -> str:
        return f"SharedInformer({self.resource.group_resource}, {len(self.store)} objects)"

    @property
    def loses_no_event(self) -> bool:
        """Return True if the API server runs in this process: resyncs would change nothing."""
        return self._client.in_process

    @property
    def has_synced(self) -> bool:
        """Return True if the store holds the first list and the handlers added before it have received all of it."""
        return self._synced.is_set()

    @property
    def has_handlers(self) -> bool:
        return bool(self._registrations)

    @property
    def last_resource_version(self) -> str:
        """Return the resourceVersion of the newest list, event or bookmark; "" before the first list."""
        return self._reflector.resource_version

    async def wait_synced(self) -> None:
        """Wait until the store holds the first list. Cancellation: safe."""
        await self._synced.wait()

    def add_handler(
        self,
        handler: ResourceEventHandler[T],
        *,
        resync_seconds: float = 0.0,
        synced: Callable[[], None] | None = None,
    ) -> HandlerRegistration[T]:
        """Call `handler` for all objects in the store, as initial adds, and for every change from then on.

        Never calls it before returning. With `resync_seconds` (and up to a tenth more, to spread handlers out) it also
        receives on_update(obj, obj) for every object at that interval. `synced` is called when the handler has received
        all objects of the first list.
        """
        pending_adds = {key: self.store[key] for key in self.store}
        registration = HandlerRegistration(self, handler, resync_seconds, pending_adds, synced)
        self._registrations = (*self._registrations, registration)
        if self._tasks is not None:
            registration._start(self._tasks, self._rng)
        return registration

    def on_events(
        self,
        *,
        added: Callable[[T], object] | None = None,
        updated: Callable[[T, T], object] | None = None,
        deleted: Callable[[T], object] | None = None,
    ) -> HandlerRegistration[T]:
        """Add a handler made of a function per event, as `add_handler`. None ignores the event."""
        return self.add_handler(
            ResourceEventHandlerFuncs(
                on_add=None if added is None else lambda obj, _initial: added(obj),
                on_update=updated,
                on_delete=None if deleted is None else lambda obj, _unknown: deleted(obj),
            )
        )

    def on_latest(
        self, latest: Callable[[T], object], *, deleted: Callable[[T], object] | None = None
    ) -> HandlerRegistration[T]:
        """Add a handler that calls `latest` with each added and changed object."""
        return self.on_events(added=latest, updated=lambda _old, new: latest(new), deleted=deleted)

    def on_changes(self, changed: Callable[[T | None, T | None], object]) -> HandlerRegistration[T]:
        """Add a function of the object before and after each event: None before it exists, and when deleted."""
        return self.on_events(
            added=lambda obj: changed(None, obj), updated=changed, deleted=lambda obj: changed(obj, None)
        )

    def mark_stopped(self) -> None:
        """Record that run() will not be called again; wait_synced() then returns without a list."""
        self._synced.set()

    async def run(self) -> None:
        """List and watch until cancelled."""
        current_span.set(None)  # an informer that a reconcile started outlives it
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for registration in self._registrations:
                    registration._start(tasks, self._rng)
                tasks.create_task(self._reflector.run(), name=f"reflector/{self.resource.group_resource}")
                await asyncio.Future()
            finally:
                self._tasks = None

    # --- changes from the reflector --------------------------------------------------------------------------------

    def start_list(self, *, same_history: bool) -> Listing[T]:
        return _ListedObjects(self)

    async def replace(self, items: dict[str, T]) -> None:
        """Replace all objects. Deletions first: what replaces a deleted object (name, room on a node) comes after."""
        initial = not self.has_synced
        steps = 0
        for key in [key for key in self.store if key not in items]:
            self._delete(key, self.store[key], final_state_unknown=True)
            steps = await yield_to_event_loop(steps)
        for key, obj in items.items():
            try:
                self._set(key, obj, initial, listed=True)
            except Exception:  # such as of an index function: it must not stop the others
                fields = {"resource": self.resource.group_resource, "key": key}
                log.exception("cannot process an object", extra=fields)
            steps = await yield_to_event_loop(steps)
        self._synced.set()

    def apply(self, event_type: str, obj: T, arrived_ns: int) -> None:
        metadata = self._metadata
        key = metadata.key(obj)
        if event_type != "DELETED":
            self._set(key, obj, False, listed=False)
            return
        old = self.store.get(key)
        if old is None:
            return
        if metadata.uid(old) == metadata.uid(obj):
            self._delete(key, obj, final_state_unknown=False)
        elif is_older(metadata.resource_version(old), metadata.resource_version(obj)):
            self._delete(key, old, final_state_unknown=True)  # deletion of a newer object that was never in the store

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        old = self.store.get(obj.key)
        if old is not None and (event_type == "DELETED" or self._metadata.uid(old) != obj.uid):
            self._delete(obj.key, old, final_state_unknown=True)

    def connected(self) -> None:
        """Nothing to do: objects have no time of arrival."""

    def disconnected(self, received_until_ns: int) -> None:
        """The store keeps the last known objects."""

    def unchanged(self, until_ns: int) -> None:
        """Nothing to do: objects have no time of arrival."""

    def _set(self, key: str, obj: T, initial: bool, *, listed: bool) -> None:
        """Store the state of an object, unless the stored state is the same or newer.

        States from a list are stored even if they are older (a server restored from a backup). Older states from events
        are ignored, since servers may send an event twice.
        """
        old = self.store.get(key)
        if old is None:
            self.store.put(key, obj)
            for registration in self._registrations:
                registration._notify("on_add", key, obj, initial)
            return
        metadata = self._metadata
        old_version, version = metadata.resource_version(old), metadata.resource_version(obj)
        if not listed and is_older(version, old_version):
            return
        if metadata.uid(old) != metadata.uid(obj):
            self._delete(key, old, final_state_unknown=True)
            self._set(key, obj, initial, listed=listed)
        elif version != old_version or not version:
            self.store.put(key, obj)
            for registration in self._registrations:
                registration._notify("on_update", key, old, obj)

    def _delete(self, key: str, last: T, *, final_state_unknown: bool) -> None:
        self.store.remove(key)
        for registration in self._registrations:
            registration._notify("on_delete", key, last, final_state_unknown)


class _ListedObjects(Generic[T]):
    """A list on its way into an informer, which continues to show its objects until the list is complete."""

    def __init__(self, informer: SharedInformer[T]) -> None:
        self._informer = informer
        self._objects: dict[str, T] = {}

    def put(self, key: str, obj: T) -> None:
        self._objects[key] = obj

    def put_unreadable(self, obj: UnreadableObject) -> None:
        """Keep the cached object, if there is one."""
        cached = self._informer.store.get(obj.key)
        if cached is not None:
            self._objects[obj.key] = cached

    def remove(self, key: str, uid: str) -> None:
        self._objects.pop(key, None)

    def missed(self) -> None:
        """Nothing to do: the list is compared with the store."""

    def restart(self) -> None:
        self._objects.clear()

    async def finish(self, resource_version: str) -> None:
        await self._informer.replace(self._objects)
