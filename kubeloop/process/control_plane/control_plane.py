"""The control plane of one process: informers, controllers, scheduler, tracing and events over one client.

One shared informer per kind serves every component. Nesting defines the order: informers start first and stop last;
events and traces come next, then controllers and scheduler. A component's modules are imported when it is created, so
that the process can connect to the API server before slow imports (numpy above all).
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.other_clusters import Connect, OtherClusters, connect_by_context
from kubeloop.controllers.runtime.queue.reconcile_pace import ReconcilePace
from kubeloop.controllers.runtime.writes.status_delay import STATUS_DELAY_SECONDS
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer
from kubeloop.informers.store import Store
from kubeloop.kube.auth.token_signer import SignToken
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.events.event_recorder import EventBroadcaster
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import Deployment, OwnerReference, Pod
from kubeloop.kube.objects.resources import BY_GROUP_RESOURCE, DEPLOYMENTS, NODES, POD_GROUPS, PODS, Resource
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_table import (
    CONTROLLER_TABLE,
    CONTROLLERS,
    CONTROLLERS_BY_NAME,
    CSR_SIGNING,
    SCHEDULER,
    SERVICE_ACCOUNT_TOKEN,
    ControllerDescriptor,
    default_options,
)
from kubeloop.process.control_plane.leader_election import ElectionSettings
from kubeloop.process.control_plane.scheduler_dump import dump_on_request
from kubeloop.process.metrics.feature_metrics import FeatureGateCollector
from kubeloop.process.metrics.loop_lag import LoopLag
from kubeloop.process.metrics.metrics_registry import PrometheusFamilies, Registerer
from kubeloop.process.metrics.scheduler_gauges import SchedulerGaugesCollector
from kubeloop.process.metrics.trace_metrics import PrometheusTraceMetrics
from kubeloop.process.python_gc import importing
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.lister_resources import lister_resources
from kubeloop.scheduler.metrics import SchedulerMetrics
from kubeloop.tracing.export.exporters import TraceExporter
from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.provider import RecordingSettings, Tracing
from kubeloop.tracing.recording.pod_recorder import PodScope
from kubeloop.tracing.sampling.samplers import NO_TAIL_RULES, TailRules

if TYPE_CHECKING:
    from kubeloop.controllers.api.controller import ControllerFactory
    from kubeloop.kube.auth.certificate_authority import SigningAuthority
    from kubeloop.process.observation.top_owners import TopOwners
    from kubeloop.scheduler.scheduler import Scheduler

T = TypeVar("T")

_SCHEDULER_MODULES = ("kubeloop.scheduler.scheduler", "kubeloop.process.control_plane.scheduler_plugins")


class Settings(msgspec.Struct, frozen=True):
    """Configuration of a control plane.

    controllers: names from CONTROLLERS; those of a feature gate that is off do not run. custom_controllers: those of
    other authors. controller_options: values of the controllers' options by key, where they are not the default.
    drain_seconds: maximum time for reconciles in progress of custom controllers to end. development: the API server is
    kubeloop's own. It is the only one, and controllers whose table row says so start with the first object of their
    resources. root_ca, sign_token, signing_authority: see ControllerContext; a controller without its key does not run.
    trace_tail_rules: rules for traces that are exported although the sampler rejected them. trace_until_ready: a trace
    ends when the pod is Ready, else when it is bound. trace_annotate: workloads are annotated with a trace context, as
    pods always are. event_reasons: of the Events that are recorded; None for all.
    """

    controllers: frozenset[str] = frozenset(CONTROLLERS)
    custom_controllers: tuple[ControllerFactory, ...] = ()
    controller_options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    drain_seconds: float = 30.0
    development: bool = False
    root_ca: str = ""
    sign_token: SignToken | None = None
    signing_authority: SigningAuthority | None = None
    scheduler: SchedulerConfiguration = msgspec.field(default_factory=SchedulerConfiguration)
    feature_gates: FeatureGates = DEFAULT_FEATURE_GATES
    trace_tail_rules: TailRules = NO_TAIL_RULES
    trace_until_ready: bool = False
    trace_annotate: bool = False
    event_reasons: frozenset[str] | None = None

    @property
    def without_key(self) -> frozenset[str]:
        """Controllers whose key is missing."""
        keys = {SERVICE_ACCOUNT_TOKEN: self.sign_token, CSR_SIGNING: self.signing_authority}
        return frozenset(name for name, key in keys.items() if key is None)


class Component(Protocol):
    """A controller or the scheduler: runs until cancelled."""

    async def run(self) -> None: ...


def settings_within_lease(settings: Settings, election: ElectionSettings) -> Settings:
    """Return the settings of a replica that sends no binding after its lease has expired.

    Scheduler and custom controllers may finish what they do for a while after the renew deadline; another replica leads
    from the expiry on.
    """
    seconds = election.lease_duration_seconds - election.renew_deadline_seconds
    scheduler = replace(settings.scheduler, drain_seconds=min(settings.scheduler.drain_seconds, seconds))
    return replace(settings, scheduler=scheduler, drain_seconds=min(settings.drain_seconds, seconds))


def enabled_controllers(controllers: Set[str], gates: FeatureGates) -> frozenset[str]:
    """Return those of `controllers` that have no feature gate, or one that is on."""
    disabled = {row.name for row in CONTROLLER_TABLE if row.feature_gate and not gates.enabled(row.feature_gate)}
    return frozenset(controllers - disabled)


def import_components(controllers: Iterable[str]) -> None:
    """Import the modules of these controllers ahead of ControlPlane.run()."""
    for name in controllers:
        for module in _modules(name):
            importlib.import_module(module)


def initial_components(controllers: Set[str], *, development: bool) -> list[str]:
    """Return those of `controllers` that start with the process, in order of creation."""
    late = {row.name for row in CONTROLLER_TABLE if row.starts_late} if development else set()
    return [name for name in CONTROLLERS if name in controllers and name not in late]


def _modules(name: str) -> tuple[str, ...]:
    return _SCHEDULER_MODULES if name == SCHEDULER else (CONTROLLERS_BY_NAME[name].module,)


async def _import_in_thread(name: str) -> None:
    """Import the modules of a component; without waiting if they are imported already."""
    if not sys.modules.keys() >= {*_modules(name)}:
        with importing():
            await asyncio.to_thread(import_components, (name,))


def watched_resources(name: str, gates: FeatureGates) -> list[Resource[Any]]:
    """Return the resources that a component watches: their informers can start before its modules are imported."""
    if name == SCHEDULER:
        return [NODES, PODS, *lister_resources(gates).values()]
    return _served_resources(CONTROLLERS_BY_NAME[name].watches, gates)


def _served_resources(names: str, gates: FeatureGates) -> list[Resource[Any]]:
    """Return the resources of these names without those whose feature gate is disabled."""
    resources = [BY_GROUP_RESOURCE[name] for name in names.split()]
    return [resource for resource in resources if not resource.gate or gates.enabled(resource.gate)]


class ControlPlane:
    """All components of one process, over one client.

    `informers`, `tracing` and `scheduler` are public for progress display, `kubeloop trace` and `kubeloop explain`.
    custom: controllers of other authors, by name. scheduler: None if this process runs none, and before run() has
    created it. components_created: set when run() has created all components; synced: set when their caches are filled
    as well. dump_requested: set it to write the scheduler's cache and queue to the log.
    """

    def __init__(
        self,
        client: ApiClient,
        settings: Settings,
        *,
        clock: Clock,
        rng: random.Random,
        registry: Registerer,
        exporter: TraceExporter | None = None,
        open_journal: Callable[[], TraceJournal] | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`exporter` replaces the one that the environment configures; `open_journal` opens the journal of traces, if
        they are exported. `connect` connects to other clusters, in place of the kubeconfig's
        contexts."""
        self.client = client
        enabled = enabled_controllers(settings.controllers, settings.feature_gates) - settings.without_key
        self.settings = settings = msgspec.structs.replace(settings, controllers=enabled)
        self.custom = _by_name(settings.custom_controllers)
        self.informers = InformerFactory(client, clock=clock, rng=rng)
        self._clusters = OtherClusters(clock, rng, connect or connect_by_context)
        self.tracing = self._new_tracing(clock, rng, registry, exporter, open_journal)
        self.lag = LoopLag(registry)
        self.components_created = asyncio.Event()
        self.synced = asyncio.Event()
        self.scheduler: Scheduler | None = None
        self.dump_requested = asyncio.Event()
        self._clock = clock
        self._rng = rng
        self._registry = registry
        self._recorder = EventBroadcaster(
            client,
            clock=clock,
            rng=rng,
            is_binding=self._is_binding,
            server_is_busy=self._server_is_busy,
            reasons=settings.event_reasons,
        )
        self._pace = ReconcilePace(self._has_urgent_work, self._server_is_busy)
        self._metrics = PrometheusFamilies(registry)
        registry.register(FeatureGateCollector(settings.feature_gates))
        self._top_owners: TopOwners | None = None  # created when a pod needs it
        self._top_owner_needed = asyncio.Event()
        self._trace_handlers: list[HandlerRegistration[Any]] = []
        self._traces_pods = bool(self.settings.controllers or [*self._pod_creators()])
        self._record_pods()

    @property
    def deployments(self) -> Store[Deployment] | None:
        """Cached Deployments; None unless the Deployment controller runs: pages alone do not justify an informer."""
        return self.informers.informer(DEPLOYMENTS).store if "deployment" in self.settings.controllers else None

    @property
    def all_informers(self) -> list[SharedInformer[Any]]:
        """Informers of all clusters."""
        return [*self.informers.informers, *self._clusters.all_informers]

    @property
    def pods(self) -> Store[Pod]:
        """Cached Pods; empty if no component watches them."""
        return self.informers.informer(PODS).store if self._traces_pods else Store()

    async def run(
        self,
        elect: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None,
    ) -> None:
        """Run until cancelled. `elect` decides when controllers and scheduler run (leader election); by default they
        run immediately. A thread imports components that are not imported yet while caches fill, and each component
        starts as soon as it is created.

        Raises ExceptionGroup if a component crashes or its configuration is invalid (UserError); all others are then
        cancelled. Cancellation: bindings in flight, events and spans are drained first, for a bounded time.
        """
        loop = asyncio.get_running_loop()
        settings = self.settings
        initial = initial_components(settings.controllers, development=settings.development)
        components: dict[str, asyncio.Future[Component]] = {
            name: loop.create_future() for name in (*self.custom, *initial)
        }
        for name in initial:
            for resource in watched_resources(name, settings.feature_gates):
                self.informers.informer(resource)
        self.tracing.is_leader = elect is None
        async with asyncio.TaskGroup() as outer:
            # first: components that are imported already are created before a request is sent
            outer.create_task(self._create_components(components), name="components")
            outer.create_task(self.lag.run(), name="loop-lag")
            clusters_task = outer.create_task(self._clusters.run(), name="other-clusters")
            outer.create_task(self._dump_on_request(), name="dump")
            outer.create_task(self._read_top_owners(), name="top-owners")
            informers_task = outer.create_task(self.informers.run(), name="informers")
            try:
                async with asyncio.TaskGroup() as reporting:
                    tasks = [
                        reporting.create_task(self.tracing.run(), name="tracing"),
                        reporting.create_task(self._recorder.run(), name="events"),
                    ]
                    try:
                        await self.informers.wait_synced()
                        for handler in self._trace_handlers:
                            await handler.wait_synced()
                        self.tracing.restored_pods.informer_synced()
                        self.tracing.groups.informer_synced()
                        await (elect or _run_immediately)(lambda: self._run_components(components))
                    finally:
                        for task in tasks:
                            task.cancel()
            finally:
                informers_task.cancel()
                clusters_task.cancel()

    async def _create_components(self, components: dict[str, asyncio.Future[Component]]) -> None:
        """Import and create one component after the other."""
        for name, future in components.items():
            if name not in self.custom:
                await _import_in_thread(name)
            future.set_result(self._create_component(name))
        self.components_created.set()
        await self.informers.wait_synced()
        self.synced.set()

    async def _run_components(self, components: dict[str, asyncio.Future[Component]]) -> None:
        if not self.tracing.is_leader:
            self.tracing.start_leading()
        async with asyncio.TaskGroup() as group:
            for row in CONTROLLER_TABLE:
                late = row.name in self.settings.controllers and row.name not in components
                if late and not row.development_server:
                    group.create_task(self._run_late(row), name=row.name)
            for name, future in components.items():
                component = await future
                group.create_task(component.run(), name=name)

    async def _run_late(self, row: ControllerDescriptor) -> None:
        """Run a controller from the first object of its resources on, or after its delay.

        Begins to watch before the garbage collector does, which then shares the informers.
        """
        if row.starts_with:
            resources = _served_resources(row.starts_with, self.settings.feature_gates)
            await self.informers.wait_for_object(resources, row.starts_when)
        await asyncio.sleep(row.starts_after)
        await _import_in_thread(row.name)
        await self._create_component(row.name).run()

    async def _dump_on_request(self) -> None:
        await self.dump_requested.wait()
        await dump_on_request(self.client, self.dump_requested, lambda: self.scheduler)

    async def _read_top_owners(self) -> None:
        await self._top_owner_needed.wait()
        module = await asyncio.to_thread(importlib.import_module, "kubeloop.process.observation.top_owners")
        self._top_owners = module.TopOwners(self.client)
        await self._top_owners.run()

    def _find_top_owner(self, namespace: str, controller: OwnerReference) -> tuple[str, str] | None:
        if self._top_owners is None:
            self._top_owner_needed.set()
            return None
        top_owner = self._top_owners.find(namespace, controller)
        return (top_owner.kind, top_owner.name) if top_owner is not None else None

    def _new_tracing(
        self,
        clock: Clock,
        rng: random.Random,
        registry: Registerer,
        exporter: TraceExporter | None,
        open_journal: Callable[[], TraceJournal] | None,
    ) -> Tracing:
        settings = self.settings
        metrics = PrometheusTraceMetrics(registry)
        tracing = Tracing(
            clock=clock,
            rng=rng,
            exporter=exporter,
            settings=RecordingSettings(
                scope=PodScope(
                    schedulers=self._scheduler_names(),
                    creators=frozenset(self._pod_creators()),
                ),
                tail_rules=settings.trace_tail_rules,
                until_ready=settings.trace_until_ready,
                annotates=settings.trace_annotate,
            ),
            metrics=metrics,
            find_top_owner=self._find_top_owner,
            open_journal=open_journal,
        )
        metrics.open.set_function(tracing.open_pods.count)
        return tracing

    def _create_component(self, name: str) -> Component:
        """Create one of CONTROLLERS, which registers with the informers. Raises UserError."""
        if name == SCHEDULER:
            self.scheduler = self._new_scheduler()
            return self.scheduler

        if name in self.custom:
            from kubeloop.controllers.api.runner import ControllerRunner

            return ControllerRunner(self._context(name, 1, {}), self.custom[name])
        descriptor = CONTROLLERS_BY_NAME[name]
        options = {**default_options(), **self.settings.controller_options}
        workers = options[descriptor.concurrency.key] if descriptor.concurrency is not None else 1
        context = self._context(descriptor.event_component or descriptor.kubernetes_name, workers, options)
        factory = getattr(importlib.import_module(descriptor.module), descriptor.factory.rpartition(":")[2])
        if hasattr(factory, "watches"):  # a subclass of kubeloop.controllers.api.Controller
            from kubeloop.controllers.api.runner import new_controller

            return cast("Component", new_controller(factory, context))
        return cast("Component", factory(context))

    def _context(self, event_component: str, workers: int, options: Mapping[str, Any]) -> ControllerContext:
        return ControllerContext(
            client=self.client,
            informers=self.informers,
            clock=self._clock,
            traces=self.tracing.reconciles,
            pod_traces=self.tracing.pods,
            events=self._recorder.for_component(event_component),
            metrics=self._metrics,
            feature_gates=self.settings.feature_gates,
            workers=workers,
            options=options,
            single_api_server=self.settings.development,
            root_ca=self.settings.root_ca,
            sign_token=self.settings.sign_token,
            signing_authority=self.settings.signing_authority,
            status_delay_seconds=STATUS_DELAY_SECONDS,
            pace=self._pace,
            drain_seconds=self.settings.drain_seconds,
            clusters=self._clusters,
        )

    def _pod_creators(self) -> Iterator[str]:
        """Yield the kinds of owners whose pods this process creates."""
        for descriptor in CONTROLLER_TABLE:
            if descriptor.name in self.settings.controllers and descriptor.creates_pods_for:
                yield descriptor.creates_pods_for
        if self.custom:
            from kubeloop.controllers.api.runner import created_pods_owner

            yield from filter(None, map(created_pods_owner, self.custom.values()))

    def _has_urgent_work(self) -> bool:
        return self.scheduler is not None and self.scheduler.has_urgent_work

    def _is_binding(self) -> bool:
        return self.scheduler is not None and self.scheduler.is_binding

    def _server_is_busy(self) -> bool:
        return self.scheduler is not None and self.scheduler.waits_for_busy_server

    def _new_scheduler(self) -> Scheduler:
        from kubeloop.process.control_plane.scheduler_plugins import plugins_for
        from kubeloop.scheduler.scheduler import Scheduler

        context = SchedulerContext(
            client=self.client,
            clock=self._clock,
            rng=self._rng,
            recorder_for=functools.cache(self._recorder.for_component),
            traces=self.tracing.pods,
            metrics=SchedulerMetrics(self._metrics, self.settings.feature_gates),
            feature_gates=self.settings.feature_gates,
            group_traces=self.tracing.groups,
            turn_ended=self._pace.resume,
        )
        config = self.settings.scheduler
        scheduler = Scheduler(context, self.informers, config, plugins_for(config.profiles))
        self._registry.register(SchedulerGaugesCollector(scheduler.gauges))
        return scheduler

    def _record_pods(self) -> None:
        """Pass every pod event to the trace recorder, before any other handler receives it.

        A process with custom controllers alone that create no pods needs no access to pods.
        """
        if not self._traces_pods:
            return
        traces = self.tracing.pods
        self._record_events(PODS, traces.observed, traces.deleted)
        if SCHEDULER in self.settings.controllers and self.settings.feature_gates.enabled("GenericWorkload"):
            self._record_pod_groups(self._scheduler_names())

    def _scheduler_names(self) -> frozenset[str]:
        """Return the names of the schedulers that this process runs."""
        if SCHEDULER not in self.settings.controllers:
            return frozenset()
        return frozenset(profile.scheduler_name for profile in self.settings.scheduler.profiles)

    def _record_pod_groups(self, schedulers: Set[str]) -> None:
        """Pass the events of pod groups, and of their pods that this process schedules, to the trace recorder."""
        groups = self.tracing.groups

        def pod_observed(pod: Pod) -> None:
            if pod.spec.scheduling_group is not None and pod.spec.scheduler_name in schedulers:
                groups.pod_observed(pod)

        def pod_deleted(pod: Pod) -> None:
            if pod.spec.scheduling_group is not None:
                groups.pod_deleted(pod)

        self._record_events(PODS, pod_observed, pod_deleted)
        self._record_events(POD_GROUPS, groups.group_observed, groups.group_deleted)

    def _record_events(
        self, resource: Resource[T], observed: Callable[[T], None], deleted: Callable[[T], None]
    ) -> None:
        self._trace_handlers.append(self.informers.informer(resource).on_latest(observed, deleted=deleted))


def _by_name(factories: Iterable[ControllerFactory]) -> dict[str, ControllerFactory]:
    """Return custom controllers by name. Raises UserError for a name that is used twice."""
    by_name: dict[str, ControllerFactory] = {}
    for factory in factories:
        from kubeloop.controllers.api.runner import controller_class

        name = controller_class(factory).name
        if name in by_name or name in CONTROLLERS:
            raise UserError(f"there are two controllers named '{name}'", hint="give one of them another name")
        by_name[name] = factory
    return by_name


async def _run_immediately(run: Callable[[], Awaitable[None]]) -> None:
    await run()
