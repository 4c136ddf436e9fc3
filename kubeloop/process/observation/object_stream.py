"""Cache of a reflector that stores no objects: it passes each of their states on as it arrives.

    listed, or watching --disconnected--> behind --connected--> catching up --until its end--> watching

While it catches up, states arrive that are as old as the disconnection, and a watch has no sign of its end. It is
taken to last a second, and a quarter of the time that the stream was behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kubeloop.kube.client.api_client import UnreadableObject
from kubeloop.kube.clock import Clock

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

CATCH_UP_NS: Final = 1_000_000_000
CATCH_UP_SHARE: Final = 4  # of the time that the stream was behind


class ObjectReceiver(Generic[T_contra]):
    """Receives the states of the objects of one resource, with the times of their arrival.

    late_since_ns: the state may be as old as this, because the stream is catching up; 0: it arrived promptly.
    """

    def observed(self, obj: T_contra, arrival_ns: int, late_since_ns: int, *, initial: bool) -> None:
        """Receive a state of an object. `initial`: it is of the first list."""

    def deleted(self, obj: T_contra, arrival_ns: int, late_since_ns: int) -> None:
        """Receive the last state of an object."""

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        """Changes in this interval were missed; the states of a new list follow."""

    def list_started(self) -> None:
        """The states of all objects follow; those of a list that was not complete do not count."""

    def list_has(self, uid: str) -> None:
        """A list has an object that cannot be decoded."""

    def list_lost(self, uid: str) -> None:
        """An object was deleted before the list was complete."""

    def list_lacks_objects(self) -> bool:
        """Return True if an object that was not deleted is not in the list, all of which was passed to observed()."""
        return False

    def listed(self, arrival_ns: int, resource_version: str) -> None:
        """All objects of the list of this resourceVersion were passed to observed()."""


class ObjectStream(Generic[T]):
    """Passes the objects of one resource on to a receiver. It is its own Listing: there is one list at a time."""

    def __init__(
        self,
        receiver: ObjectReceiver[T],
        clock: Clock,
        *,
        on_gap: Callable[[], None] = lambda: None,
        assumes_gaps: bool = False,
    ) -> None:
        """on_gap: called when changes were missed. assumes_gaps: each expired watch counts as one that missed changes,
        even if the next list shows none: objects may have been created and deleted in between."""
        self._receiver = receiver
        self._on_gap = on_gap
        self._assumes_gaps = assumes_gaps
        self._now_ns = clock.time_ns
        self._has_listed = False
        self._list_started_ns = 0
        self._receives_list = False  # the first object of the current list has arrived
        self._has_gap = False  # changes were missed before the current list
        self._last_arrival_ns = 0
        self._behind_since_ns = 0  # since when changes may not have arrived; 0: all have
        self._caught_up_ns = 0  # when they will have; 0: not while the watch is disconnected

    # --- list ------------------------------------------------------------------------------------------------------

    def start_list(self, *, same_history: bool) -> ObjectStream[T]:
        self._receives_list = False
        self._has_gap = self._assumes_gaps or not same_history
        self._list_started_ns = self._now_ns()
        return self

    def put(self, key: str, obj: T) -> None:
        arrival_ns = self._list_arrives()
        self._receiver.observed(obj, arrival_ns, self._list_started_ns, initial=not self._has_listed)

    def put_unreadable(self, obj: UnreadableObject) -> None:
        self._list_arrives()
        self._receiver.list_has(obj.uid)

    def missed(self) -> None:
        now_ns = self._list_arrives()
        if not self._has_gap:
            self._has_gap = True
            self._report_gap(now_ns)

    def remove(self, key: str, uid: str) -> None:
        self._list_arrives()
        self._receiver.list_lost(uid)

    def restart(self) -> None:
        self._receiver.list_started()  # states that are passed on twice do no harm

    async def finish(self, resource_version: str) -> None:
        self._last_arrival_ns = self._list_arrives()
        if self._receiver.list_lacks_objects():
            self.missed()
        self._receiver.listed(self._last_arrival_ns, resource_version)
        self._has_listed = True
        self._behind_since_ns, self._caught_up_ns = self._list_started_ns, 0  # the list shows this time

    def _list_arrives(self) -> int:
        """Return the time. Reports the changes that were missed before a list, when its first object arrives."""
        now_ns = self._now_ns()
        if not self._receives_list:
            self._receives_list = True
            if self._has_gap:
                self._report_gap(now_ns)
            self._receiver.list_started()
        return now_ns

    def _report_gap(self, now_ns: int) -> None:
        if self._has_listed:
            self._on_gap()
            self._receiver.interrupted(self._behind_since_ns or now_ns, now_ns)

    # --- watch -----------------------------------------------------------------------------------------------------

    def apply(self, event_type: str, obj: T, arrived_ns: int) -> None:
        self._last_arrival_ns = arrived_ns
        if self._behind_since_ns and arrived_ns > self._caught_up_ns:
            self._behind_since_ns = 0
        if event_type == "DELETED":
            self._receiver.deleted(obj, arrived_ns, self._behind_since_ns)
        else:
            self._receiver.observed(obj, arrived_ns, self._behind_since_ns, initial=False)

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        """The reflector has logged it; the next state that can be read is passed on."""

    def connected(self) -> None:
        now_ns = self._now_ns()
        if self._behind_since_ns:
            self._caught_up_ns = now_ns + CATCH_UP_NS + (now_ns - self._behind_since_ns) // CATCH_UP_SHARE

    def disconnected(self, received_until_ns: int) -> None:
        since_ns = received_until_ns or self._last_arrival_ns
        if not self._behind_since_ns or 0 < self._caught_up_ns < since_ns:
            self._behind_since_ns = since_ns
        self._caught_up_ns = 0

    def unchanged(self, until_ns: int) -> None:
        self._last_arrival_ns = self._behind_since_ns = until_ns
