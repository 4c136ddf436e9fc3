"""Runs an author's controller with kubeloop's informers, work queue, metrics and traces."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from kubeloop.controllers.api.cache import Cache, NotWatched
from kubeloop.controllers.api.client import Client, NoKindMatchError
from kubeloop.controllers.api.controller import (
    BACKOFF,
    Controller,
    ControllerFactory,
    ControllerHandle,
    ControllerLog,
    Result,
    TerminalError,
    WatchedCluster,
)
from kubeloop.controllers.api.objects import ApiObject, Request, metadata_of
from kubeloop.controllers.api.recorder import EventRecorder
from kubeloop.controllers.api.watches import For, InIndex, Owns, Watch, Watches, by_owner, to_self
from kubeloop.controllers.runtime.controller import EventDrivenController, Requeue
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.pod_control import PodControl
from kubeloop.controllers.runtime.queue.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
)
from kubeloop.controllers.runtime.resources.served_resources import ServedResources
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.user_error import UserError
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION

_TIME_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
)  # fmt: skip  # Source: controller-runtime pkg/internal/controller/metrics


def controller_class(factory: ControllerFactory) -> type[Controller]:
    """Return the class of a controller. Raises UserError unless its declarations are complete."""
    declared: Any = factory
    while isinstance(declared, functools.partial):
        declared = declared.func
    if not (isinstance(declared, type) and issubclass(declared, Controller)):
        raise UserError(
            f"{factory!r} is not a Controller",
            hint="pass a subclass of kubeloop.controllers.api.Controller, or functools.partial(Sites, dns=...)",
        )
    where, watches = f"controller {declared.__qualname__}", getattr(declared, "watches", ())
    if not getattr(declared, "name", ""):
        raise UserError(f"{where} has no name", hint='add name = "sites" to the class')
    if not watches:
        raise UserError(f"{where} watches nothing", hint="add watches = (For(SITES),) to the class")
    if len([watch for watch in watches if isinstance(watch, For)]) > 1:
        raise UserError(f"{where} has two For", hint="write a controller for each, or use Watches for one of them")
    if any(isinstance(watch, Owns) for watch in watches) and reconciled_resource(declared) is None:
        raise UserError(
            f"{where} has Owns without For", hint="add For(...), the resource of the owners, to its watches"
        )
    return declared


def reconciled_resource(declared: type[Controller]) -> Resource[Any] | None:
    """Return the resource of the `For` of a controller."""
    return next((watch.resource for watch in declared.watches if isinstance(watch, For)), None)


def created_pods_owner(factory: ControllerFactory) -> str:
    """Return the kind of the owner of the Pods that a controller creates; "" if it owns none."""
    declared = controller_class(factory)
    resource = reconciled_resource(declared)
    owns_pods = any(isinstance(watch, Owns) and watch.resource.group_resource == "pods" for watch in declared.watches)
    return resource.kind if resource is not None and owns_pods else ""


class ControllerRunner(EventDrivenController):
    """One controller in one process; `run()` works until cancelled."""

    def __init__(
        self,
        context: ControllerContext,
        factory: ControllerFactory,
        *,
        workers: int | None = None,
        resyncs: bool = True,
    ) -> None:
        """workers: number of concurrent reconciles, instead of that of the controller's options. resyncs: False for a
        controller that reconciles after events only."""
        declared = controller_class(factory)
        options = declared.options
        self.name = declared.name
        limiter = MaxOfRateLimiter(
            ItemExponentialFailureRateLimiter(options.backoff_base_seconds, options.backoff_max_seconds),
            BucketRateLimiter(options.requeues_per_second, options.requeue_burst),
        )
        super().__init__(
            context,
            declared.name,
            declared.queue_name,
            limiter,
            workers=workers or options.max_concurrent_reconciles,
            is_terminal=lambda error: isinstance(error, TerminalError),
            drain_seconds=min(options.graceful_shutdown_seconds, context.drain_seconds),
        )
        self._informers = context.informers
        self._traces = context.traces
        self._seconds = context.seconds
        self._metrics = _Metrics(context, declared)
        self._for = reconciled_resource(declared)
        self._kind = self._for.kind.lower() if self._for is not None else ""
        self._resync_seconds = options.resync_seconds if resyncs else 0.0
        self._versions: dict[str, Callable[[], str]] = {}  # of the caches, by the text of an informer
        self._consistency = ConsistencyStore(self._versions)
        self._added: list[Watch[Any]] = []
        self._namespaces = options.namespaces
        self._field_manager = declared.field_manager or declared.name
        self._resources = [watch.resource for watch in declared.watches]
        self._other_clusters = context.clusters
        self._watched_clusters: dict[str, _ClusterAccess] = {}
        self._clients: dict[InformerFactory, Client] = {}  # of connect()
        self._own = own = self._access(context.informers, context.client, PodControl(context))
        self._cache = own.cache
        self.controller = factory(
            ControllerHandle(
                cache=own.cache,
                client=own.client,
                recorder=EventRecorder(context.events),
                clock=context.clock,
                log=ControllerLog(logging.getLogger(f"kubeloop.controller.{declared.name}"), {"controller": self.name}),
                metrics=context.metrics,
                add_watch=self._add_served_watch,
                cluster=self._cluster,
                connect=self._connect,
            )
        )
        self._registrations: list[HandlerRegistration[Any]] = []
        self._watches_of_others = []
        for watch in declared.watches:
            if isinstance(watch, Watches) and watch.cluster:
                self._watches_of_others.append(watch)
            else:
                self._add_declared_watch(watch, own)

    async def run(self) -> None:
        """Reconcile until cancelled, once the handlers have received all objects of the first lists."""
        for watch in self._watches_of_others:
            self._add_declared_watch(watch, await self._connected(watch.cluster))
        await super().run()

    def _add_declared_watch(self, watch: Watch[Any], cluster: _ClusterAccess) -> None:
        registrations = self._add_watch(watch, cluster)
        if not watch.optional:
            self._registrations += registrations

    # --- clusters ----------------------------------------------------------------------------------------------------

    def _access(self, informers: InformerFactory, raw: ApiClient, pods: PodControl | None = None) -> _ClusterAccess:
        cache = Cache(self.name, informers, self._namespaces)
        writes = _OwnWrites(cache, raw, self._consistency)
        client = Client(
            raw,
            field_manager=self._field_manager,
            resources=self._resources,
            observer=writes,
            pods=pods,
        )
        return _ClusterAccess(cache, client, writes, ServedResources(raw))

    async def _connected(self, name: str) -> _ClusterAccess:
        """Return another cluster. Raises UserError if there is no connection to it."""
        informers = await self._informers_of(None, name)
        if name not in self._watched_clusters:
            watched = self._watched_clusters[name] = self._access(informers, informers.client)
            self._clients[informers] = watched.client  # so that connect() lets reconciles read their own writes, too
        return self._watched_clusters[name]

    async def _informers_of(self, kubeconfig: str | None, context: str | None) -> InformerFactory:
        if self._other_clusters is None:
            raise UserError(f"{self.name}: this process connects to no other cluster", hint="run it with a Manager")
        return await self._other_clusters.informers(context, kubeconfig)

    def _cluster(self, name: str) -> WatchedCluster:
        watched = self._watched_clusters.get(name)
        if watched is None:
            raise NotWatched(
                f"no resource of the cluster {name} is in the cache: add Watches(..., cluster='{name}') to the watches "
                "of the controller"
            )
        return WatchedCluster(watched.cache, watched.client)

    async def _connect(self, kubeconfig: str | None, context: str | None) -> Client:
        """Return a client of another cluster."""
        informers = await self._informers_of(kubeconfig, context)
        if informers not in self._clients:
            client = Client(informers.client, field_manager=self._field_manager, resources=self._resources)
            self._clients[informers] = client
        return self._clients[informers]

    async def reconcile(self, key: str) -> float | None:
        """Run the author's reconcile, once the caches show the last writes of `key`; see ReconcileFunction."""
        for cluster in (self._own, *self._watched_clusters.values()):
            if cluster.writes.is_uncertain(key):
                await cluster.writes.await_uncertain(key)
        self._consistency.ensure_ready(key)
        reason = self.queue.pop_reasons(key)
        request = Request.parse(key)
        obj = self._cache.get(self._for, request) if self._for is not None else None
        if obj is None:
            self._traces.forget(self.name, key)
        started_at, outcome = self._seconds(), "error"
        self._metrics.started()
        try:
            with self._traces.reconcile(self.name, key, reason, self._kind) as reconcile:
                if obj is not None:
                    reconcile.link(metadata_of(obj).annotations.get(TRACEPARENT_ANNOTATION, ""))
                result = await self.controller.reconcile(request)
            outcome = "requeue" if result is BACKOFF else "success" if result is None else "requeue_after"
        except TerminalError as error:
            outcome = "terminal"
            self.controller.log.error("reconcile failed, not retried: %s %s: %s", self.name, key, error)
            raise
        finally:
            self._metrics.ended(outcome, max(0.0, self._seconds() - started_at))
        return _requeue_seconds(result)

    # --- watches -----------------------------------------------------------------------------------------------------

    def _add_watch(self, watch: Watch[Any], cluster: _ClusterAccess) -> list[HandlerRegistration[Any]]:
        self._added.append(watch)
        registrations = []
        for informer in cluster.cache.add(watch):
            self._versions[repr(id(informer))] = functools.partial(getattr, informer, "last_resource_version")
            handler = _EventHandler(watch, self._requests_of(watch), self._enqueue)
            resync_seconds = self._resync_seconds if isinstance(watch, For) else 0.0
            registrations.append(informer.add_handler(handler, resync_seconds=resync_seconds))
        return registrations

    def _requests_of(self, watch: Watch[Any]) -> Callable[[Any], Iterable[Request]]:
        if isinstance(watch, For):
            return to_self
        if isinstance(watch, Owns):
            assert self._for is not None
            return by_owner(self._for, match_every_owner=watch.match_every_owner)
        requests = watch.requests if isinstance(watch, Watches) else None
        if isinstance(requests, InIndex):
            return functools.partial(self._requests_in_index, requests)
        return requests or (lambda obj: ())

    def _requests_in_index(self, index: InIndex, obj: Any) -> list[Request]:
        values = index.value(obj)
        return [
            request
            for value in ([values] if isinstance(values, str) else values)
            for request in self._cache.requests_by_index(index.resource, index.index, value)
        ]

    def _enqueue(self, request: Request, reason: str, cause: str) -> None:
        self.queue.add(request.key, reason)
        if cause:
            self._traces.add_cause(self.name, request.key, cause)

    async def _add_served_watch(self, watch: Watch[Any]) -> None:
        """Add a watch during a reconcile, and wait for its objects. Raises NoKindMatchError if it is not served."""
        if watch in self._added:
            return
        resource, cluster = watch.resource, self._own
        if isinstance(watch, Watches) and watch.cluster:
            cluster = await self._connected(watch.cluster)
        if await cluster.served.find(lambda served: served.find(resource.api_version, resource.kind)) is None:
            raise NoKindMatchError(f"the API server does not serve {resource.group_resource}")
        for registration in self._add_watch(watch, cluster):
            await registration.wait_synced()


class _OwnWrites:
    """Writes of the controller to one cluster; the next reconcile of a key starts when the cache shows its writes."""

    def __init__(self, cache: Cache, client: ApiClient, consistency: ConsistencyStore) -> None:
        self._cache = cache
        self._client = client
        self._consistency = consistency
        self._uncertain: dict[str, set[tuple[Resource[Any], Request]]] = {}  # by key: writes without response

    def wrote(self, resource: Resource[Any], obj: ApiObject) -> None:
        """Postpone the next reconcile of the present key until the cache shows this object. See WriteObserver."""
        informer, reconcile = self._cache.informer_of(resource, obj), current_span.get()
        if informer is not None and isinstance(reconcile, Reconcile):
            self._consistency.wrote_at(reconcile.key, "", repr(id(informer)), metadata_of(obj).resource_version)

    def maybe_wrote(self, resource: Resource[Any], request: Request) -> None:
        reconcile = current_span.get()
        if isinstance(reconcile, Reconcile) and self._cache.has(resource):
            self._uncertain.setdefault(reconcile.key, set()).add((resource, request))

    def cached(self, resource: Resource[Any], request: Request) -> ApiObject | None:
        obj: ApiObject | None = self._cache.find(resource, request)
        return obj

    def is_uncertain(self, key: str) -> bool:
        """Return True if reconciles of `key` have written without a response."""
        return key in self._uncertain

    async def await_uncertain(self, key: str) -> None:
        """Postpone the reconcile of `key`, after writes without a response, until the caches show their objects as they
        are now; an object of which only the deletion is missing, or without a name, until they show all writes."""
        writes = self._uncertain.pop(key, set())
        while writes:
            resource, request = next(iter(writes))
            try:
                is_shown = bool(request.name) and await self._await_object(key, resource, request)
                version = "" if is_shown else (await self._client.list(resource, limit=1)).metadata.resource_version
            except BaseException:
                self._uncertain.setdefault(key, set()).update(writes)
                raise
            writes.discard((resource, request))
            if not is_shown:
                for informer in self._cache.informers_of(resource):
                    self._consistency.wrote_at(key, "", repr(id(informer)), version)

    async def _await_object(self, key: str, resource: Resource[Any], request: Request) -> bool:
        """Postpone the reconcile until the cache shows this object. Returns False if an event for that may not come."""
        cached = self._cache.find(resource, request)
        try:
            obj = await self._client.get(resource, request.name, request.namespace)
        except NotFound:
            return cached is None
        informer, version = self._cache.informer_of(resource, obj), metadata_of(obj).resource_version
        if informer is None:  # the selector of the watch does not match it
            return cached is None
        if cached is None or metadata_of(cached).resource_version != version:
            self._consistency.wrote_at(key, "", repr(id(informer)), version)
        return True


class _ClusterAccess(NamedTuple):
    """Caches, client and pending writes of a controller in one cluster. served: resources of its API server."""

    cache: Cache
    client: Client
    writes: _OwnWrites
    served: ServedResources


def new_controller(factory: Any, context: ControllerContext) -> Any:
    """Return what runs a built-in controller: its factory takes the context, or is a subclass of Controller."""
    if isinstance(factory, type) and issubclass(factory, Controller):
        # like all built-in controllers, it is cancelled at once when the process stops, and has no resync
        return ControllerRunner(replace(context, drain_seconds=0.0), factory, workers=context.workers, resyncs=False)
    return factory(context)


class _EventHandler:
    """Adds the requests of a watch's events to the queue."""

    def __init__(
        self,
        watch: Watch[Any],
        requests_of: Callable[[Any], Iterable[Request]],
        enqueue: Callable[[Request, str, str], None],
    ) -> None:
        self._watch = watch
        self._kind = watch.resource.singular or watch.resource.kind.lower()
        self._requests_of = requests_of
        self._enqueue = enqueue

    def on_add(self, obj: Any, initial: bool) -> None:
        self._handle(None, obj, "initial list" if initial else f"{self._kind} added")

    def on_update(self, old: Any, new: Any) -> None:
        self._handle(old, new, "resync" if old is new else f"{self._kind} changed")

    def on_delete(self, obj: Any, final_state_unknown: bool) -> None:
        self._handle(obj, None, f"{self._kind} deleted")

    def _handle(self, old: Any, new: Any, reason: str) -> None:
        if not all(predicate(old, new) for predicate in self._watch.predicates):
            return
        requests = dict.fromkeys(self._requests_of(new) if new is not None else ())
        if old is not None and old is not new:
            requests |= dict.fromkeys(self._requests_of(old))
        cause = "" if isinstance(self._watch, For) else _new_cause(old, new)
        for request in requests:
            self._enqueue(request, reason, cause)


def _new_cause(old: ApiObject | None, new: ApiObject | None) -> str:
    """Return the trace context that an event brings: of the request that changed the object."""
    cause = "" if new is None else metadata_of(new).annotations.get(TRACEPARENT_ANNOTATION, "")
    return "" if old is not None and metadata_of(old).annotations.get(TRACEPARENT_ANNOTATION) == cause else cause


def _requeue_seconds(result: Result) -> float | None:
    """Return the seconds after which the reconcile runs again. Raises Requeue for BACKOFF."""
    if result is BACKOFF:
        raise Requeue
    return result.total_seconds() if isinstance(result, timedelta) else result


class _Metrics:
    """controller_runtime_* metrics. Source: controller-runtime pkg/internal/controller/metrics."""

    def __init__(self, context: ControllerContext, declared: type[Controller]) -> None:
        metrics, name = context.metrics, declared.name
        labels = ("controller",)
        self._name = name
        self._total = metrics.counter(
            "controller_runtime_reconcile_total", "Total number of reconciliations per controller", (*labels, "result")
        )
        self._errors = metrics.counter(
            "controller_runtime_reconcile_errors_total", "Total number of reconciliation errors per controller", labels
        ).labels(name)
        self._terminal = metrics.counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
            labels,
        ).labels(name)
        self._seconds = metrics.histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            labels,
            buckets=_TIME_BUCKETS,
        ).labels(name)
        self._active = metrics.gauge(
            "controller_runtime_active_workers", "Number of currently used workers per controller", labels
        ).labels(name)
        metrics.gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            labels,
        ).labels(name).set(declared.options.max_concurrent_reconciles)
        for result in ("success", "error", "requeue", "requeue_after"):
            self._total.labels(name, result)
        self._running = 0

    def started(self) -> None:
        self._running += 1
        self._active.set(self._running)

    def ended(self, result: str, seconds: float) -> None:
        self._running -= 1
        self._active.set(self._running)
        self._seconds.observe(seconds)
        if result in ("error", "terminal"):
            self._errors.inc()
            if result == "terminal":
                self._terminal.inc()
            result = "error"
        self._total.labels(self._name, result).inc()
