"""One object at which the code fails: it is logged, and all other objects are processed as ever."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from kubeloop.controllers.daemonset.daemon_set_controller import DaemonSetController
from kubeloop.controllers.nodelifecycle.node_lifecycle_controller import NodeLifecycleController
from kubeloop.controllers.podgc import pod_garbage_collector
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.controllers.tainteviction.taint_eviction_controller import TaintEvictionController
from kubeloop.devcluster.kubelet.kubelet import Kubelets
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs, SharedInformer
from kubeloop.informers.store import Store
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.tracing.observation.pod_observer import PodObserver
from kubeloop.tracing.provider import Tracing
from support.objects.manifests import deployment
from support.traces.observation import new_observation

pytestmark = pytest.mark.virtual_time
BAD = "bad"
PLACES = [
    (SharedInformer, "_set"),
    (Store, "put"),
    (ResourceEventHandlerFuncs, "on_add"),
    (ResourceEventHandlerFuncs, "on_update"),
    (ResourceEventHandlerFuncs, "on_delete"),
    (ReplicaSetController, "reconcile"),
    (DaemonSetController, "reconcile"),
    (TaintEvictionController, "_plan"),
    (NodeLifecycleController, "_observe"),
    (NodeLifecycleController, "_check_node"),
    (pod_garbage_collector, "patch_pod_status"),
    (Kubelets, "add_pod"),
    (Kubelets, "_advance"),
    (Kubelets, "changed"),
    (PodObserver, "pod_observed"),
    (PodObserver, "pod_deleted"),
    (PodObserver, "event_observed"),
    (PodObserver, "node_observed"),
    (PodObserver, "_finish"),
    (PodObserver, "_publish_reconstructed"),
    (Tracing, "_export_one"),
]


def is_bad(value: Any) -> bool:
    """Return True if a value is the defective object, or refers to it."""
    if isinstance(value, str):
        return value.rpartition("/")[2] == BAD
    if isinstance(value, dict):
        return is_bad(value.get("metadata", {}).get("name", ""))
    return any(is_bad(getattr(value, name, "")) for name in ("name", "metadata", "object", "involved_object"))


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
    """Make a method raise an exception for the defective object."""
    original = getattr(owner, method)

    def check(arguments: tuple[Any, ...]) -> None:
        if any(map(is_bad, arguments)):
            raise ValueError("defective object")

    async def fail_later(*arguments: Any, **options: Any) -> Any:
        check(arguments)
        return await original(*arguments, **options)

    def fail(*arguments: Any, **options: Any) -> Any:
        check(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, method, fail_later if inspect.iscoroutinefunction(original) else fail)


TEMPLATE = {"metadata": {"labels": {"app": BAD}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
PODS = {"selector": {"matchLabels": {"app": BAD}}, "template": TEMPLATE}
METADATA = {"name": BAD, "namespace": "default"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": BAD}}
LOST_NODE = {**NODE, "metadata": {"name": BAD, "annotations": {ANNOTATION_FAIL: "unreachable"}}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": {**TEMPLATE["spec"], "nodeName": BAD}}
OWNERS = [
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": METADATA, "spec": {"replicas": 1, **PODS}},
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": METADATA, "spec": PODS},
]


@pytest.mark.parametrize(("owner", "method"), PLACES, ids=lambda value: getattr(value, "__name__", value))
async def test_defective_object_stops_no_other(monkeypatch, clock, caplog, owner, method):
    fail_at(monkeypatch, owner, method)
    async with memory_cluster(clock=clock, nodes=2, start_delay=1) as cluster:
        await cluster.apply(NODE, POD, *OWNERS)
        await asyncio.sleep(60)
        observation = new_observation(MemoryTransport(cluster.api.handle), clock)
        observing = asyncio.create_task(observation.run())
        await asyncio.sleep(60)
        await cluster.delete("pod/bad")
        await asyncio.sleep(60)
        await cluster.apply(POD)
        await asyncio.sleep(60)
        await cluster.apply(LOST_NODE)
        await asyncio.sleep(120)
        await cluster.delete("node/bad")
        await cluster.apply(deployment(replicas=2))
        await cluster.wait_for("deployment/web", "complete")
        await asyncio.sleep(120)
        await cluster.apply(deployment(replicas=3, image="app:2"))
        await cluster.wait_for("deployment/web", "complete")
        await asyncio.sleep(60)
        assert not observing.done()
        traced = {record.name for record in observation.tracing.recent.records() if record.outcome == "ready"}
        assert {pod.metadata.name for pod in cluster.seen_pods() if pod.metadata.name.startswith("web-")} <= traced
        observing.cancel()
        await asyncio.wait([observing])
    assert "defective object" in caplog.text
