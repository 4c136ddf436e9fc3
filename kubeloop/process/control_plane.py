"""The composition of one process: informers, controllers, scheduler, tracing and events over one client.

One shared informer per kind serves every part (DESIGN.md, "How a pod travels"). Starting order is nesting order:
informers first and last, then what reports (events, traces), then what acts. Each part's modules are imported when it
is made, so that a start need not wait for all of them (numpy above all) before it talks to the API server.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import UserError
from kubeloop.kube.event_recorder import EventRecorder
from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    Resource,
)
from kubeloop.process.metrics.controller_metrics import PrometheusControllerMetrics
from kubeloop.process.metrics.loop_lag import LoopLag
from kubeloop.process.metrics.registry import Registration
from kubeloop.process.metrics.scheduler_metrics import PrometheusSchedulerMetrics
from kubeloop.process.metrics.trace_metrics import PrometheusTraceMetrics
from kubeloop.process.python_gc import importing
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.lister_resources import LISTER_RESOURCES
from kubeloop.tracing.provider import Tracing
from kubeloop.tracing.recording.current_span import current_headers
from kubeloop.tracing.sampling.samplers import NO_RULES, TailRules

if TYPE_CHECKING:
    from kubeloop.scheduler.scheduler import Scheduler

_MODULES = {
    "deployment": "kubeloop.controllers.deployment.controller",
    "replicaset": "kubeloop.controllers.replicaset.controller",
    "replicationcontroller": "kubeloop.controllers.replicaset.controller",
    "garbagecollector": "kubeloop.controllers.garbagecollector.controller",
    "namespace": "kubeloop.controllers.namespace.controller",
    "resourcequota": "kubeloop.controllers.resourcequota.controller",
    "scheduler": "kubeloop.scheduler.scheduler",
}
"""Of each part, in the order in which they are made: the one that takes longest to import is the last."""

CONTROLLERS = tuple(_MODULES)

_NAMES_OF_KUBERNETES = {
    "garbage-collector-controller": "garbagecollector",
    **{f"{name}-controller": name for name in CONTROLLERS if name not in ("garbagecollector", "scheduler")},
}
"""As kube-controller-manager calls them since v1.28. Ours are those it had before, and still takes."""

_WATCHED: dict[str, tuple[Resource[Any], ...]] = {
    "deployment": (DEPLOYMENTS, REPLICA_SETS, PODS),
    "replicaset": (REPLICA_SETS, PODS),
    "replicationcontroller": (REPLICATION_CONTROLLERS, PODS),
    "namespace": (NAMESPACES, PODS),
    "resourcequota": (RESOURCE_QUOTAS,),
    "scheduler": (NODES, PODS, *LISTER_RESOURCES.values()),
}
"""What a part will ask informers for, so that they can begin before it is imported."""

_CREATORS = {"replicaset": "ReplicaSet", "replicationcontroller": "ReplicationController"}


class Settings(msgspec.Struct, frozen=True):
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
    concurrent_resource_quota_syncs: int = 5
    namespace_grace_seconds: float = 5.0
    scheduler: SchedulerConfiguration = msgspec.field(default_factory=SchedulerConfiguration)
    trace_keep: TailRules = NO_RULES
    trace_until_ready: bool = False


class Part(Protocol):
    """Something that runs until cancelled."""

    async def run(self) -> None: ...


def parse_controllers(text: str) -> frozenset[str]:
    """The meaning of --controllers: names, ours or Kubernetes', "*" for all, "-name" to leave one out.

    Raises UserError.
    """
    chosen: set[str] = set()
    left_out: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.removeprefix("-")
        name = _NAMES_OF_KUBERNETES.get(name, name)
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
    for name in CONTROLLERS:
        if name in controllers:
            importlib.import_module(_MODULES[name])


class ControlPlane:
    """All parts of one process, over one client.

    `informers`, `tracing` and `scheduler` are there for those who look on (progress, `kubeloop trace` and `explain`).
    scheduler: None if this process runs none, and before run() has made it. made: when run() has made all parts;
    synced: when the caches are filled, too. dump_requested: set it to have what the scheduler holds written to the log.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        clock: Clock,
        rng: random.Random,
        registry: Registration,
        tracing: Tracing | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.informers = InformerFactory(client, clock=clock, rng=rng)
        self.tracing = tracing or self._new_tracing(clock, rng, registry)
        self.lag = LoopLag(registry)
        self.made = asyncio.Event()
        self.synced = asyncio.Event()
        self.scheduler: Scheduler | None = None
        self.dump_requested = asyncio.Event()
        self._clock = clock
        self._rng = rng
        self._registry = registry
        self._recorder = EventRecorder(client, clock=clock, rng=rng)
        self._metrics = PrometheusControllerMetrics(registry)
        self._follow_pods()

    async def run(
        self,
        acting: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None,
        *,
        import_meanwhile: bool = False,
    ) -> None:
        """Run until cancelled. `acting` decides when controllers and scheduler run (leader election); by default
        at once. With `import_meanwhile`, a thread imports the parts while caches are filled, and each part acts once it
        is there.

        Raises ExceptionGroup if a part crashes; all others are then cancelled. UserError of a configuration that
        cannot work comes in such a group, or before anything is asked of the API server. Cancellation: what must not
        be lost (bindings in flight, events, spans) is drained first, for a bounded time.
        """
        loop = asyncio.get_running_loop()
        parts: dict[str, asyncio.Future[Part]] = {
            name: loop.create_future() for name in CONTROLLERS if name in self.settings.controllers
        }
        if import_meanwhile:
            for name in parts:
                for resource in _WATCHED.get(name, ()):
                    self.informers.informer(resource)
        else:
            for name, made in parts.items():
                made.set_result(self._make(name))
            self.made.set()
        self.tracing.leads = acting is None
        async with asyncio.TaskGroup() as looking_on:
            looking_on.create_task(self.lag.run(), name="loop-lag")
            looking_on.create_task(self._dump_on_request(), name="dump")
            feeding = looking_on.create_task(self.informers.run(), name="informers")
            if import_meanwhile:
                looking_on.create_task(self._make_meanwhile(parts), name="imports")
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
                        if not import_meanwhile:
                            self.synced.set()
                        await (acting or _at_once)(lambda: self._act(parts))
                    finally:
                        for task in tasks:
                            task.cancel()
            finally:
                feeding.cancel()

    async def _make_meanwhile(self, parts: dict[str, asyncio.Future[Part]]) -> None:
        """Import and make one part after the other."""
        with importing():
            for name, made in parts.items():
                await asyncio.to_thread(importlib.import_module, _MODULES[name])
                made.set_result(self._make(name))
        self.made.set()
        await self.informers.wait_synced()
        self.synced.set()

    async def _act(self, parts: dict[str, asyncio.Future[Part]]) -> None:
        if not self.tracing.leads:
            self.tracing.begin_to_lead()
        async with asyncio.TaskGroup() as group:
            for name, made in parts.items():
                part = await made
                group.create_task(part.run(), name=name)

    async def _dump_on_request(self) -> None:
        await self.dump_requested.wait()
        from kubeloop.process.scheduler_dump import dump_on_request

        await dump_on_request(self.client, self.dump_requested, lambda: self.scheduler)

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

    def _make(self, name: str) -> Part:
        """One of CONTROLLERS. It registers with the informers as it is made. Raises UserError."""
        match name:
            case "deployment":
                return self._new_deployment_controller()
            case "replicaset" | "replicationcontroller":
                return self._new_replica_set_controller(replication=name == "replicationcontroller")
            case "garbagecollector":
                return self._new_garbage_collector()
            case "namespace":
                return self._new_namespace_controller()
            case "resourcequota":
                return self._new_resource_quota_controller()
            case _:
                self.scheduler = self._new_scheduler()
                return self.scheduler

    def _new_deployment_controller(self) -> Part:
        from kubeloop.controllers.deployment.controller import DeploymentController

        return DeploymentController(
            self.client,
            self.informers,
            clock=self._clock,
            recorder=self._recorder.for_component("deployment-controller"),
            traces=self.tracing.reconciles,
            metrics=self._metrics,
            workers=self.settings.concurrent_deployment_syncs,
        )

    def _new_replica_set_controller(self, *, replication: bool) -> Part:
        from kubeloop.controllers.replicaset.controller import ReplicaSetController
        from kubeloop.controllers.replicaset.replication_controllers import REPLICA_SET, REPLICATION_CONTROLLER

        settings = self.settings
        return ReplicaSetController(
            self.client,
            self.informers,
            clock=self._clock,
            recorder=self._recorder.for_component("replication-controller" if replication else "replicaset-controller"),
            traces=self.tracing.reconciles,
            pod_traces=self.tracing.pods,
            metrics=self._metrics,
            workers=settings.concurrent_rc_syncs if replication else settings.concurrent_replicaset_syncs,
            variant=REPLICATION_CONTROLLER if replication else REPLICA_SET,
        )

    def _new_garbage_collector(self) -> Part:
        from kubeloop.controllers.garbagecollector.controller import GarbageCollector

        return GarbageCollector(
            self.client,
            self.informers,
            recorder=self._recorder.for_component("garbage-collector-controller"),
            traces=self.tracing.reconciles,
            metrics=self._metrics,
            workers=self.settings.concurrent_gc_syncs,
        )

    def _new_namespace_controller(self) -> Part:
        from kubeloop.controllers.namespace.controller import NamespaceController

        return NamespaceController(
            self.client,
            self.informers,
            clock=self._clock,
            traces=self.tracing.reconciles,
            metrics=self._metrics,
            workers=self.settings.concurrent_namespace_syncs,
            grace_seconds=self.settings.namespace_grace_seconds,
        )

    def _new_resource_quota_controller(self) -> Part:
        from kubeloop.controllers.resourcequota.controller import ResourceQuotaController

        return ResourceQuotaController(
            self.client,
            self.informers,
            clock=self._clock,
            traces=self.tracing.reconciles,
            metrics=self._metrics,
            workers=self.settings.concurrent_resource_quota_syncs,
        )

    def _new_scheduler(self) -> Scheduler:
        from kubeloop.scheduler.scheduler import Scheduler

        return Scheduler(
            self.client,
            self.informers,
            config=self.settings.scheduler,
            clock=self._clock,
            rng=self._rng,
            recorder=self._recorder.for_component("default-scheduler"),
            traces=self.tracing.pods,
            metrics=PrometheusSchedulerMetrics(self._registry),
        )

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
            ResourceEventHandlerFuncs(
                on_add=lambda pod, _initial: traces.observed(pod),
                on_update=lambda _old, pod: traces.observed(pod),
                on_delete=lambda pod, _unknown: traces.deleted(pod),
            )
        )


async def _at_once(acting: Callable[[], Awaitable[None]]) -> None:
    await acting()
