"""Pod observer: turns watch events of pods, Events and nodes into records of pods, which PodRecorder publishes."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedNode, ObservedOwner, ObservedPod
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.recording.pod_recorder import PodRecorder

TopOwner = tuple[str, str]
"""Kind and name of a pod's topmost owner, such as ("Deployment", "web")."""


class PodObserver:
    """Observes the pods of a cluster. Methods are synchronous, take some ten microseconds, and do not raise.

    `arrival_ns`: when the watch event was read, by the clock of `recorder`. States and Events may come late, twice, in
    any order, or never.
    """

    def __init__(
        self,
        recorder: PodRecorder,
        *,
        clock: Clock,
        skew: ClockSkew,
        top_owner: Callable[[str, ObservedOwner], TopOwner | None] = lambda namespace, owner: None,
        has_events: bool = True,
    ) -> None:
        """
        top_owner    returns the topmost owner above a pod's controller (namespace, controller); None if it is not known
                     yet: the observer calls again when the trace ends. Must not block.
        has_events   Events are watched: a trace that has ended waits some seconds for those that are late
        """
        self._recorder = recorder
        self._clock = clock
        self._skew = skew
        self._top_owner = top_owner
        self._has_events = has_events

    def pod_observed(self, pod: ObservedPod, arrival_ns: int, *, initial: bool = False) -> None:
        """Record a state of a pod. `initial`: it is of the first list, and the pod may be older than the observer."""

    def pod_deleted(self, pod: ObservedPod, arrival_ns: int) -> None:
        """Record that a pod was deleted; `pod` is its last state."""

    def event_observed(self, event: ObservedEvent, arrival_ns: int) -> None:
        """Record an Event. Events of other objects than pods are ignored."""

    def node_observed(self, node: ObservedNode, arrival_ns: int) -> None:
        """Record a state of a node."""

    def node_deleted(self, node: ObservedNode, arrival_ns: int) -> None:
        """Record that a node was deleted."""

    def interrupted(self, resource: str, since_ns: int, until_ns: int) -> None:
        """Record that the watch of `resource` ("pods", "events", "nodes") missed changes: it was listed again.

        Call it before the states of the new list are passed to pod_observed().
        """

    def synced(self) -> None:
        """Record that the first list of pods was passed: pods of earlier processes that it lacks were deleted."""

    def sweep(self) -> None:
        """Finish traces that have waited long enough for late Events. Call it about every second."""
