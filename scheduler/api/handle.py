"""Handle: the scheduler's side of the plugin API. A plugin is constructed as `PluginClass(args, handle)`."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.events.event_recorder import EventSink
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.extender import Extender
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.metrics import SchedulerMetrics

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kubeloop.scheduler.devices.cluster_devices import ClusterDevices


class PodNominator(Protocol):
    """The pods that are nominated to nodes: preemption is making room for them. Implemented by `queue.nominator`."""

    def pods_on(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to the node."""
        ...

    def node_of(self, uid: str) -> str:
        """Return the node that the pod is nominated to, or ""."""
        ...

    @property
    def version(self) -> int:
        """Increases with every change of a nomination."""
        ...

    def changed_since(self, version: int) -> set[str] | None:
        """Return the nodes whose nominations changed after `version`; None if that is not known any more."""
        ...

    def nodes(self) -> Set[str]:
        """Return the nodes with nominated pods."""
        ...


class WaitingPod(Protocol):
    """A pod that waits on permit, to be allowed or rejected. Implemented by `framework.waiting_pods`."""

    pod: PodInfo

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed the pod yet."""
        ...

    def allow(self, plugin: str) -> None:
        """Allow the pod; it is bound once every plugin that returned Wait has allowed it."""
        ...

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod: it is unreserved and returns to the scheduling queue."""
        ...


class ApiCacher(Protocol):
    """API calls about pods that are merged per pod and sent in the background. Implemented by `api_dispatcher`."""

    def patch_pod_status(
        self, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: str | None = None
    ) -> None:
        """Request the condition PodScheduled=False and the nominated node; does not wait for the patch.

        reason "": no condition. nominated_node_name "": clear it; None: leave it.
        """
        ...

    async def bind_pod(self, binding: JSON) -> None:
        """Bind a pod, in place of pending status patches of the pod. Raises ApiError, ServerUnreachable.

        Cancellation: the request may have been sent; the informer then shows the result.
        """
        ...


class Handle(Protocol):
    """The scheduler, as its plugins see it.

    snapshot: the nodes in this cycle; the same object in every cycle. listers: caches of other resources. extenders: in
    the order in which they are called. metrics: of kube-scheduler, ignored if they are not collected. api_cacher: None
    if the feature gate SchedulerAsyncAPICalls is off. pod_groups: the live state of each pod group; empty without the
    feature gate GenericWorkload.
    """

    snapshot: Snapshot
    listers: Listers
    client: ApiClient
    clock: Clock
    rng: random.Random
    recorder: EventSink
    extenders: Sequence[Extender]
    feature_gates: FeatureGates
    metrics: SchedulerMetrics
    api_cacher: ApiCacher | None
    nominator: PodNominator
    pod_groups: PodGroupStates

    @property
    def tracer(self) -> Tracer:
        """OpenTelemetry tracer. Spans started while a pod is scheduled or bound are part of that pod's trace."""
        ...

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Run the per-node filters with the pods nominated to the node, and without them; both must pass."""
        ...

    def dry_runs(self, state: CycleState, pod: PodInfo) -> DryRuns:
        """Return dry runs of `pod`: the filters' results if other pods were added or removed."""
        ...

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Call AddPod of the PreFilter extensions for `added` on `node`; return the first failure."""
        ...

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Call RemovePod of the PreFilter extensions for `removed` on `node`; return the first failure."""
        ...

    def waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a pod that waits on permit, to be allowed or rejected; None if it does not wait."""
        ...

    def preempt_unbound(self, uid: str, plugin: str) -> bool:
        """Stop the binding of a pod that waits on permit or runs PreBind plugins; it is retried after a backoff.

        Return False if the pod is in neither phase: it can only be deleted.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` in the background, in the scheduler's task group. It must handle its own errors."""
        ...

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move these pending pods to the active queue."""
        ...

    def cluster_devices(self) -> ClusterDevices:
        """Return the claims and devices of the cluster; the first call starts their informers."""
        ...
