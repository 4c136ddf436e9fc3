"""What all parts of the simulated nodes share: the store, the time, chance, events, and the agenda of what is due.

Agenda       one heap of appointments, for all nodes and pods together; there is no task per pod or node
Simulation   the store with its clock; writes of a part reach the other parts unless they are `quiet`
"""

from __future__ import annotations

import asyncio
import heapq
import random
import uuid
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.simulation.events import KubeletEvents
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS, Resource


class Appointment:
    """Something to be done at a time. cancel() as often as you like, also when it is past."""

    __slots__ = ("act", "argument")

    def __init__(self, act: Callable[[Any], None], argument: Any) -> None:
        self.act: Callable[[Any], None] | None = act
        self.argument = argument

    def cancel(self) -> None:
        self.act = None


class Agenda:
    """What is due when, in seconds of the event loop's clock. Appointments of one moment are kept in their order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Appointment]] = []
        self._serial = 0

    def at(self, when: float, act: Callable[[Any], None], argument: Any = None) -> Appointment:
        """Call `act(argument)` at `when`."""
        self._serial += 1
        appointment = Appointment(act, argument)
        heapq.heappush(self._heap, (when, self._serial, appointment))
        return appointment

    def next_due(self) -> float | None:
        """When the next appointment is that nobody has cancelled."""
        while self._heap and self._heap[0][2].act is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> Appointment | None:
        """The next appointment that is due, taken off; None if there is none."""
        due = self.next_due()
        return heapq.heappop(self._heap)[2] if due is not None and due <= now else None


class Simulation:
    """The world of the simulated nodes."""

    def __init__(self, store: Store, settings: NodeSettings, *, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.agenda = Agenda()
        self.quiet = False  # the write under way concerns nobody else here
        self._events = KubeletEvents(store, clock=clock, rng=rng) if settings.events else None
        self._second, self._text = -1, ""

    def now(self) -> float:
        """Seconds of the event loop's clock."""
        return asyncio.get_running_loop().time()

    def wall(self) -> str:
        """The time as metav1.Time; put into words once a second."""
        second = self.clock.time_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, rfc3339(self.clock.now())
        return self._text

    def uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def update(self, resource: Resource[Any], obj: JSON, *, quiet: bool = False) -> JSON:
        """Store the next version of `obj`. quiet: the parts here do not get to hear of it."""
        before, self.quiet = self.quiet, quiet
        try:
            return self.store.update(resource, obj)
        finally:
            self.quiet = before

    def current_pod(self, obj: JSON) -> JSON | None:
        """The pod as the store has it now; None if it is gone, or another one has its name."""
        metadata = obj["metadata"]
        current = self.store.get(PODS, metadata["namespace"], metadata["name"])
        return current if current is not None and current["metadata"]["uid"] == metadata["uid"] else None

    def remove_pod(self, current: JSON) -> bool:
        """Delete a pod without grace, as kubelets do at the end; False: finalizers keep the object until they go."""
        metadata = current["metadata"]
        if metadata.get("finalizers"):
            stamp = metadata.get("deletionTimestamp") or self.wall()
            if metadata.get("deletionGracePeriodSeconds") != 0 or "deletionTimestamp" not in metadata:
                changed = {**metadata, "deletionTimestamp": stamp, "deletionGracePeriodSeconds": 0}
                self.update(PODS, {**current, "metadata": changed}, quiet=True)
            return False
        self.store.delete(PODS, metadata["namespace"], metadata["name"])
        return True

    def event(
        self,
        obj: JSON,
        type_: str,
        reason: str,
        message: str,
        *,
        component: str = "kubelet",
        host: str = "",
        field_path: str = "",
    ) -> None:
        """Record an event about a pod or a node, unless the settings do without."""
        if self._events is not None:
            self._events.record(obj, type_, reason, message, field_path=field_path, component=component, host=host)

    @property
    def tells_events(self) -> bool:
        return self._events is not None
