"""PluginCluster: nodes and pods in a cache and snapshot, for tests that call plugins or a Framework directly.

No API server: the state of the cache and of the listers is the input of such a test, and the requests of a plugin are
its output.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kubeloop.informers.store import Store
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extender import Extender
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.cache.pod_requests import request_rules
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.queue.nominator import Nominator
from support.simulation.recorded_events import RecordedEvents
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledPodRecorder

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class RecordingClient:
    """Client that records requests. Raises the entries of `failures` that are not None, one per request."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, ...]] = []
        self.failures: list[Exception | None] = []

    async def _record(self, *request: Any) -> None:
        self.requests.append(request)
        await asyncio.sleep(0)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    async def create_raw(self, resource: Any, body: Any, namespace: str = "", **options: Any) -> None:
        await self._record("create", resource.plural, namespace, options.get("name"), options.get("subresource"), body)

    async def patch(
        self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str = "", **options: Any
    ) -> None:
        await self._record("patch", resource.plural, namespace, name, options.get("subresource", ""), body)

    async def delete(self, resource: Any, name: str, namespace: str = "", **options: Any) -> None:
        await self._record("delete", resource.plural, namespace, name)


def make_node(name: str, **changes: Any) -> Node:
    """Return a node with 4 CPUs, 8Gi and 10 pods; `labels`, `taints`, `allocatable` are added to its defaults."""
    labels = {"kubernetes.io/hostname": name} | changes.get("labels", {})
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"} | changes.get("allocatable", {})
    spec = {"taints": changes.get("taints", []), "unschedulable": changes.get("unschedulable", False)}
    status = {"allocatable": allocatable, "images": changes.get("images", [])}
    return convert(Node, {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec, "status": status})


def make_pod(name: str, node_name: str = "", **spec: Any) -> Pod:
    """Return a pod of one container; `cpu`, `memory`, `labels`, `ports`, `owner` are shorthands for its fields."""
    requests = {key: spec.pop(key) for key in ("cpu", "memory") if key in spec}
    metadata = {
        "name": name,
        "namespace": spec.pop("namespace", "default"),
        "uid": spec.pop("uid", name),
        "labels": spec.pop("labels", {}),
        "ownerReferences": spec.pop("owner", []),
    }
    container = {"name": "c", "image": "app:1", "resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    status = spec.pop("status", {})
    body = {"containers": [container], "nodeName": node_name, "schedulerName": "default-scheduler"} | spec
    return convert(Pod, {"metadata": metadata, "spec": body, "status": status})


def pod_group_spec(min_count: int = 0, topology_key: str = "") -> dict[str, Any]:
    """Return the spec of a PodGroup. min_count 0: basic policy. topology_key: of its topology constraint; "": none."""
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    constraints = {"schedulingConstraints": {"topology": [{"key": topology_key}]}} if topology_key else {}
    return {"schedulingPolicy": policy, **constraints}


def make_pod_group(name: str, min_count: int = 0, topology_key: str = "", **spec: Any) -> PodGroup:
    """Return a PodGroup. The first arguments are those of pod_group_spec; `spec`: other fields."""
    metadata = {"name": name, "namespace": "default", "uid": name, "generation": 1}
    return convert(PodGroup, {"metadata": metadata, "spec": pod_group_spec(min_count, topology_key) | spec})


def make_member(name: str, node_name: str = "", group: str = "g", **spec: Any) -> Pod:
    """Return a pod in a group; otherwise like make_pod."""
    return make_pod(name, node_name, schedulingGroup={"podGroupName": group}, **spec)


class PluginCluster:
    """A cache with nodes and pods, its snapshot, the handle of plugins, and a Framework that is created on demand."""

    def __init__(
        self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = (), feature_gates: Mapping[str, bool] | None = None
    ) -> None:
        self.feature_gates = FeatureGates(feature_gates or {})
        self.pod_groups = PodGroupStates()
        rules = request_rules(self.feature_gates)
        self.cache = SchedulerCache(lambda: 0.0, request_rules=rules, pod_groups=self.pod_groups)
        self.snapshot = Snapshot()
        self.listers = Listers()
        self.pods: Store[Pod] = Store()
        self.listers.pods = self.pods
        self.nominator = Nominator(self.pods.get)
        self.client: Any = RecordingClient()
        self.recorder: Any = RecordedEvents()
        self.traces = DisabledPodRecorder()
        self.extenders: list[Extender] = []
        self.metrics: Any = NO_METRICS
        self.api_cacher: Any = None
        self.clock = SetClock(NOW)
        self.rng = random.Random(7)
        self.unbound: set[str] = set()  # UIDs of pods whose binding can be stopped
        self.waiting_pods: dict[str, Any] = {}  # by UID
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.activated: list[str] = []
        self.devices: Any = None  # support.objects.devices.FilledDevices; created for the first plugin that needs it
        self._framework: Framework | None = None
        for node in nodes:
            self.cache.add_node(node)
        for pod in pods:
            self.pods.put(pod.key, pod)
            self.cache.add_pod(pod)
        self.refresh()

    def refresh(self) -> Snapshot:
        self.cache.update_snapshot(self.snapshot)
        return self.snapshot

    def put(self, lister: str, *objects: Any) -> None:
        store: Store[Any] = getattr(self.listers, lister)
        for obj in objects:
            store.put(obj.key, obj)

    def make_framework(self, *, class_cache: bool = True, **configuration: Any) -> Framework:
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler"} | configuration],
        }
        profile = read_configuration(document).profiles[0]
        self._framework = Framework(profile, self, ALL_PLUGINS, self.nominator, WaitingPods(), class_cache=class_cache)
        return self._framework

    @property
    def framework(self) -> Framework:
        return self._framework or self.make_framework()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.spawned.append(work)

    def activate(self, pods: Iterable[Pod]) -> None:
        self.activated += [pod.key for pod in pods]

    def cluster_devices(self) -> Any:
        if self.devices is None:
            from support.objects.devices import FilledDevices  # few tests need it

            self.devices = FilledDevices()
        return self.devices

    def waiting_pod(self, uid: str) -> Any:
        return self.waiting_pods.get(uid)

    def preempt_unbound(self, uid: str, plugin: str) -> bool:
        return uid in self.unbound

    def dry_runs(self, state: CycleState, pod: PodInfo) -> NodeDryRuns:
        return NodeDryRuns(self.framework.node_filters, state, pod)

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_filters_with_nominated_pods(state, pod, node)

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_add_pod(state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_remove_pod(state, pod, removed, node)


def raw_scores(plugin: Any, cluster: PluginCluster, pod: PodInfo) -> list[int]:
    """Return the raw scores of all nodes, after checking that array and per-node form agree."""
    state, snapshot = CycleState(), cluster.snapshot
    plugin.pre_score(state, pod, snapshot, snapshot.all_rows)
    per_node = [plugin.score(state, pod, info) for info in snapshot.node_infos]
    assert plugin.score_rows(state, pod, snapshot, snapshot.all_rows).tolist() == per_node
    return per_node


def rejections(plugin: Any, cluster: PluginCluster, pod: Pod) -> dict[str, tuple[str, ...]]:
    """Return the reasons of PreFilter (under "") and Filter by node, after checking that both forms of Filter agree."""
    state, snapshot, info = CycleState(), cluster.snapshot, PodInfo(pod)
    if hasattr(plugin, "pre_filter"):
        _, status = plugin.pre_filter(state, info, snapshot)
        if status is not None:
            return {} if status.code is Code.SKIP else {"": status.reasons}
    statuses = [plugin.filter(state, info, node) for node in snapshot.node_infos]
    if hasattr(plugin, "filter_rows"):
        result = plugin.filter_rows(state, info, snapshot, snapshot.all_rows)
        assert [None if ok else result.explain(row) for row, ok in enumerate(result.passed)] == statuses
    nodes = zip(snapshot.node_infos, statuses, strict=True)
    return {node.name: status.reasons for node, status in nodes if status is not None}
