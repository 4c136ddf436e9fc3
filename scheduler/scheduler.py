"""The scheduler: pops pods from the queue one by one, finds a node for each, and binds it in the background.

    pop -> scheduling cycle: filter, score, assume, reserve, permit     (one at a time; waits only for extenders)
        -> binding cycle: wait on permit, pre-bind, bind                (concurrent, for assumed pods)
        -> failure: event, PodScheduled condition, back to the queue

Source: pkg/scheduler/schedule_one.go of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import BY_GROUP_KIND, NODES, PODS
from kubeloop.scheduler.algorithm import Algorithm
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.extension_points import QueueSortPlugin
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.api_dispatcher import ApiDispatcher
from kubeloop.scheduler.attempt import Attempt
from kubeloop.scheduler.background_calls import BackgroundCalls
from kubeloop.scheduler.binding_cycle import BindingCycle
from kubeloop.scheduler.cache.cache import Cache, CacheError
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_classes import SpecClasses
from kubeloop.scheduler.cache.pod_requests import request_rules
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.extenders import with_ignored_resources
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.event_handlers import EventDurations, NodeEvents, OtherEvents, PodEvents, other_resources
from kubeloop.scheduler.extender import HTTPExtender
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.profile_plugins import Registry, check_queue_sort
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.full_objects import FullObjects
from kubeloop.scheduler.lister_resources import LISTER_RESOURCES
from kubeloop.scheduler.metrics_protocol import AttemptResult
from kubeloop.scheduler.plugin_handle import PluginHandle, SharedState
from kubeloop.scheduler.plugins.priority_sort import PrioritySort
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, registered_actions, registrations
from kubeloop.scheduler.queue.safe_sort import safe_sort_key
from kubeloop.scheduler.queue.scheduling_queue import QueueObserver, QueueSettings, SchedulingQueue
from kubeloop.scheduler.scheduler_gauges import SchedulerGauges
from kubeloop.scheduler.status_patches import StatusPatches
from kubeloop.tracing.spans.pod_record import Phase

log = logging.getLogger(__name__)

_SNAPSHOT_SLICE = 1000  # nodes copied without yielding: some 10 ms
_SLOW_CYCLE_NS = 100_000_000  # duration of a scheduling cycle from which it is logged


class Scheduler:
    """The scheduler of all profiles.

    Construct it before or while the informers run, as it registers handlers; run() schedules until cancelled.
    """

    def __init__(
        self,
        context: SchedulerContext,
        informers: InformerFactory,
        config: SchedulerConfiguration,
        registry: Registry,
    ) -> None:
        """registry: the in-tree plugins. Raises UserError for an invalid configuration. Needs a running event loop."""
        self.config = config
        self._recorder_for = context.recorder_for
        self._traces = context.traces
        self._metrics = context.metrics
        self.feature_gates = context.feature_gates
        self.request_rules = request_rules(self.feature_gates)
        self._time = asyncio.get_running_loop().time
        self._now_ns = context.clock.time_ns  # within a turn of the event loop, whose time may stand still
        self._pods = informers.informer(PODS).store
        self._tasks: asyncio.TaskGroup | None = None  # while run() is active
        self._binding: set[asyncio.Task[None]] = set()
        calls = BackgroundCalls(context)
        self._patches = StatusPatches(context.client, context.clock, calls, enter_span=context.traces.enter_span)
        self._api_dispatcher = (
            ApiDispatcher(context.client, self._patches, calls)
            if self.feature_gates.enabled("SchedulerAsyncAPICalls")
            else None
        )

        self.cache = Cache(
            self._time,
            assumed_pod_ttl_seconds=config.assumed_pod_ttl_seconds,
            request_rules=self.request_rules,
        )
        self.in_cycle = False  # True: the snapshot must not change, as an extender's response is awaited
        # kube-scheduler's opportunistic batching also uses the results of one pod for the next ones of its kind.
        class_cache = config.class_cache and self.feature_gates.enabled("OpportunisticBatching")
        self.snapshot = Snapshot(SpecClasses(enabled=class_cache))
        informer_of: dict[str, SharedInformer[Any]] = {
            name: informers.informer(resource) for name, resource in LISTER_RESOURCES.items()
        }
        self._lister_informers = informer_of.values()
        self.listers = Listers(pods=self._pods, **{name: informer.store for name, informer in informer_of.items()})
        # Ignorable extenders come last, as in kube-scheduler.
        full_objects = FullObjects(context.client)
        self.extenders = [
            HTTPExtender(extender, full_objects)
            for extender in sorted(config.extenders, key=lambda extender: extender.ignorable)
        ]
        nominator = Nominator(self._pods.get)
        self._waiting_pods = WaitingPods()
        shared = SharedState(
            snapshot=self.snapshot,
            listers=self.listers,
            extenders=self.extenders,
            nominator=nominator,
            waiting_pods=self._waiting_pods,
            spawn=self._spawn,
            activate=self._activate,
            api_cacher=self._api_dispatcher,
        )
        self.frameworks = {
            profile.scheduler_name: PluginHandle(
                with_ignored_resources(profile, config.extenders),
                context,
                shared,
                registry,
                class_cache=class_cache,
            ).framework
            for profile in config.profiles
        }
        check_queue_sort(
            config.profiles, {name: framework.queue_sort.name for name, framework in self.frameworks.items()}
        )
        hint_maps = {
            name: QueueingHintMap(registrations(framework.event_plugins)) for name, framework in self.frameworks.items()
        }
        self.queue = self._new_queue(hint_maps, nominator)
        self.gauges = SchedulerGauges(self.queue, self.frameworks, self._binding)
        self._algorithm = Algorithm(
            self.snapshot,
            percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
            tie_break=config.tie_break,
            extenders=self.extenders,
            rng=context.rng,
            now_ns=self._now_ns,
        )
        self._binding_cycle = BindingCycle(
            context,
            self.cache,
            self.queue,
            self._patches,
            self._waiting_pods,
            self.extenders,
            config.max_bindings_in_flight,
        )
        self._registrations = self._register(informers, hint_maps)

    def _new_queue(self, hint_maps: dict[str, QueueingHintMap], nominator: Nominator) -> SchedulingQueue:
        config = self.config
        return SchedulingQueue(
            sort_key=self._sort_key(next(iter(self.frameworks.values())).queue_sort),
            hint_maps=hint_maps,
            pre_enqueue={name: framework.pre_enqueue for name, framework in self.frameworks.items()},
            nominator=nominator,
            now_ns=lambda: int(self._time() * 1e9),
            settings=QueueSettings(
                initial_backoff_seconds=config.pod_initial_backoff_seconds,
                max_backoff_seconds=config.pod_max_backoff_seconds,
                max_in_unschedulable_seconds=config.pod_max_in_unschedulable_seconds,
                request_rules=self.request_rules,
                pops_from_backoff=self.feature_gates.enabled("SchedulerPopFromBackoffQ"),
            ),
            observer=QueueObserver(
                metrics=self._metrics,
                duration_ns=self._now_ns,
                queued=self._traces.queued,
                plugin_failed=self._failed_scheduling,
            ),
        )

    def _sort_key(self, plugin: QueueSortPlugin) -> Callable[[QueuedPodInfo], Any]:
        if isinstance(plugin, PrioritySort):
            return plugin.sort_key
        return safe_sort_key(
            plugin.sort_key,
            lambda queued, error: self._failed_scheduling(
                queued.pod, f'running QueueSort plugin "{plugin.name}": {error}'
            ),
        )

    def _failed_scheduling(self, pod: Pod, message: str) -> None:
        self._recorder_for(pod.spec.scheduler_name).event(
            pod, "Warning", "FailedScheduling", message, action="Scheduling"
        )

    def _register(
        self, informers: InformerFactory, hint_maps: dict[str, QueueingHintMap]
    ) -> list[HandlerRegistration[Any]]:
        durations = EventDurations(self._metrics, self._now_ns)
        pod_events = PodEvents(
            self.cache,
            self.queue,
            scheduler_names=self.frameworks,
            reject_waiting_pod=self._waiting_pods.reject_removed,
            durations=durations,
            request_rules=self.request_rules,
            sync_calls=self._patches.sync if self._api_dispatcher is not None else None,
        )
        declared_features = self.feature_gates.enabled("NodeDeclaredFeatures")
        node_events = NodeEvents(self.cache, self.queue, durations, declared_features=declared_features)
        registered: list[HandlerRegistration[Any]] = [
            informers.informer(NODES).add_handler(node_events),
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
            await self._binding_cycle.wait_for_slot()
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
        self._start(self._tasks, self._guarded(work, name), name)

    def _start(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> None:
        task = tasks.create_task(work, name=name)
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    @staticmethod
    async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception:
            log.exception("background work of the scheduler failed", extra={"work": name})

    def _activate(self, pods: Iterable[Pod]) -> None:
        self.queue.activate(pods)

    # --- The scheduling cycle --------------------------------------------------------------------------------------

    async def _schedule_one(self, queued: QueuedPodInfo) -> None:
        """Run one scheduling attempt for a popped pod. Raises nothing but cancellation."""
        pod = queued.pod
        framework = self.frameworks.get(pod.spec.scheduler_name)
        # An assumed pod was updated during the cycle that placed it.
        if framework is None or self._skip_deleted(pod) or self.cache.is_assumed(pod):
            self.queue.done(queued.uid)
            return
        # True: the plugin calls of this cycle are measured
        measured = self._metrics is not None and self.queue.scheduling_cycle % MEASURED_CYCLES == 0
        attempt = Attempt(framework, queued, self._now_ns(), measured=measured)
        self._traces.attempt_started(pod, queued.attempts)
        try:
            node = await self._schedule(attempt)
            assumed = _with_node(attempt.pod, node)
            self.cache.assume_pod(assumed)
        except FitError as error:
            await self._post_filter_and_fail(attempt, error)
        except NoNodesAvailable as error:
            self._failed(attempt, str(error), Diagnosis(NodeToStatus(self.snapshot)))
        except (SchedulingError, CacheError) as error:
            log.warning("scheduling failed", extra={"pod": pod.key, "error": str(error)})
            self._failed(attempt, str(error))
        except Exception as error:  # a mistake of ours or of a plugin's array: it costs this attempt, not the scheduler
            log.exception("scheduling failed", extra={"pod": pod.key})
            self._failed(attempt, f"{type(error).__name__}: {error}")
        else:
            self.queue.nominator.remove(queued.uid)
            attempt.pod, attempt.node = assumed, node
            status = self._reserve(attempt)
            if status is not None:
                self._unreserve_and_forget(attempt)
                self._reject_after_placement(attempt, status)
                return
            attempt.facts.result = "scheduled"
            self._traces.attempt_finished(pod, attempt.facts, attempt.reserve)
            if self._tasks is None:
                raise AssertionError("a pod was scheduled while the scheduler does not run")
            self._start(self._tasks, self._bind(attempt), f"bind/{queued.key}")

    def _skip_deleted(self, pod: Pod) -> bool:
        """Return True for a pod that is being deleted, and report that it is not scheduled."""
        if pod.metadata.deletion_timestamp is None:
            return False
        self._failed_scheduling(pod, f"skip schedule deleting pod: {pod.key}")
        return True

    async def _schedule(self, attempt: Attempt) -> str:
        """Return the node for the pod. Raises like Algorithm.schedule."""
        start_ns = self._now_ns()
        self.cache.update_snapshot(self.snapshot)
        self.in_cycle = True
        try:
            return await self._algorithm.schedule(attempt)
        finally:
            self.in_cycle = False
            end_ns = self._now_ns()
            if end_ns - start_ns >= _SLOW_CYCLE_NS:
                _log_slow_cycle(attempt, start_ns, end_ns)
            if self._metrics is not None:
                self._metrics.algorithm((end_ns - start_ns) / 1e9)

    def _reserve(self, attempt: Attempt) -> Status | None:
        """Run the Reserve and Permit plugins; return a failure. Without one, the pod may have to wait on permit."""
        binding = attempt.framework.binding
        reserve_ns = self._now_ns()
        status = binding.run_reserve(attempt.state, attempt.pod, attempt.node)
        error = None if status is None else status.message
        attempt.reserve = Phase(reserve_ns, "reserve", attempt.node, self._now_ns(), error)
        if status is None:
            status = binding.run_permit(attempt.state, attempt.pod, attempt.node)
        return None if status is not None and status.code is Code.WAIT else status

    def _unreserve_and_forget(self, attempt: Attempt) -> bool:
        """Unreserve and forget an assumed pod; return False if it was not in the cache."""
        attempt.framework.binding.run_unreserve(attempt.state, attempt.pod, attempt.node)
        try:
            self.cache.forget_pod(attempt.pod.pod)
        except CacheError as error:
            log.warning("cannot forget an assumed pod: %s", error)
            return False
        return True

    # --- The binding cycle -----------------------------------------------------------------------------------------

    async def _bind(self, attempt: Attempt) -> None:
        """Run the binding cycle. Raises nothing but cancellation."""
        status = await self._binding_cycle.run(attempt)
        if status is not None:
            self._not_bound(attempt, status)

    def _not_bound(self, attempt: Attempt, status: Status) -> None:
        forgotten = self._unreserve_and_forget(attempt)
        pod = attempt.pod.pod
        if forgotten and not status.is_rejection:
            # For other pods it is as if the pod had been deleted: its room is free again.
            self.queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, pod, None)
        self._reject_after_placement(attempt, status)
        if forgotten and status.is_rejection:
            # After the pod is requeued, so that the event of its own removal does not make it schedulable.
            uid = attempt.pod.uid
            self.queue.move_all_to_active_or_backoff(
                events.ASSIGNED_POD_DELETE, pod, None, lambda other: other.metadata.uid != uid
            )

    # --- Failure ---------------------------------------------------------------------------------------------------

    async def _post_filter_and_fail(self, attempt: Attempt, error: FitError) -> None:
        """Run the PostFilter plugins (preemption), then report why the pod does not fit."""
        nominated: str | None = ""
        filters, facts, diagnosis = attempt.framework.filters, attempt.facts, error.diagnosis
        if filters.post_filter:
            post_filter_ns = self._now_ns()
            self.in_cycle = True  # preemption may call extenders
            try:
                result, status = await filters.run_post_filter(
                    attempt.state, attempt.pod, self.snapshot, diagnosis.node_to_status
                )
            finally:
                self.in_cycle = False
            facts.post_filter_ns = (post_filter_ns, self._now_ns())
            facts.victims = result.victims if result is not None else 0
            if self._metrics is not None and "DefaultPreemption" in attempt.framework.plugins:
                self._metrics.preemption(victims=facts.victims)
            diagnosis.post_filter_message = status.message
            nominated = None if result is None else result.nominated_node_name
        self._failed(attempt, str(error), diagnosis, nominated)

    def _reject_after_placement(self, attempt: Attempt, status: Status) -> None:
        """Handle a rejection or error of Reserve, Permit, PreBind or Bind."""
        if not status.is_rejection:
            self._failed(attempt, status.message)
            return
        diagnosis = Diagnosis(NodeToStatus(self.snapshot))
        diagnosis.node_to_status.set(attempt.node, status)
        diagnosis.note(status)
        self._failed(attempt, str(FitError(1, diagnosis)), diagnosis)

    def _failed(
        self,
        attempt: Attempt,
        message: str,
        diagnosis: Diagnosis | None = None,
        nominated_node_name: str | None = "",
    ) -> None:
        """Requeue the pod, record an event and patch the condition.

        diagnosis: why the pod was rejected; None after an error. nominated_node_name: as in Nominator.add.
        """
        queued = attempt.queued
        pod = queued.pod
        result: AttemptResult = "error" if diagnosis is None else "unschedulable"
        if attempt.facts.result != "scheduled":  # else the trace has the facts already, of the scheduling cycle
            facts = attempt.facts
            facts.result, facts.message, facts.node = result, message, attempt.node
            facts.nominated_node = nominated_node_name or ""
            self._traces.attempt_finished(pod, facts, attempt.reserve)
        if self._metrics is not None:
            seconds = (self._now_ns() - attempt.start_ns) / 1e9
            self._metrics.attempt(result, attempt.framework.profile_name, seconds)
        queued.unschedulable_plugins = diagnosis.unschedulable_plugins if diagnosis is not None else set()
        queued.pending_plugins = diagnosis.pending_plugins if diagnosis is not None else set()
        newest = self._pods.get(queued.key)
        if newest is None or newest.metadata.uid != queued.uid or newest.spec.node_name:
            self.queue.done(queued.uid)  # deleted or bound in the meantime: nothing to retry or report
            return
        queued.update(newest)
        self.queue.add_unschedulable_if_not_present(queued)
        self.queue.nominator.add(queued.info, nominated_node_name)
        self._failed_scheduling(pod, message)
        self._patches.set(
            pod,
            reason="SchedulerError" if diagnosis is None else "Unschedulable",
            message=message,
            nominated_node_name=nominated_node_name,
        )


def _with_node(info: PodInfo, node: str) -> PodInfo:
    """Return the PodInfo of the pod as it will be once it is bound."""
    pod = info.pod
    return info.with_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))


def _log_slow_cycle(attempt: Attempt, start_ns: int, end_ns: int) -> None:
    """Log the duration of a scheduling cycle and of its completed steps. Source: schedulePod, which traces them."""
    facts = attempt.facts
    steps: dict[str, float] = {}
    previous_ns = start_ns
    snapshot_ns = facts.pre_filter_ns and (start_ns, facts.pre_filter_ns[0])
    for step, interval in (
        ("Snapshotting scheduler cache and node infos done", snapshot_ns),
        ("Computing predicates done", facts.filter_ns or facts.pre_filter_ns),
        ("Prioritizing done", facts.score_ns),
    ):
        if interval is not None:
            steps[step] = (interval[1] - previous_ns) / 1e6
            previous_ns = interval[1]
    pod, total_ms = attempt.queued.pod, (end_ns - start_ns) / 1e6
    log.warning(
        "slow scheduling cycle of %s: %.0f ms (%s)",
        pod.key,
        total_ms,
        ", ".join(f"{step}: {milliseconds:.0f} ms" for step, milliseconds in steps.items()),
        extra={"pod": pod.key, "milliseconds": total_ms, "steps": steps},
    )
