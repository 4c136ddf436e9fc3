"""The scheduler: pops pods from the queue one by one, finds a node for each, and binds it in the background.

    pop -> scheduling cycle: filter, score, assume, reserve, permit     (one at a time; waits only for extenders)
        -> binding cycle: wait on permit, pre-bind, bind                (concurrent, for assumed pods)
        -> failure: event, PodScheduled condition, back to the queue

Source: pkg/scheduler/schedule_one.go of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.event_recorder import EventSink
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import BY_GROUP_KIND, NODES, PODS
from kubeloop.scheduler.algorithm import Algorithm, Placement
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.extension_points import QueueSortPlugin
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.cache import Cache, CacheError
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_classes import SpecClasses
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NodeResourcesFitArgs
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.scheduler.event_handlers import EventDurations, NodeEvents, OtherEvents, PodEvents, other_resources
from kubeloop.scheduler.extender import HTTPExtender
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable, event_note
from kubeloop.scheduler.framework.runtime import Framework, SchedulingError
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES, TimedPreEnqueue
from kubeloop.scheduler.full_objects import FullObjects
from kubeloop.scheduler.lister_resources import LISTER_RESOURCES
from kubeloop.scheduler.metrics_protocol import SchedulerMetrics
from kubeloop.scheduler.plugin_handle import PluginHandle
from kubeloop.scheduler.plugins.priority_sort import PrioritySort
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, registered_actions, registrations
from kubeloop.scheduler.queue.safe_sort import safe_sort_key
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.scheduler.scheduler_gauges import SchedulerGauges
from kubeloop.scheduler.status_patches import StatusPatches
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, PodRecorder

log = logging.getLogger(__name__)

_BIND_ATTEMPTS = 7  # after the last one, about a minute has passed
_FIRST_BIND_RETRY_SECONDS = 0.5
_POD_DELETED = "(gone)"  # in place of a node name; no node has this name
_SNAPSHOT_SLICE = 1000  # nodes copied without yielding: some 10 ms


class Scheduler:
    """The scheduler of all profiles.

    Construct it before or while the informers run, as it registers handlers; run() schedules until cancelled.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        config: SchedulerConfiguration,
        clock: Clock,
        rng: random.Random,
        recorder: EventSink,
        traces: PodRecorder,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """Raises UserError for an invalid configuration. Requires a running event loop."""
        self.config = config
        self._client = client
        self._recorder = recorder
        self._traces = traces
        self._metrics = metrics
        self._time = asyncio.get_running_loop().time
        self._now_ns = clock.time_ns  # for durations within one turn of the event loop, whose time may stand still
        self._pods = informers.informer(PODS).store
        self._nodes = informers.informer(NODES).store
        self._tasks: asyncio.TaskGroup | None = None
        self._binding: set[asyncio.Task[None]] = set()
        self._slots = config.max_bindings_in_flight  # remaining bind requests that may be in flight
        self._slot_freed = asyncio.Event()
        self._patches = StatusPatches(client, clock, enter_span=traces.enter_span)

        self.cache = Cache(self._time, assumed_pod_ttl_seconds=config.assumed_pod_ttl_seconds)
        self.in_cycle = False  # True: the snapshot must not change, as an extender's response is awaited
        self.snapshot = Snapshot()
        if not config.class_cache:
            self.snapshot.classes = SpecClasses(enabled=False)
        informer_of: dict[str, SharedInformer[Any]] = {
            name: informers.informer(resource) for name, resource in LISTER_RESOURCES.items()
        }
        self._lister_informers = informer_of.values()
        self.listers = Listers(pods=self._pods, **{name: informer.store for name, informer in informer_of.items()})
        # Ignorable extenders come last, as in kube-scheduler.
        full_objects = FullObjects(client)
        self.extenders = [
            HTTPExtender(extender, full_objects)
            for extender in sorted(config.extenders, key=lambda extender: extender.ignorable)
        ]
        handles = [
            self._plugin_handle(profile, clock=clock, rng=rng)
            for profile in map(self._without_managed_resources, config.profiles)
        ]
        self.frameworks = {handle.framework.profile_name: handle.framework for handle in handles}
        hint_maps = {
            name: QueueingHintMap(registrations(framework.event_plugins()))
            for name, framework in self.frameworks.items()
        }
        self.queue = self._new_queue(hint_maps)
        for handle in handles:
            handle.queue = self.queue
        if metrics is not None:
            metrics.attach(SchedulerGauges(self.queue, self.frameworks, self._binding))
        self._algorithm = Algorithm(
            self.snapshot,
            percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
            tie_break=config.tie_break,
            extenders=self.extenders,
            rng=rng,
            traces=traces,
        )
        self._registrations = self._register(informers, hint_maps)

    def _plugin_handle(self, profile: Profile, *, clock: Clock, rng: random.Random) -> PluginHandle:
        """Return the plugin handle of a profile, with its framework; the queue is set later."""
        handle = PluginHandle(
            snapshot=self.snapshot,
            listers=self.listers,
            client=self._client,
            clock=clock,
            rng=rng,
            recorder=self._recorder,
            traces=self._traces,
            extenders=self.extenders,
            metrics=self._metrics,
            spawn=self._spawn,
        )
        handle.framework = Framework(
            profile,
            handle,
            lambda: self.queue.nominator,
            registry=IN_TREE_PLUGINS,
            class_cache=self.config.class_cache,
            metrics=self._metrics,
        )
        return handle

    def _new_queue(self, hint_maps: dict[str, QueueingHintMap]) -> SchedulingQueue:
        config, metrics = self.config, self._metrics
        return SchedulingQueue(
            sort_key=self._sort_key(next(iter(self.frameworks.values())).queue_sort),
            hint_maps=hint_maps,
            pre_enqueue={
                name: [TimedPreEnqueue(plugin, framework.timing) for plugin in framework.pre_enqueue]
                if metrics
                else framework.pre_enqueue
                for name, framework in self.frameworks.items()
            },
            lookup=self._pods.get,
            now_ns=lambda: int(self._time() * 1e9),
            duration_ns=self._now_ns,
            initial_backoff_seconds=config.pod_initial_backoff_seconds,
            max_backoff_seconds=config.pod_max_backoff_seconds,
            max_in_unschedulable_seconds=config.pod_max_in_unschedulable_seconds,
            metrics=metrics,
            on_queued=self._traces.queued,
            on_plugin_failure=self._queue_plugin_failed,
        )

    def _sort_key(self, plugin: QueueSortPlugin) -> Callable[[QueuedPodInfo], Any]:
        if isinstance(plugin, PrioritySort):
            return plugin.sort_key
        return safe_sort_key(
            plugin.sort_key,
            lambda queued, error: self._queue_plugin_failed(
                queued.pod, f'running QueueSort plugin "{plugin.name}": {error}'
            ),
        )

    def _queue_plugin_failed(self, pod: Pod, message: str) -> None:
        self._recorder.event(pod, "Warning", "FailedScheduling", message)

    def _without_managed_resources(self, profile: Profile) -> Profile:
        """Return the profile with NodeResourcesFit ignoring the resources with ignoredByScheduler of extenders."""
        ignored = tuple(
            resource.name
            for extender in self.config.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        )
        if not ignored:
            return profile
        fit = profile.args.get("NodeResourcesFit", NodeResourcesFitArgs())
        fit = msgspec.structs.replace(fit, ignored_resources=(*fit.ignored_resources, *ignored))
        return msgspec.structs.replace(profile, args={**profile.args, "NodeResourcesFit": fit})

    def _register(
        self, informers: InformerFactory, hint_maps: dict[str, QueueingHintMap]
    ) -> list[HandlerRegistration[Any]]:
        durations = EventDurations(self._metrics, self._now_ns)
        pod_events = PodEvents(
            self.cache,
            self.queue,
            scheduler_names=self.frameworks,
            reject_waiting_pod=self._reject_waiting_pod,
            durations=durations,
        )
        registered: list[HandlerRegistration[Any]] = [
            informers.informer(NODES).add_handler(NodeEvents(self.cache, self.queue, durations)),
            informers.informer(PODS).add_handler(pod_events),
        ]
        for name, actions in other_resources(registered_actions(hint_maps.values())).items():
            group, _, kind = name.rpartition("/")
            resource = BY_GROUP_KIND.get((group, kind))
            if resource is not None:  # there are no events of unknown resources
                registered.append(
                    informers.informer(resource).add_handler(OtherEvents(self.queue, name, actions, durations))
                )
        return registered

    @property
    def is_running(self) -> bool:
        """True while pods are scheduled: the informers are synced, and this replica leads."""
        return self._tasks is not None

    # --- Running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Wait for the informers, then schedule until cancelled.

        Cancellation: no more pods are popped; bindings in flight get `drain_seconds` to finish, and are then cancelled,
        too. Completed bindings persist in the API server; the next start reads them.
        """
        for registration in self._registrations:
            await registration.wait_synced()
        for informer in self._lister_informers:
            await informer.wait_synced()
        log.info("scheduling", extra={"profiles": list(self.frameworks), "nodes": self.cache.sizes()[0]})
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                patching = tasks.create_task(self._patches.run(), name="scheduler/status-patches")
                try:
                    async with asyncio.TaskGroup() as acting:
                        acting.create_task(self.queue.run(), name="scheduler/queue")
                        acting.create_task(self._sweep_forever(), name="scheduler/cache-sweep")
                        acting.create_task(self._schedule_forever(), name="scheduler/loop")
                finally:
                    if self._binding:
                        await asyncio.wait(self._binding, timeout=self.config.drain_seconds)
                    patching.cancel()
        finally:
            self._tasks = None
            for extender in self.extenders:
                await extender.close()

    async def _schedule_forever(self) -> None:
        while True:
            while self._slots <= 0:
                self._slot_freed.clear()
                await self._slot_freed.wait()
            while len(self.cache.update_snapshot(self.snapshot, at_most=_SNAPSHOT_SLICE)) >= _SNAPSHOT_SLICE:
                await asyncio.sleep(0)
            queued = self.queue.pop()
            if queued is None:
                await self.queue.wait()
                continue
            await self._schedule_one(queued)
            await asyncio.sleep(0)  # let the informers read their sockets while there is work

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for pod in self.cache.expire_assumed_pods():
                self.queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, pod, None)
            if self._metrics is not None:
                nodes, pods, assumed = self.cache.sizes()
                self._metrics.cache_size(nodes=nodes, pods=pods, assumed_pods=assumed)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a plugin's background work; at shutdown it is drained like bindings."""
        if self._tasks is None:
            work.close()
            log.error("a plugin started work while the scheduler does not run", extra={"work": name})
            return
        task = self._tasks.create_task(self._guarded(work, name), name=name)
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    @staticmethod
    async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception:
            log.exception("background work of the scheduler failed", extra={"work": name})

    # --- The scheduling cycle --------------------------------------------------------------------------------------

    async def _schedule_one(self, queued: QueuedPodInfo) -> None:
        """Run one scheduling attempt for a popped pod. Raises nothing but cancellation."""
        pod = queued.pod
        framework = self.frameworks.get(pod.spec.scheduler_name)
        if framework is None or self._skip_pod_schedule(pod):
            self.queue.done(queued.uid)
            return
        start_ns = self._now_ns()
        facts = AttemptFacts(result="error")
        self._traces.attempt_started(pod, queued.attempts)
        try:
            state = CycleState(measured=self._measures_this_cycle())
            placement = await self._schedule(framework, state, queued.info, facts)
            assumed = self._assume(queued.info, placement)
        except FitError as error:
            await self._post_filter_and_fail(framework, queued, state, error, facts, start_ns)
        except NoNodesAvailable as error:
            self._failed(framework, queued, str(error), "", "", facts, start_ns, rejected=True)
        except (SchedulingError, CacheError) as error:
            log.warning("scheduling failed", extra={"pod": pod.key, "error": str(error)})
            self._failed(framework, queued, str(error), "", "", facts, start_ns)
        except Exception as error:  # a mistake of ours or of a plugin's array: it costs this attempt, not the scheduler
            log.exception("scheduling failed", extra={"pod": pod.key})
            self._failed(framework, queued, f"{type(error).__name__}: {error}", "", "", facts, start_ns)
        else:
            self._reserve(framework, state, queued, assumed, placement, facts, start_ns)

    def _skip_pod_schedule(self, pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp is not None:
            message = f"skip schedule deleting pod: {pod.key}"
            self._recorder.event(pod, "Warning", "FailedScheduling", message)
            return True
        return self.cache.is_assumed(pod)  # it was updated during the cycle that placed it

    async def _schedule(self, framework: Framework, state: CycleState, pod: PodInfo, facts: AttemptFacts) -> Placement:
        start_ns = self._now_ns()
        self.cache.update_snapshot(self.snapshot)
        self.in_cycle = True
        try:
            placement = await self._algorithm.schedule(framework, state, pod, facts)
        finally:
            self.in_cycle = False
            if self._metrics is not None:
                self._metrics.algorithm((self._now_ns() - start_ns) / 1e9)
        return placement

    def _measures_this_cycle(self) -> bool:
        """Return True if the plugin calls of this cycle are measured."""
        return self._metrics is not None and self.queue.scheduling_cycle % MEASURED_CYCLES == 0

    def _assume(self, info: PodInfo, placement: Placement) -> PodInfo:
        """Assume the pod on its node. Raises CacheError."""
        pod = info.pod
        assumed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=placement.node))
        self.cache.assume_pod(assumed, info)
        self.queue.nominator.remove(info.uid)
        return info.with_pod(assumed)

    def _reserve(
        self,
        framework: Framework,
        state: CycleState,
        queued: QueuedPodInfo,
        assumed: PodInfo,
        placement: Placement,
        facts: AttemptFacts,
        start_ns: int,
    ) -> None:
        reserve_ns = self._traces.now_ns()
        status = framework.run_reserve(state, assumed, placement.node)
        if status is None:
            self._traces.reserved(assumed.pod, placement.node, reserve_ns)
            status = framework.run_permit(state, assumed, placement.node)
        else:
            self._traces.reserved(assumed.pod, placement.node, reserve_ns, status.message)
        if status is not None and status.code is not Code.WAIT:
            self._unreserve_and_forget(framework, state, assumed, placement.node)
            self._reject_after_placement(framework, queued, status, placement.node, facts, start_ns)
            return
        facts.result = "scheduled"
        self._traces.attempt_finished(assumed.pod, facts)
        if self._tasks is None:
            raise AssertionError("a pod was scheduled while the scheduler does not run")
        task = self._tasks.create_task(
            self._bind_in_background(framework, state, queued, assumed, placement.node, start_ns),
            name=f"bind/{queued.key}",
        )
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    def _unreserve_and_forget(self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str) -> bool:
        """Unreserve and forget an assumed pod; return False if it was not in the cache."""
        framework.run_unreserve(state, assumed, node_name)
        try:
            self.cache.forget_pod(assumed.pod)
        except CacheError as error:
            log.warning("cannot forget an assumed pod: %s", error)
            return False
        return True

    # --- The binding cycle -----------------------------------------------------------------------------------------

    async def _bind_in_background(
        self,
        framework: Framework,
        state: CycleState,
        queued: QueuedPodInfo,
        assumed: PodInfo,
        node_name: str,
        start_ns: int,
    ) -> None:
        try:
            status = await self._bind(framework, state, assumed, node_name)
        except Exception as error:
            log.exception("binding failed", extra={"pod": queued.key})
            status = Status(Code.ERROR, (f"{type(error).__name__}: {error}",))
        if status is None:
            self._bound(framework, state, queued, assumed, node_name, start_ns)
        else:
            self._not_bound(framework, state, queued, assumed, node_name, status, start_ns)

    async def _bind(self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str) -> Status | None:
        pod = assumed.pod
        flight = framework.run_pre_bind_pre_flight(state, assumed, node_name)
        if flight is not None and flight.code is not Code.SKIP:
            return flight
        waits_on_permit = framework.waiting_pod(assumed.uid) is not None
        if flight is None or waits_on_permit:
            # Binding will take a while: a cluster autoscaler reads from the nominated node where the pod will run.
            self._patches.set(pod, nominated_node_name=node_name)
        if waits_on_permit:
            self._traces.permit_started(pod)
            since = self._time()
            status = await framework.wait_on_permit(assumed)
            self._traces.permit_finished(pod, status.message if status is not None else None)
            if self._metrics is not None:
                result = "Success" if status is None else status.code.api_name
                self._metrics.permit_wait(result, self._time() - since)
            if status is not None:
                return status
        # From here on no event can make the pod schedulable: a failure is retried after a backoff.
        self.queue.done(assumed.uid)
        if flight is None:
            self._traces.pre_bind_started(pod)
            status = await framework.run_pre_bind(state, assumed, node_name)
            self._traces.pre_bind_finished(pod, status.message if status is not None else None)
            if status is not None:
                return status
        self._slots -= 1
        self._traces.bind_started(pod, node_name)
        try:
            await self._patches.settle(assumed.uid)
            status = await self._bind_and_confirm(framework, state, assumed, node_name)
        finally:
            self._slots += 1
            self._slot_freed.set()
        self.cache.finish_binding(pod)
        self._traces.bind_finished(pod, status.message if status is not None else None)
        return status

    async def _run_bind(
        self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str
    ) -> Status | None:
        for extender in self.extenders:
            if not extender.binds or not extender.is_interested(assumed.pod):
                continue
            try:
                await extender.bind(assumed.pod, node_name)
            except ExtenderError as error:
                if extender.ignorable:
                    continue
                return Status(Code.ERROR, (str(error),), "", error)
            return None
        return await framework.run_bind(state, assumed, node_name)

    async def _bind_and_confirm(
        self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str
    ) -> Status | None:
        """Bind the pod, and determine the result if it is unknown.

        The response of a binding may be lost, and a lost earlier attempt may cause a conflict. A binding whose response
        was lost is sent again, to the same node, as it may still be in flight: with another node, the first one could
        get a pod that the cache does not count there.
        """
        delay_seconds = _FIRST_BIND_RETRY_SECONDS
        may_be_in_flight = False
        for _ in range(_BIND_ATTEMPTS):
            status = await self._run_bind(framework, state, assumed, node_name)
            error = status.error if status is not None else None
            may_be_in_flight = may_be_in_flight or (isinstance(error, ServerUnreachable) and error.maybe_applied)
            conflict = isinstance(error, ApiError) and error.code == 409
            if status is None or not (may_be_in_flight or conflict or isinstance(error, ExtenderError)):
                return status
            bound_node = await self._bound_node(assumed)
            if bound_node == node_name:
                return None
            if bound_node is not None or not may_be_in_flight:
                return status
            await asyncio.sleep(delay_seconds)
            delay_seconds *= 2
        return status

    async def _bound_node(self, assumed: PodInfo) -> str | None:
        """Return the pod's node in the API server; _POD_DELETED if it was deleted; None if not bound or unknown."""
        metadata = assumed.pod.metadata
        try:
            pod = await self._client.get(PODS, metadata.name, metadata.namespace, lane="binding")
        except NotFound:
            return _POD_DELETED
        except (ApiError, ServerUnreachable) as problem:
            log.warning("cannot see whether a pod was bound", extra={"pod": assumed.key, "error": str(problem)})
            return None
        return (pod.spec.node_name or None) if pod.metadata.uid == metadata.uid else _POD_DELETED

    def _bound(
        self,
        framework: Framework,
        state: CycleState,
        queued: QueuedPodInfo,
        assumed: PodInfo,
        node_name: str,
        start_ns: int,
    ) -> None:
        message = f"Successfully assigned {assumed.key} to {node_name}"
        self._recorder.event(assumed.pod, "Normal", "Scheduled", message)
        if self._metrics is not None:
            seconds = (self._now_ns() - start_ns) / 1e9
            self._metrics.attempt("scheduled", framework.profile_name, seconds)
            self._metrics.pod_scheduled(
                queued.attempts,
                self._time() - queued.initial_attempt_ns / 1e9,
                after_flush=queued.was_flushed_from_unschedulable,
            )
        framework.run_post_bind(state, assumed, node_name)

    def _not_bound(
        self,
        framework: Framework,
        state: CycleState,
        queued: QueuedPodInfo,
        assumed: PodInfo,
        node_name: str,
        status: Status,
        start_ns: int,
    ) -> None:
        forgotten = self._unreserve_and_forget(framework, state, assumed, node_name)
        uid = assumed.uid
        if forgotten and not status.is_rejection:
            # For other pods it is as if the pod had been deleted: its room is free again.
            self.queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, assumed.pod, None)
        facts = AttemptFacts(result="error", node=node_name)
        self._reject_after_placement(framework, queued, status, node_name, facts, start_ns, binding=True)
        if forgotten and status.is_rejection:
            # After the pod is requeued, so that the event of its own removal does not make it schedulable.
            self.queue.move_all_to_active_or_backoff(
                events.ASSIGNED_POD_DELETE, assumed.pod, None, lambda pod: pod.metadata.uid != uid
            )

    # --- Failure ---------------------------------------------------------------------------------------------------

    async def _post_filter_and_fail(
        self,
        framework: Framework,
        queued: QueuedPodInfo,
        state: CycleState,
        error: FitError,
        facts: AttemptFacts,
        start_ns: int,
    ) -> None:
        """Run the PostFilter plugins (preemption), then report why the pod does not fit."""
        nominated: str | None = ""
        if framework.post_filter:
            post_filter_ns = self._traces.now_ns()
            self.in_cycle = True  # preemption may call extenders
            try:
                result, status = await framework.run_post_filter(
                    state, queued.info, self.snapshot, error.diagnosis.node_to_status
                )
            finally:
                self.in_cycle = False
            facts.post_filter_ns = (post_filter_ns, self._traces.now_ns())
            if self._metrics is not None and "DefaultPreemption" in framework.plugins:
                self._metrics.preemption(victims=result.victims if result is not None else 0)
            facts.victims = result.victims if result is not None else 0
            error.diagnosis.post_filter_message = status.message
            nominated = None if result is None else result.nominated_node_name
        self._failed(framework, queued, str(error), nominated, "", facts, start_ns, diagnosis=error.diagnosis)

    def _reject_after_placement(
        self,
        framework: Framework,
        queued: QueuedPodInfo,
        status: Status,
        node_name: str,
        facts: AttemptFacts,
        start_ns: int,
        *,
        binding: bool = False,
    ) -> None:
        """Handle a rejection or error of Reserve, Permit, PreBind or Bind."""
        if not status.is_rejection:
            self._failed(framework, queued, status.message, "", node_name, facts, start_ns, binding=binding)
            return
        diagnosis = Diagnosis(NodeToStatus(self.snapshot))
        diagnosis.node_to_status.set(node_name, status)
        diagnosis.note(status)
        message = str(FitError(1, diagnosis))
        self._failed(framework, queued, message, "", node_name, facts, start_ns, diagnosis=diagnosis, binding=binding)

    def _failed(
        self,
        framework: Framework,
        queued: QueuedPodInfo,
        message: str,
        nominated_node_name: str | None,
        node_name: str,
        facts: AttemptFacts,
        start_ns: int,
        *,
        diagnosis: Diagnosis | None = None,
        rejected: bool = False,
        binding: bool = False,
    ) -> None:
        """Requeue the pod, record an event and patch the condition. nominated_node_name: as in Nominator.add."""
        rejected = rejected or diagnosis is not None
        pod = queued.pod
        facts.result = "unschedulable" if rejected else "error"
        facts.message = message
        facts.node = node_name
        facts.nominated_node = nominated_node_name or ""
        if not binding:
            self._traces.attempt_finished(pod, facts)
        if self._metrics is not None:
            self._metrics.attempt(facts.result, framework.profile_name, (self._now_ns() - start_ns) / 1e9)
        queued.unschedulable_plugins = diagnosis.unschedulable_plugins if diagnosis is not None else set()
        queued.pending_plugins = diagnosis.pending_plugins if diagnosis is not None else set()
        newest = self._pods.get(queued.key)
        if newest is None or newest.metadata.uid != queued.uid or newest.spec.node_name:
            self.queue.done(queued.uid)  # deleted or bound in the meantime: nothing to retry or report
            return
        queued.update(newest)
        self.queue.add_unschedulable_if_not_present(queued)
        self.queue.nominator.add(queued.info, nominated_node_name)
        note = event_note(message).decode(errors="replace")
        self._recorder.event(pod, "Warning", "FailedScheduling", note)
        self._patches.set(
            pod,
            reason="Unschedulable" if rejected else "SchedulerError",
            message=message,
            nominated_node_name=nominated_node_name,
        )

    def _reject_waiting_pod(self, uid: str) -> bool:
        return any(framework.reject_waiting_pod(uid) for framework in self.frameworks.values())
