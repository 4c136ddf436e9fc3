"""The composition of one process: informers, controllers, scheduler, tracing and events over one client.

One shared informer per kind serves every part (DESIGN.md, "How a pod travels"). Starting order is nesting order:
informers first and last, then what reports (events, traces), then what acts.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kubeloop.dump import dump_on_request
from kubeloop.endpoint import Endpoint
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import Handlers
from kubeloop.kube.client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import UserError
from kubeloop.kube.events import EventRecorder
from kubeloop.kube.resources import PODS
from kubeloop.metrics import LoopLag, PrometheusControllerMetrics, PrometheusSchedulerMetrics
from kubeloop.pod_resources import pod_resources
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.config.v1 import configuration_document
from kubeloop.series import Registration
from kubeloop.trace_metrics import PrometheusTraceMetrics
from kubeloop.tracing.current import current_headers
from kubeloop.tracing.provider import Tracing
from kubeloop.tracing.sampling import NO_RULES, TailRules

if TYPE_CHECKING:
    from kubeloop.scheduler.scheduler import Scheduler

CONTROLLERS = (
    "deployment",
    "replicaset",
    "replicationcontroller",
    "scheduler",
    "garbagecollector",
    "namespace",
)


_MODULES = {
    "deployment": "kubeloop.controllers.deployment.controller",
    "replicaset": "kubeloop.controllers.replicaset.controller",
    "replicationcontroller": "kubeloop.controllers.replicaset.controller",
    "scheduler": "kubeloop.scheduler.scheduler",
    "garbagecollector": "kubeloop.controllers.garbagecollector.controller",
    "namespace": "kubeloop.controllers.namespace.controller",
}


_CREATORS = {"replicaset": "ReplicaSet", "replicationcontroller": "ReplicationController"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What one process runs.

    controllers: names out of CONTROLLERS. The concurrent_* counts are reconciles under way at once.
    namespace_grace_seconds: a namespace is left alone so long after its deletion; a single API server needs none.
    trace_keep: traces kept although the sampler did not choose them. trace_until_ready: they go on until then.
    """

    controllers: frozenset[str] = frozenset(CONTROLLERS)
    concurrent_deployment_syncs: int = 5
    concurrent_replicaset_syncs: int = 5
    concurrent_rc_syncs: int = 5
    concurrent_gc_syncs: int = 20
    concurrent_namespace_syncs: int = 10
    namespace_grace_seconds: float = 5.0
    scheduler: SchedulerConfiguration = field(default_factory=SchedulerConfiguration)
    trace_keep: TailRules = NO_RULES
    trace_until_ready: bool = False


class Part(Protocol):
    """Something that runs until cancelled."""

    async def run(self) -> None: ...


def parse_controllers(text: str) -> frozenset[str]:
    """The meaning of --controllers: names, "*" for all, "-name" to leave one out. Raises UserError."""
    chosen: set[str] = set()
    left_out: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.removeprefix("-")
        if name == "*" and word == "*":
            chosen |= set(CONTROLLERS)
        elif name not in CONTROLLERS:
            raise UserError(
                f"no controller named '{name}'", hint=f"there are {', '.join(CONTROLLERS)}, and '*' for all"
            )
        elif word.startswith("-"):
            left_out.add(name)
        else:
            chosen.add(name)
    if not chosen - left_out:
        raise UserError(
            "no controller is left to run", hint="for example --controllers deployment,replicaset,scheduler"
        )
    return frozenset(chosen - left_out)


def import_parts(controllers: frozenset[str]) -> None:
    """Import what ControlPlane.run() would import for these controllers, while there is nothing else to do."""
    for name in sorted(controllers):
        importlib.import_module(_MODULES[name])


class ControlPlane:
    """All parts of one process, over one client.

    `informers`, `tracing` and `scheduler` are there for those who look on (progress, `kubeloop trace` and `explain`).
    scheduler: None if this process runs none, and before run() has made it. dump_wanted: set it to have what the
    scheduler holds written to the log.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        clock: Clock,
        rng: random.Random,
        registry: Registration,
        endpoint: Endpoint | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.informers = InformerFactory(client, clock=clock, rng=rng)
        self.tracing = tracing or self._new_tracing(clock, rng, registry)
        self.lag = LoopLag(registry)
        self.synced = asyncio.Event()
        self.scheduler: Scheduler | None = None
        self.dump_wanted = asyncio.Event()
        self._clock = clock
        self._rng = rng
        self._registry = registry
        self._recorder = EventRecorder(client, clock=clock, rng=rng)
        self._metrics = PrometheusControllerMetrics(registry)
        self._follow_pods()
        if endpoint is not None:
            self._add_pages(endpoint)

    async def run(self, acting: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None) -> None:
        """Run until cancelled. `acting` decides when controllers and scheduler run (leader election); by default at
        once.

        Raises ExceptionGroup if a part crashes; all others are then cancelled. Cancellation: what must not be lost
        (bindings in flight, events, spans) is drained first, for a bounded time.
        """
        parts = self._parts()
        self.tracing.leads = acting is None
        async with asyncio.TaskGroup() as looking_on:
            looking_on.create_task(self.lag.run(), name="loop-lag")
            looking_on.create_task(dump_on_request(self), name="dump")
            feeding = looking_on.create_task(self.informers.run(), name="informers")
            try:
                async with asyncio.TaskGroup() as reporting:
                    tasks = [
                        reporting.create_task(self.tracing.run(), name="tracing"),
                        reporting.create_task(self._recorder.run(), name="events"),
                    ]
                    try:
                        await self.informers.wait_synced()
                        await self._pods_seen.wait_synced()
                        self.tracing.pods.everything_seen()
                        self.synced.set()
                        await (acting or _at_once)(lambda: self._act(parts))
                    finally:
                        for task in tasks:
                            task.cancel()
            finally:
                feeding.cancel()

    async def _act(self, parts: dict[str, Part]) -> None:
        if not self.tracing.leads:
            self.tracing.begin_to_lead()
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(part.run(), name=name)

    def _new_tracing(self, clock: Clock, rng: random.Random, registry: Registration) -> Tracing:
        settings = self.settings
        metrics = PrometheusTraceMetrics(registry)
        tracing = Tracing(
            clock=clock,
            rng=rng,
            keep=settings.trace_keep,
            until_ready=settings.trace_until_ready,
            metrics=metrics,
        )
        metrics.open.set_function(tracing.pods.open_count)
        return tracing

    def _parts(self) -> dict[str, Part]:
        """The chosen controllers. They register with the informers as they are made: before those run."""
        chosen, settings = self.settings.controllers, self.settings
        reconciles, metrics, events = self.tracing.reconciles, self._metrics, self._recorder.for_component
        parts: dict[str, Part] = {}
        if "deployment" in chosen:
            from kubeloop.controllers.deployment.controller import DeploymentController

            parts["deployment"] = DeploymentController(
                self.client,
                self.informers,
                clock=self._clock,
                recorder=events("deployment-controller"),
                traces=reconciles,
                metrics=metrics,
                workers=settings.concurrent_deployment_syncs,
            )
        for name, workers in (
            ("replicaset", settings.concurrent_replicaset_syncs),
            ("replicationcontroller", settings.concurrent_rc_syncs),
        ):
            if name in chosen:
                from kubeloop.controllers.replicaset.controller import ReplicaSetController
                from kubeloop.controllers.replicaset.flavour import REPLICA_SET, REPLICATION_CONTROLLER

                replica_sets = name == "replicaset"
                parts[name] = ReplicaSetController(
                    self.client,
                    self.informers,
                    clock=self._clock,
                    recorder=events("replicaset-controller" if replica_sets else "replication-controller"),
                    traces=reconciles,
                    pod_traces=self.tracing.pods,
                    metrics=metrics,
                    workers=workers,
                    flavour=REPLICA_SET if replica_sets else REPLICATION_CONTROLLER,
                )
        if "garbagecollector" in chosen:
            from kubeloop.controllers.garbagecollector.controller import GarbageCollector

            parts["garbagecollector"] = GarbageCollector(
                self.client,
                self.informers,
                recorder=events("garbage-collector-controller"),
                traces=reconciles,
                metrics=metrics,
                workers=settings.concurrent_gc_syncs,
            )
        if "namespace" in chosen:
            from kubeloop.controllers.namespace.controller import NamespaceController

            parts["namespace"] = NamespaceController(
                self.client,
                self.informers,
                clock=self._clock,
                traces=reconciles,
                metrics=metrics,
                workers=settings.concurrent_namespace_syncs,
                grace_seconds=settings.namespace_grace_seconds,
            )
        if "scheduler" in chosen:
            from kubeloop.scheduler.scheduler import Scheduler

            self.scheduler = parts["scheduler"] = Scheduler(
                self.client,
                self.informers,
                config=settings.scheduler,
                clock=self._clock,
                rng=self._rng,
                recorder=events("default-scheduler"),
                traces=self.tracing.pods,
                metrics=PrometheusSchedulerMetrics(self._registry),
            )
        return parts

    def _follow_pods(self) -> None:
        """Tell the traces of every pod that the informer delivers, before any other part hears of it."""
        traces, chosen = self.tracing.pods, self.settings.controllers
        schedulers = {profile.scheduler_name for profile in self.settings.scheduler.profiles}
        runs_scheduler = "scheduler" in chosen
        traces.take_part(
            schedules=lambda name: runs_scheduler and name in schedulers,
            creators=frozenset(kind for name, kind in _CREATORS.items() if name in chosen),
        )
        if self.tracing.sampling.records_any:
            self.client.context_headers = current_headers
        self._pods_seen = self.informers.informer(PODS).add_handler(
            Handlers(
                on_add=lambda pod, _initial: traces.observed(pod),
                on_update=lambda _old, pod: traces.observed(pod),
                on_delete=lambda pod, _unknown: traces.deleted(pod),
            )
        )

    def _add_pages(self, endpoint: Endpoint) -> None:
        endpoint.add_readiness_check("informer-sync", lambda: None if self.synced.is_set() else "caches are not filled")
        endpoint.add_page("/configz", lambda _: self._configuration())
        if "scheduler" in self.settings.controllers:
            endpoint.add_page("/metrics/resources", lambda _: pod_resources(self.informers.informer(PODS).store.list()))

    def _configuration(self) -> dict[str, Any]:
        document: dict[str, Any] = {"tracing.kubeloop.io": self.tracing.document()}
        if "scheduler" in self.settings.controllers:
            document["kubescheduler.config.k8s.io"] = configuration_document(self.settings.scheduler)
        return document


async def _at_once(acting: Callable[[], Awaitable[None]]) -> None:
    await acting()
