"""The scheduler: composes its parts, and runs one scheduling cycle after the other and the binding cycles.

    scheduling_cycle: pop, filter, score, assume, reserve, permit       (one at a time; waits for extenders, device
                                                                         searches that take long, and PostFilter)
      or pod_group_cycle: the same for all pods of a group
      -> binding_cycle: wait on permit, pre-bind, bind                  (in the background, for assumed pods)
      -> failed_attempts: event, PodScheduled condition, back to the queue

Source: pkg/scheduler/{scheduler,schedule_one}.go of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration, SharedInformer
from kubeloop.kube.clock import pause
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import BY_GROUP_KIND, NODES, PODS
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.extension_points import QueueSortPlugin
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api_calls.api_dispatcher import ApiDispatcher
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.attempts.algorithm import Algorithm
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.attempt_steps import AttemptSteps
from kubeloop.scheduler.attempts.binding_cycle import BindingCycle
from kubeloop.scheduler.attempts.failed_attempts import FailedAttempts, report_failure
from kubeloop.scheduler.attempts.scheduling_cycle import SchedulingCycle
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.pod_classes import SpecClasses
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.cache.pod_requests import request_rules
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.extenders import with_ignored_resources
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.event_handlers import EventDurations, NodeEvents, OtherEvents, PodEvents, other_resources
from kubeloop.scheduler.extenders.full_objects import FullObjects
from kubeloop.scheduler.framework.profile_plugins import Registry, check_queue_sort
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.lister_resources import lister_resources
from kubeloop.scheduler.plugin_handle import PluginHandle, SharedState
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import completes_gang
from kubeloop.scheduler.plugins.priority_sort import PrioritySort
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, registered_actions, registrations
from kubeloop.scheduler.queue.safe_sort import safe_sort_key
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.scheduler.scheduler_gauges import SchedulerGauges

if TYPE_CHECKING:
    from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
    from kubeloop.scheduler.pod_groups.pod_group_cycle import PodGroupCycle

log = logging.getLogger(__name__)
# Pods are scheduled for this long per turn of the event loop. With one pod per turn, pods would wait under load for the
# controllers, which create more of them in each turn.
_TURN_NS = 3_000_000
_MAX_WAIT_FOR_DEVICES_SECONDS = 10.0
_DEVICE_CLASS = "resource.k8s.io/DeviceClass"
_RESOURCE_CLAIM, _RESOURCE_SLICE = "resource.k8s.io/ResourceClaim", "resource.k8s.io/ResourceSlice"
DEVICE_EVENTS = (_RESOURCE_CLAIM, _DEVICE_CLASS, _RESOURCE_SLICE)
"""Resources whose informers start with the first pod that needs devices."""


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
        self._report_failure = partial(report_failure, context)
        self._traces = context.traces
        self._metrics = context.metrics
        self._turn_ended = context.turn_ended
        self.feature_gates = context.feature_gates
        self.request_rules = request_rules(self.feature_gates)
        loop = asyncio.get_running_loop()
        self._time, self._call_soon = loop.time, loop.call_soon
        self._now_ns = context.clock.time_ns  # within a turn of the event loop, whose time may stand still
        self._informers = informers
        self._pods = informers.informer(PODS).store
        self._devices: ClusterDevices | None = None
        self._devices_needed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None  # while run() is active
        self._binding: set[asyncio.Task[None]] = set()
        self._unstarted_bindings = 0  # tasks of binding cycles that have not run yet
        calls = BackgroundCalls(context)
        self._patches = StatusPatches(context.client, context.clock, calls, enter_span=context.traces.enter_span)
        self._api_dispatcher = (
            ApiDispatcher(context.client, self._patches, calls)
            if self.feature_gates.enabled("SchedulerAsyncAPICalls")
            else None
        )

        self._with_groups = self.feature_gates.enabled("GenericWorkload")
        pod_groups = PodGroupStates()
        self.cache = SchedulerCache(
            self._time,
            assumed_pod_ttl_seconds=config.assumed_pod_ttl_seconds,
            request_rules=self.request_rules,
            pod_groups=pod_groups if self._with_groups else None,
        )
        # kube-scheduler's opportunistic batching also uses the results of one pod for the next ones of its kind.
        class_cache = config.class_cache and self.feature_gates.enabled("OpportunisticBatching")
        self.snapshot = Snapshot(SpecClasses(enabled=class_cache))
        informer_of: dict[str, SharedInformer[Any]] = {
            name: informers.informer(resource) for name, resource in lister_resources(self.feature_gates).items()
        }
        self._lister_informers = informer_of.values()
        self.listers = Listers(pods=self._pods, **{name: informer.store for name, informer in informer_of.items()})
        # Ignorable extenders come last, as in kube-scheduler.
        full_objects = FullObjects(context.client)
        self.extenders: list[HTTPExtender] = []
        for extender in sorted(config.extenders, key=lambda extender: extender.ignorable):
            from kubeloop.scheduler.extenders.extender import HTTPExtender

            self.extenders.append(HTTPExtender(extender, full_objects))
        nominator = Nominator(self._pods.get)
        self.waiting_pods = WaitingPods()
        shared = SharedState(
            snapshot=self.snapshot,
            listers=self.listers,
            extenders=self.extenders,
            nominator=nominator,
            waiting_pods=self.waiting_pods,
            spawn=self._spawn,
            activate=self._activate,
            cluster_devices=self.cluster_devices,
            api_cacher=self._api_dispatcher,
            pod_groups=pod_groups,
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
            name: QueueingHintMap(registrations(framework.event_plugins, pod_groups=self._with_groups))
            for name, framework in self.frameworks.items()
        }
        self.queue = self._new_queue(hint_maps, nominator)
        self.gauges = SchedulerGauges(self.queue, self.frameworks, self._binding)
        self.algorithm = Algorithm(
            self.snapshot,
            percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
            tie_break=config.tie_break,
            extenders=self.extenders,
            rng=context.rng,
            now_ns=self._now_ns,
        )
        self._failed_attempts = FailedAttempts(
            context, self.queue, self.cache, self.snapshot, self._pods, self._patches
        )
        self._steps = AttemptSteps(context, self.queue, self.cache, self.algorithm, self._failed_attempts)
        self.pod_group_cycle = self._new_group_cycle(context) if self._with_groups else None
        self._scheduling_cycle = SchedulingCycle(
            context,
            self.frameworks,
            self.queue,
            self.cache,
            self.algorithm.snapshot,
            self._steps,
            self._failed_attempts,
            self.pod_group_cycle.run if self.pod_group_cycle is not None else None,
        )
        self._binding_cycle = BindingCycle(
            context,
            self.cache,
            self.queue,
            self._patches,
            self.waiting_pods,
            self.extenders,
            config.max_bindings_in_flight,
        )
        self._event_actions = other_resources(registered_actions(hint_maps.values()))
        self._event_durations = EventDurations(self._metrics, self._now_ns)
        self._metrics.count_cached(
            nodes=lambda: self.cache.sizes()[0],
            pods=lambda: self.cache.sizes()[1],
            assumed_pods=lambda: self.cache.sizes()[2],
        )
        self._registrations = self._register()

    def _new_group_cycle(self, context: SchedulerContext) -> PodGroupCycle:
        from kubeloop.scheduler.pod_groups.group_conditions import PodGroupConditions
        from kubeloop.scheduler.pod_groups.pod_group_cycle import PodGroupCycle

        return PodGroupCycle(
            context,
            self.frameworks,
            self.queue,
            self.cache,
            self.algorithm.snapshot,
            self._steps,
            self._failed_attempts,
            PodGroupConditions(context.client, context.clock, self.listers.pod_groups, self._spawn),
            self.listers.pod_groups,
            self._start_binding,
        )

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
                pod_groups=self._with_groups,
            ),
            observer=QueueObserver(
                metrics=self._metrics,
                duration_ns=self._now_ns,
                queued=self._traces.queued,
                plugin_failed=self._report_failure,
            ),
        )

    def _sort_key(self, plugin: QueueSortPlugin) -> Callable[[QueuedPodInfo], Any]:
        if isinstance(plugin, PrioritySort):
            return plugin.sort_key
        return safe_sort_key(
            plugin.sort_key,
            lambda queued, error: self._report_failure(
                queued.pod, f'running QueueSort plugin "{plugin.name}": {error}'
            ),
        )

    def _register(self) -> list[HandlerRegistration[Any]]:
        """Add the event handlers, but for those of claims and devices (see cluster_devices)."""
        durations = self._event_durations
        pod_events = PodEvents(
            self.cache,
            self.queue,
            scheduler_names=self.frameworks,
            reject_waiting_pod=self.waiting_pods.reject_removed,
            durations=durations,
            sync_calls=self._patches.sync if self._api_dispatcher is not None else None,
            completes_gang=self._completes_gang if self.feature_gates.enabled("GangScheduling") else None,
        )
        declared_features = self.feature_gates.enabled("NodeDeclaredFeatures")
        node_events = NodeEvents(self.cache, self.queue, durations, declared_features=declared_features)
        return [
            self._informers.informer(NODES).add_handler(node_events, synced=self._first_list_ended),
            self._informers.informer(PODS).add_handler(pod_events, synced=self._first_list_ended),
            *self._register_others(name for name in self._event_actions if name not in DEVICE_EVENTS),
        ]

    def _completes_gang(self, pod: Pod) -> bool:
        assert self.cache.pod_groups is not None
        return completes_gang(pod, self.listers.pod_groups, self.cache.pod_groups)

    def _register_others(self, names: Iterable[str]) -> list[HandlerRegistration[Any]]:
        """Add the event handlers of other resources, named as in events_to_register."""
        registered = []
        for name in names:
            group, _, kind = name.rpartition("/")
            resource = BY_GROUP_KIND.get((group, kind))
            if name == events.POD_GROUP and not self._with_groups:
                continue  # the API server need not serve it
            if resource is not None:  # there are no events of unknown resources
                handler = OtherEvents(self.queue, name, self._event_actions[name], self._event_durations)
                informer = self._informers.informer(resource)
                registered.append(informer.add_handler(handler, synced=self._first_list_ended))
        return registered

    def _first_list_ended(self) -> None:
        """Queue gated pods when all first lists are complete. Handlers do not try them for each listed object."""
        if all(registration.has_synced for registration in self._registrations):
            self.queue.activate_gated()

    def cluster_devices(self) -> ClusterDevices:
        """Return the claims and devices of the cluster; the first call starts their informers."""
        if self._devices is None:
            from kubeloop.scheduler.devices.cluster_devices import ClusterDevices  # only for pods with devices

            self._devices = ClusterDevices(
                self._informers,
                self.feature_gates,
                classes_changed=self.snapshot.classes.clear,
                taints_changed=partial(self._queue_after_update, _RESOURCE_SLICE),
                allocation_undone=partial(self._queue_after_update, _RESOURCE_CLAIM),
            )
            self._register_others(name for name in self._event_actions if name in DEVICE_EVENTS)
            self._devices_needed.set()
        return self._devices

    def _queue_after_update(self, resource: str, old: object, new: object) -> None:
        """Queue pods after an update that is not an event of `resource`: by a DeviceTaintRule, or by Unreserve."""
        self.queue.move_all_to_active_or_backoff(events.cluster_event(resource, events.UPDATE), old, new)

    async def _follow_devices(self) -> None:
        """Queue the pods that need devices once the caches of claims and devices are complete.

        Pods with extended resources only wait for a limited time: device plugins may provide them.
        """
        await self._devices_needed.wait()
        assert self._devices is not None
        try:
            async with asyncio.timeout(_MAX_WAIT_FOR_DEVICES_SECONDS):
                await self._devices.wait_synced()
        except TimeoutError:  # the server does not serve them, or the scheduler may not list them
            log.warning("cannot list claims and devices; pods with extended resources are scheduled without devices")
            self._devices.is_overdue = True
            self._queue_pods_with_devices()
            await self._devices.wait_synced()
        self._queue_pods_with_devices()

    def _queue_pods_with_devices(self) -> None:
        self.queue.move_all_to_active_or_backoff(events.cluster_event(_DEVICE_CLASS, events.ADD), None, None)

    @property
    def awaits_call(self) -> bool:
        """True while a scheduling cycle may await an extender, a search for devices or PostFilter, or other tasks run
        within the cycle of a pod group.

        The snapshot must not change then.
        """
        return self._steps.awaits_call or (self.pod_group_cycle is not None and self.pod_group_cycle.is_active)

    @property
    def is_running(self) -> bool:
        """True while pods are scheduled: the informers are synced, and this replica leads."""
        return self._tasks is not None

    @property
    def has_urgent_work(self) -> bool:
        """True if pods wait for an attempt, or for a bind request that the next turn of the event loop sends."""
        if self._unstarted_bindings:
            return True
        return self.is_running and self.queue.has_work and self._binding_cycle.free_slots > 0

    @property
    def is_binding(self) -> bool:
        """True while bind requests are in flight, or were a moment ago."""
        return self._binding_cycle.is_binding

    @property
    def waits_for_busy_server(self) -> bool:
        """True while pods are bound whose bind requests wait for other requests in the API server."""
        return self._binding_cycle.waits_for_busy_server

    def _binding_started(self) -> None:
        self._unstarted_bindings -= 1
        if not self._unstarted_bindings:
            self._turn_ended()

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
                        acting.create_task(self._follow_devices(), name="scheduler/devices")
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
            end_ns = self._now_ns() + _TURN_NS
            for _ in range(self._binding_cycle.free_slots):
                if self.config.attempt_seconds:
                    await self.queue.wait()
                    await asyncio.sleep(self.config.attempt_seconds)
                attempt = await self._scheduling_cycle.run()
                if attempt is None:
                    break
                self._start_binding(attempt)
                if self._now_ns() >= end_ns:
                    break
            if not self._unstarted_bindings:
                self._turn_ended()
            await self.queue.wait()
            await asyncio.sleep(0)  # let the informers read their sockets while there is work

    def _start_binding(self, attempt: Attempt) -> None:
        assert self._tasks is not None
        self._start(self._tasks, self._bind(attempt), f"bind/{attempt.queued.key}")
        self._unstarted_bindings += 1
        self._call_soon(self._binding_started)  # after the first step of the new task

    async def _bind(self, attempt: Attempt) -> None:
        """Run the binding cycle. Raises nothing but cancellation."""
        status = await self._binding_cycle.run(attempt)
        if status is not None:
            self._failed_attempts.not_bound(attempt, status)

    async def _sweep_forever(self) -> None:
        while True:
            await pause(1.0, due=0.0 if self.cache.assumes_pods() else None, has_work=self.cache.assumes_pods)
            for pod in self.cache.expire_assumed_pods():
                self.queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, pod, None)

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
