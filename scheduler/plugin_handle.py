"""The plugin handle of one profile (see api.handle.Handle)."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.extender import Extender
from kubeloop.scheduler.api.handle import ApiCacher, PodNominator
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.types import Profile
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.profile_plugins import Registry
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.queue.nominator import Nominator

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kubeloop.scheduler.devices.cluster_devices import ClusterDevices


class SharedState(msgspec.Struct, frozen=True):
    """State shared by the plugins of all profiles. spawn, activate, cluster_devices, api_cacher, pod_groups: see
    api.handle.Handle."""

    snapshot: Snapshot
    listers: Listers
    extenders: Sequence[Extender]
    nominator: Nominator
    waiting_pods: WaitingPods
    spawn: Callable[[Coroutine[Any, Any, None], str], None]
    activate: Callable[[Iterable[Pod]], None]
    cluster_devices: Callable[[], ClusterDevices]
    api_cacher: ApiCacher | None
    pod_groups: PodGroupStates


class PluginHandle:
    """The handle of the plugins of one profile, with the profile's framework, which creates these plugins."""

    def __init__(
        self,
        profile: Profile,
        context: SchedulerContext,
        shared: SharedState,
        registry: Registry,
        *,
        class_cache: bool,
    ) -> None:
        """Raises UserError for an invalid profile."""
        self.client = context.client
        self.clock = context.clock
        self.rng = context.rng
        self.recorder = context.recorder_for(profile.scheduler_name)
        self.metrics = context.metrics
        self.feature_gates = context.feature_gates
        self.snapshot = shared.snapshot
        self.listers = shared.listers
        self.extenders = shared.extenders
        self.nominator: PodNominator = shared.nominator
        self.api_cacher = shared.api_cacher
        self.pod_groups = shared.pod_groups
        self.waiting_pod = shared.waiting_pods.get
        self.preempt_unbound = shared.waiting_pods.preempt
        self._shared = shared
        self.framework = Framework(
            profile, self, registry, shared.nominator, shared.waiting_pods, class_cache=class_cache
        )
        node_filters = self.framework.node_filters
        self.run_filters_with_nominated_pods = node_filters.run_filters_with_nominated_pods
        self.run_add_pod = node_filters.run_add_pod
        self.run_remove_pod = node_filters.run_remove_pod

    @cached_property
    def tracer(self) -> Tracer:
        """Tracer whose spans are part of the trace of the pod that is being scheduled or bound."""
        from kubeloop.tracing.recording.plugin_tracer import PluginTracer  # imports the OpenTelemetry API

        return PluginTracer(self.clock, random.Random(self.rng.getrandbits(64)))

    def dry_runs(self, state: CycleState, pod: PodInfo) -> DryRuns:
        return NodeDryRuns(self.framework.node_filters, state, pod)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._shared.spawn(work, name)

    def activate(self, pods: Iterable[Pod]) -> None:
        self._shared.activate(pods)

    def cluster_devices(self) -> ClusterDevices:
        return self._shared.cluster_devices()
