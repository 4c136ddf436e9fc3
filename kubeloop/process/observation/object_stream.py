"""Cache of a reflector that stores no objects: it passes each of their states on as it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kubeloop.kube.client.api_client import UnreadableObject
from kubeloop.kube.clock import Clock

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ObjectReceiver(Generic[T_contra]):
    """Receives the states of the objects of one resource, with the times of their arrival."""

    def observed(self, obj: T_contra, arrival_ns: int, *, initial: bool) -> None:
        """Receive a state of an object. `initial`: it is of the first list."""

    def deleted(self, obj: T_contra, arrival_ns: int) -> None:
        """Receive the last state of an object."""

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        """Changes in this interval were missed; the states of a new list follow."""

    def list_started(self) -> None:
        """The states of all objects follow; those of a list that was not complete do not count."""

    def list_has(self, uid: str) -> None:
        """A list has an object that cannot be decoded."""

    def list_lost(self, uid: str) -> None:
        """An object was deleted before the list was complete."""

    def listed(self, arrival_ns: int) -> None:
        """All objects of a list were passed to observed()."""


class ObjectStream(Generic[T]):
    """Passes the objects of one resource on to a receiver. It is its own Listing: there is one list at a time."""

    def __init__(self, receiver: ObjectReceiver[T], clock: Clock, *, on_gap: Callable[[], None] = lambda: None) -> None:
        """on_gap: called when changes were missed."""
        self._receiver = receiver
        self._on_gap = on_gap
        self._now_ns = clock.time_ns
        self._has_listed = False
        self._receives_list = False  # the first object of the current list has arrived
        self._last_arrival_ns = 0
        self._disconnected_ns = 0  # since when changes may be missed; 0: none are

    # --- list ------------------------------------------------------------------------------------------------------

    def start_list(self) -> ObjectStream[T]:
        self._receives_list = False
        return self

    def put(self, key: str, obj: T) -> None:
        arrival_ns = self._list_arrives()
        self._receiver.observed(obj, arrival_ns, initial=not self._has_listed)

    def put_unreadable(self, obj: UnreadableObject) -> None:
        self._list_arrives()
        self._receiver.list_has(obj.uid)

    def remove(self, key: str, uid: str) -> None:
        self._list_arrives()
        self._receiver.list_lost(uid)

    def restart(self) -> None:
        self._receiver.list_started()  # states that are passed on twice do no harm

    async def finish(self) -> None:
        self._last_arrival_ns = self._list_arrives()
        self._receiver.listed(self._last_arrival_ns)
        self._has_listed, self._disconnected_ns = True, 0

    def _list_arrives(self) -> int:
        """Return the time. Reports the changes that were missed before a list, when its first object arrives."""
        now_ns = self._now_ns()
        if not self._receives_list:
            self._receives_list = True
            if self._has_listed:
                self._on_gap()
                self._receiver.interrupted(self._disconnected_ns or now_ns, now_ns)
            self._receiver.list_started()
        return now_ns

    # --- watch -----------------------------------------------------------------------------------------------------

    def apply(self, event_type: str, obj: T, arrived_ns: int) -> None:
        self._disconnected_ns = 0  # the watch continues where it ended
        self._last_arrival_ns = arrived_ns
        if event_type == "DELETED":
            self._receiver.deleted(obj, arrived_ns)
        else:
            self._receiver.observed(obj, arrived_ns, initial=False)

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        """The reflector has logged it; the next state that can be read is passed on."""

    def disconnected(self, *, silent: bool) -> None:
        if not self._disconnected_ns:
            self._disconnected_ns = self._last_arrival_ns if silent else self._now_ns()
