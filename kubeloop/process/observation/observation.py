"""Observation of a cluster in one process: watches of pods, Events and nodes, top owners, and tracing.

    reflector (pods, nodes) ----> ObjectStream --> PodObserver --> open records --> sampling, journal, export, pages
    reflector (events), when the pods are listed --^

Nothing is stored but the records of pods whose trace has not ended. Only leader election writes to the API server.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kubeloop.informers.reflector import Reflector
from kubeloop.informers.reflector_backoff import Backoff
from kubeloop.kube.client.api_client import ApiClient, Selectors
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedNode, ObservedPod, ObservedPodMeta
from kubeloop.kube.objects.resources import Resource
from kubeloop.process.metrics.loop_lag import LoopLag
from kubeloop.process.metrics.metrics_registry import Registerer
from kubeloop.process.metrics.observation_metrics import ObservationMetrics
from kubeloop.process.metrics.trace_metrics import PrometheusTraceMetrics
from kubeloop.process.observation.cluster_access import (
    NO_SELECTORS,
    OBSERVED_EVENTS,
    OBSERVED_NODES,
    OBSERVED_PODS,
    may_watch,
)
from kubeloop.process.observation.object_stream import ObjectReceiver, ObjectStream
from kubeloop.process.observation.top_owners import TopOwners
from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.observation.pod_observer import PodObserver
from kubeloop.tracing.provider import RecordingSettings, Tracing
from kubeloop.tracing.recording.observed_pod_recorder import ObservedPodRecorder
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.sampling.samplers import NO_TAIL_RULES, TailRules
from kubeloop.tracing.spans.pod_record import PodRecord

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
_POD_EVENTS: Selectors = {"field_selector": "involvedObject.kind=Pod"}


class ObservationSettings(msgspec.Struct, frozen=True):
    """Scope of an observation, and the end of its traces.

    namespace: "" for all. label_selector: of pods. missing: resources without permission at the start, from
    MISSING_DETAIL; events and nodes are watched once they are permitted.
    trace_tail_rules: rules for traces that are exported although the sampler rejected them. trace_until_ready: a trace
    ends when the pod is Ready, else when it is bound.
    """

    namespace: str = ""
    label_selector: str = ""
    missing: frozenset[str] = frozenset()
    trace_tail_rules: TailRules = NO_TAIL_RULES
    trace_until_ready: bool = True

    @property
    def pod_selectors(self) -> Selectors:
        return {"label_selector": self.label_selector} if self.label_selector else {}

    @property
    def scope(self) -> str:
        """The observed pods, for messages."""
        pods = f"pods with {self.label_selector}" if self.label_selector else "all pods"
        return f"{pods} in namespace {self.namespace}" if self.namespace else pods


class Observation:
    """Observes the pods of one cluster.

    synced   set when the first list of pods was processed
    missing  resources of which permissions are missing, from MISSING_DETAIL
    """

    def __init__(
        self,
        client: ApiClient,
        settings: ObservationSettings,
        *,
        clock: Clock,
        rng: random.Random,
        registry: Registerer,
        skew: ClockSkew,
        open_journal: Callable[[], TraceJournal] | None = None,
    ) -> None:
        """`open_journal` opens the journal of traces, if they are exported."""
        self.settings = settings
        self.skew = skew
        self.synced = asyncio.Event()
        self.missing = set(settings.missing)
        self.tracing = _new_tracing(settings, clock, rng, registry, open_journal)
        self.client = client
        self._clock = clock
        self._rng = rng
        self._lag = LoopLag(registry)
        self._owners = TopOwners(client)
        self._observer = PodObserver(
            self.tracing.open_pods,
            ObservedPodRecorder(self.tracing.open_pods, self.tracing.restored_pods, sampler=self.tracing.sampler),
            until_ready=settings.trace_until_ready,
            skew=skew,
            top_owner=self._owners.find,
            has_events="events" not in settings.missing,
            on_reconstructed=self.tracing.recent.add,
        )
        self._metrics = ObservationMetrics(registry, skew, lambda: self._observer.events_dropped)

    async def run(self, elect: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None) -> None:
        """Observe until cancelled. `elect` decides when traces are exported (leader election); by default always.

        Cancellation: spans are exported first, for a bounded time.
        """
        self.tracing.is_leader = elect is None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lag.run(), name="loop-lag")
            group.create_task(self._owners.run(), name="owners")
            group.create_task(self.tracing.run(), name="tracing")
            group.create_task(self._sweep(), name="sweep")
            group.create_task(self._watch(OBSERVED_NODES, NodeReceiver(self._observer)), name="nodes")
            pods = PodReceiver(self._observer, self.tracing.open_pods, self.synced)
            group.create_task(self._watch(OBSERVED_PODS, pods, self.settings.pod_selectors), name="pods")
            if elect is not None:
                group.create_task(self._elect(elect), name="leader-election")
            await self.synced.wait()  # Events of pods that are not observed would be buffered
            group.create_task(self._watch(OBSERVED_EVENTS, EventReceiver(self._observer), _POD_EVENTS), name="events")

    async def _watch(
        self, resource: Resource[Any], receiver: ObjectReceiver[Any], selectors: Selectors = NO_SELECTORS
    ) -> None:
        """Watch a resource until cancelled, from when on it is permitted."""
        gaps = self._metrics.watch_gaps.labels(resource.plural)
        stream = ObjectStream(receiver, self._clock, on_gap=gaps.inc)
        rng = random.Random(self._rng.getrandbits(64))
        namespace = self.settings.namespace if resource.namespaced else ""
        if resource.plural in self.missing:
            await self._permission(resource, namespace, rng)
            if resource is OBSERVED_EVENTS:
                self._observer.expect_events()
        await Reflector(self.client, resource, stream, rng=rng, namespace=namespace, selectors=selectors).run()

    async def _permission(self, resource: Resource[Any], namespace: str, rng: random.Random) -> None:
        """Wait until a missing permission is granted."""
        backoff = Backoff(rng)
        while True:
            await asyncio.sleep(backoff.next_seconds())
            try:
                if await may_watch(self.client, resource, namespace):
                    break
            except (ApiError, ServerUnreachable) as error:
                log.info("cannot check permissions", extra={"resource": resource.plural, "error": str(error)})
        self.missing.discard(resource.plural)
        log.warning("permission was granted, watching from now on", extra={"resource": resource.plural})

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._observer.sweep()

    async def _elect(self, elect: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        async def lead() -> None:
            self.tracing.start_leading()
            await asyncio.Event().wait()  # until cancelled

        await elect(lead)


class PodReceiver(ObjectReceiver[ObservedPod]):
    """Passes pods to the observer, and the end of those that a later list lacks."""

    def __init__(self, observer: PodObserver, records: OpenPodRecords, synced: asyncio.Event) -> None:
        self._observer = observer
        self._records = records
        self._synced = synced
        self._listed_uids: set[str] | None = None  # None while no list arrives

    def observed(self, obj: ObservedPod, arrival_ns: int, late_since_ns: int, *, initial: bool) -> None:
        if self._listed_uids is not None:
            self._listed_uids.add(obj.metadata.uid)
        self._observer.pod_observed(obj, arrival_ns, late_since_ns, initial=initial)

    def deleted(self, obj: ObservedPod, arrival_ns: int, late_since_ns: int) -> None:
        self._observer.pod_deleted(obj, arrival_ns, late_since_ns)

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        self._observer.interrupted("pods", since_ns, until_ns)

    def list_started(self) -> None:
        self._listed_uids = set()

    def list_has(self, uid: str) -> None:
        assert self._listed_uids is not None
        self._listed_uids.add(uid)

    def list_lost(self, uid: str) -> None:
        assert self._listed_uids is not None
        self._listed_uids.discard(uid)

    def list_lacks_objects(self) -> bool:
        return bool(self._unlisted_records())

    def _unlisted_records(self) -> list[PodRecord]:
        assert self._listed_uids is not None
        return [record for record in self._records.all() if record.uid not in self._listed_uids]

    def listed(self, arrival_ns: int, resource_version: str) -> None:
        assert self._listed_uids is not None
        for record in self._unlisted_records():
            metadata = ObservedPodMeta(name=record.name, namespace=record.namespace, uid=record.uid)
            try:
                self._observer.pod_deleted(ObservedPod(metadata=metadata), arrival_ns)
            except Exception:
                log.exception("cannot end the trace of a pod", extra={"pod": f"{record.namespace}/{record.name}"})
        self._observer.retain(self._listed_uids)
        self._listed_uids = None
        if not self._synced.is_set():
            self._observer.synced()
            self._synced.set()


class EventReceiver(ObjectReceiver[ObservedEvent]):
    """Passes Events to the observer."""

    def __init__(self, observer: PodObserver) -> None:
        self._observer = observer

    def observed(self, obj: ObservedEvent, arrival_ns: int, late_since_ns: int, *, initial: bool) -> None:
        self._observer.event_observed(obj, arrival_ns)

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        self._observer.interrupted("events", since_ns, until_ns)


class NodeReceiver(ObjectReceiver[ObservedNode]):
    """Passes nodes to the observer."""

    def __init__(self, observer: PodObserver) -> None:
        self._observer = observer

    def observed(self, obj: ObservedNode, arrival_ns: int, late_since_ns: int, *, initial: bool) -> None:
        self._observer.node_observed(obj, arrival_ns, late_since_ns)

    def deleted(self, obj: ObservedNode, arrival_ns: int, late_since_ns: int) -> None:
        self._observer.node_deleted(obj, arrival_ns, late_since_ns)

    def interrupted(self, since_ns: int, until_ns: int) -> None:
        self._observer.interrupted("nodes", since_ns, until_ns)


def _new_tracing(
    settings: ObservationSettings,
    clock: Clock,
    rng: random.Random,
    registry: Registerer,
    open_journal: Callable[[], TraceJournal] | None,
) -> Tracing:
    metrics = PrometheusTraceMetrics(registry)
    recording = RecordingSettings(
        tail_rules=settings.trace_tail_rules, until_ready=settings.trace_until_ready, standby=True
    )
    tracing = Tracing(clock=clock, rng=rng, settings=recording, metrics=metrics, open_journal=open_journal)
    metrics.open.set_function(tracing.open_pods.count)
    return tracing
