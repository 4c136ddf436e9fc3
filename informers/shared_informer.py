"""A shared informer: one watch of one resource, one store, any number of handlers.

    reflector --replace/apply--> store --on_add/on_update/on_delete--> every handler, in the same order

What a handler is told about one key is a story that makes sense by itself: on_add, any number of on_update, on_delete,
and from the start. It hears of a change after the store shows it. May import `kubeloop.kube` alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kubeloop.informers.object_metadata import MetadataAccessor, is_older
from kubeloop.informers.reflector import EVERYTHING, Reflector, Selection, yield_to_event_loop
from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import Client, UnreadableObject
from kubeloop.kube.objects.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

Transform = Callable[[T], T]
"""Applied to each object before it is stored, to keep less of it. Keeps its metadata; may change a dict in place."""


class ResourceEventHandler(Protocol[T_contra]):
    """What a handler is told, on the event loop, in store order, after the store changed. Must not block."""

    def on_add(self, obj: T_contra, initial: bool) -> None:
        """`initial`: it was there when this handler began, rather than having just been created."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """It changed; or, on a resync, it did not and `old is new`."""
        ...

    def on_delete(self, obj: T_contra, final_state_unknown: bool) -> None:
        """It is gone. `final_state_unknown`: the deletion itself was missed, and `obj` is the state last seen."""
        ...


class ResourceEventHandlerFuncs(Generic[T]):
    """ResourceEvents from plain functions; what is left out is not wanted."""

    def __init__(
        self,
        on_add: Callable[[T, bool], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T, bool], None] | None = None,
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
    """One handler at one informer.

    joining (owed: objects it has not been told of) --all told--> level with the store --remove()--> gone
    """

    def __init__(
        self, informer: SharedInformer[T], handler: ResourceEventHandler[T], resync_seconds: float, owed: dict[str, T]
    ) -> None:
        self.handler = handler
        self.resync_seconds = resync_seconds
        self.informer = informer
        self._owed = owed  # of a late handler: what was in the store when it came, by key, as it was then
        self._active = True
        self._level = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def synced(self) -> bool:
        """Has the handler been told of everything that the first list held?"""
        return self._level.is_set()

    async def wait_synced(self) -> None:
        """Cancellation: safe."""
        await self._level.wait()

    def remove(self) -> None:
        """The handler is told nothing more from now on."""
        self._active = False
        self._owed.clear()
        self.informer._registrations = tuple(each for each in self.informer._registrations if each is not self)
        for task in self._tasks:
            task.cancel()

    # What the informer tells it.

    def _added(self, key: str, obj: T, initial: bool) -> None:
        if self._active:
            try:
                self.handler.on_add(obj, initial)
            except Exception:
                self._failed("on_add", key)

    def _updated(self, key: str, old: T, new: T) -> None:
        if self._owed and (owed := self._owed.pop(key, None)) is not None:
            self._added(key, owed, True)
        if self._active:
            try:
                self.handler.on_update(old, new)
            except Exception:
                self._failed("on_update", key)

    def _deleted(self, key: str, obj: T, final_state_unknown: bool) -> None:
        if self._owed and (owed := self._owed.pop(key, None)) is not None:
            self._added(key, owed, True)
        if self._active:
            try:
                self.handler.on_delete(obj, final_state_unknown)
            except Exception:
                self._failed("on_delete", key)

    def _failed(self, what: str, key: str) -> None:
        log.exception(
            "handler failed",
            extra={**self.informer._about(key), "handler": repr(self.handler), "method": what},
        )

    # Its tasks, in the informer's group.

    def _start(self, tasks: asyncio.TaskGroup, rng: random.Random) -> None:
        self._tasks = [tasks.create_task(self._catch_up(), name=f"catching up with {self.informer!r}")]
        if self.resync_seconds:
            self._tasks.append(tasks.create_task(self._resync(rng), name=f"resync of {self.informer!r}"))

    async def _catch_up(self) -> None:
        """Tell the handler what it is owed, a slice at a time. An event for a key still owed settles that first."""
        steps = 0
        while self._owed:
            key = next(iter(self._owed))
            self._added(key, self._owed.pop(key), True)
            steps = await yield_to_event_loop(steps)
        await self.informer.wait_synced()
        self._level.set()

    async def _resync(self, rng: random.Random) -> None:
        await self._level.wait()
        store = self.informer.store
        while True:
            await asyncio.sleep(self.resync_seconds * (1 + rng.random() / 10))
            steps = 0
            for key in [*store.keys()]:
                obj = store.get(key)
                if obj is not None:
                    self._updated(key, obj, obj)
                steps = await yield_to_event_loop(steps)


class SharedInformer(Generic[T]):
    """Keeps `store` level with the API server, and tells handlers of every change.

    Runs until `run()` is cancelled; may be run again, and then lists anew.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        rng: random.Random,
        selection: Selection = EVERYTHING,
        transform: Transform[T] | None = None,
    ) -> None:
        self.resource = resource
        self.selection = selection
        self.store: Store[T] = Store()
        self._metadata = MetadataAccessor(resource)
        self._transform = transform
        self._rng = rng
        self._reflector = Reflector(client, resource, self, rng=rng, selection=selection)
        self._registrations: tuple[
            HandlerRegistration[T], ...
        ] = ()  # replaced, never changed: it is iterated while calling
        self._synced = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None  # while run() runs
        self._last_resource_version = ""

    def __repr__(self) -> str:
        return f"SharedInformer({self.resource.group_resource}, {len(self.store)} objects)"

    @property
    def has_synced(self) -> bool:
        """Does the store hold the first list, and have the handlers that were there been told of all of it?"""
        return self._synced.is_set()

    @property
    def has_handlers(self) -> bool:
        return bool(self._registrations)

    @property
    def last_resource_version(self) -> str:
        """How far the store is: of the newest list, event or bookmark; "" before the first list."""
        return self._last_resource_version

    async def wait_synced(self) -> None:
        """Cancellation: safe."""
        await self._synced.wait()

    def add_handler(self, handler: ResourceEventHandler[T], *, resync_seconds: float = 0.0) -> HandlerRegistration[T]:
        """Tell `handler` of everything in the store, as initial adds, and of every change from then on.

        Never calls it before returning. With `resync_seconds` (and up to a tenth more, to spread handlers out) it is
        also told every object again and again, as on_update(obj, obj).
        """
        owed = {key: self.store[key] for key in self.store}
        registration = HandlerRegistration(self, handler, resync_seconds, owed)
        self._registrations = (*self._registrations, registration)
        if self._tasks is not None:
            registration._start(self._tasks, self._rng)
        return registration

    def mark_stopped(self) -> None:
        """It will not run again: who waits for its first list goes on with what there is."""
        self._synced.set()

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for registration in self._registrations:
                    registration._start(tasks, self._rng)
                tasks.create_task(self._reflector.run(), name=f"reflector/{self.resource.group_resource}")
                await asyncio.Future()
            finally:
                self._tasks = None

    # --- what the reflector brings ---------------------------------------------------------------------------------

    def known(self, key: str) -> T | None:
        return self.store.get(key)

    def keep(self, obj: T) -> T | None:
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception:
            log.exception("transform failed", extra=self._about(self._metadata.key(obj)))
            return None

    async def replace(self, items: dict[str, T], resource_version: str) -> None:
        """Deletions first: what takes the place of something gone (a name, room on a node) comes after it."""
        initial = not self.has_synced
        steps = 0
        for key in [key for key in self.store if key not in items]:
            self._delete(key, self.store[key], final_state_unknown=True)
            steps = await yield_to_event_loop(steps)
        for key, obj in items.items():
            self._set(key, obj, initial, listed=True)
            steps = await yield_to_event_loop(steps)
        self._last_resource_version = resource_version
        self._synced.set()

    def apply(self, event_type: str, obj: T) -> None:
        kept = self.keep(obj)
        metadata = self._metadata
        if kept is None:
            self._last_resource_version = metadata.resource_version(obj)
            return
        self._last_resource_version = metadata.resource_version(kept)
        key = metadata.key(kept)
        if event_type != "DELETED":
            self._set(key, kept, False, listed=False)
            return
        old = self.store.get(key)
        if old is None:
            return
        if metadata.uid(old) == metadata.uid(kept):
            self._delete(key, kept, final_state_unknown=False)
        elif is_older(metadata.resource_version(old), metadata.resource_version(kept)):
            self._delete(key, old, final_state_unknown=True)  # the end of one that we have never seen

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        self._last_resource_version = obj.resource_version
        old = self.store.get(obj.key)
        if old is not None and (event_type == "DELETED" or self._metadata.uid(old) != obj.uid):
            self._delete(obj.key, old, final_state_unknown=True)

    def advance(self, resource_version: str) -> None:
        self._last_resource_version = resource_version

    def _set(self, key: str, obj: T, initial: bool, *, listed: bool) -> None:
        """Take in the state of an object, unless it is the one we know.

        A list is believed even where it shows older states (a server restored from a backup); an event is not, since
        servers may send one twice.
        """
        old = self.store.get(key)
        if old is None:
            self.store.put(key, obj)
            for registration in self._registrations:
                registration._added(key, obj, initial)
            return
        metadata = self._metadata
        known_version, version = metadata.resource_version(old), metadata.resource_version(obj)
        if not listed and is_older(version, known_version):
            return
        if metadata.uid(old) != metadata.uid(obj):
            self._delete(key, old, final_state_unknown=True)
            self._set(key, obj, initial, listed=listed)
        elif version != known_version or not version:
            self.store.put(key, obj)
            for registration in self._registrations:
                registration._updated(key, old, obj)

    def _delete(self, key: str, last: T, *, final_state_unknown: bool) -> None:
        self.store.remove(key)
        for registration in self._registrations:
            registration._deleted(key, last, final_state_unknown)

    def _about(self, key: str) -> dict[str, str]:
        return {"resource": self.resource.group_resource, "key": key}
