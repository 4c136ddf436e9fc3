"""API calls about pods with the feature gate SchedulerAsyncAPICalls: order, and obsolete calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.metrics.metrics_registry import PrometheusFamilies
from kubeloop.scheduler.api_calls.api_dispatcher import ApiDispatcher
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.metrics import SchedulerMetrics
from support.apiserver.faulty_transport import SentRequest, injected_error
from support.scheduling.plugin_cluster import PluginCluster

pytestmark = pytest.mark.virtual_time

GATES = {"SchedulerAsyncAPICalls": True}


class Calls:
    """A dispatcher whose requests take five seconds. log: requests when they are sent and answered."""

    def __init__(self, cluster: Any) -> None:
        self.log: list[str] = []
        self.registry = CollectorRegistry()
        owner = PluginCluster(feature_gates=GATES)
        owner.metrics = SchedulerMetrics(PrometheusFamilies(self.registry), FeatureGates(GATES))
        calls = BackgroundCalls(owner)
        self.patches = StatusPatches(cluster.server.client, cluster.clock, calls)
        self.dispatcher = ApiDispatcher(cluster.server.client, self.patches, calls)
        cluster.server.transport.before_request = self._before_request

    async def _before_request(self, request: SentRequest) -> None:
        subresource = request.path.rpartition("/")[2]
        node = json.loads(request.body).get("status", {}).get("nominatedNodeName", "")
        name = f"{subresource} {node}".strip()
        self.log.append(f"{name} sent")
        await asyncio.sleep(5)
        self.log.append(f"{name} answered")

    def pending(self, call: str) -> float | None:
        return self.registry.get_sample_value("scheduler_pending_async_api_calls", {"call_type": call})


def binding_of(pod: Any, node: str = "a") -> dict[str, Any]:
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


async def test_binding_waits_for_the_patch_in_progress_and_drops_the_pending_one(cluster: Any) -> None:
    calls = Calls(cluster)
    cluster.node("a")
    web = cluster.pod("web")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(calls.patches.run())
        calls.dispatcher.patch_pod_status(web, nominated_node_name="first")
        await asyncio.sleep(1)
        calls.dispatcher.patch_pod_status(web, nominated_node_name="second")
        assert calls.pending("pod_status_patch") == 1
        binding = tasks.create_task(calls.dispatcher.bind_pod(binding_of(web)))
        await asyncio.sleep(1)
        assert (calls.pending("pod_binding"), calls.pending("pod_status_patch")) == (1, 0)
        await asyncio.sleep(4)
        calls.dispatcher.patch_pod_status(web, nominated_node_name="third")  # ignored: it is being bound
        assert (calls.pending("pod_binding"), calls.pending("pod_status_patch")) == (0, 0)
        await binding
        await asyncio.sleep(10)
        running.cancel()
    assert calls.log == ["status first sent", "status first answered", "binding sent", "binding answered"]
    assert cluster.node_of("default/web") == "a"


async def test_failed_binding_raises_and_its_pod_may_be_patched_again(cluster: Any) -> None:
    calls = Calls(cluster)
    web = cluster.pod("web")
    cluster.server.transport.reject = lambda method, path: injected_error(500) if method == "POST" else None
    with pytest.raises(Exception, match="500"):
        await calls.dispatcher.bind_pod(binding_of(web))
    calls.dispatcher.patch_pod_status(web, reason="SchedulerError", message="binding failed")
    assert calls.pending("pod_status_patch") == 1


@pytest.mark.parametrize("enabled", [True, False])
async def test_obsolete_nomination_is_not_sent_with_the_gate_on(enabled: bool, cluster: Any, scheduling: Any) -> None:
    """The pod gets the nomination of a pending patch by another writer, while an earlier patch is in progress."""
    cluster.node("a")
    web = cluster.pod("web", cpu="100")
    log: list[str] = []

    async def before_request(request: SentRequest) -> None:
        if request.path.endswith("/status"):
            log.append(json.loads(request.body)["status"].get("nominatedNodeName", "condition"))
            await asyncio.sleep(5)

    cluster.server.transport.before_request = before_request
    async with scheduling(gates={"SchedulerAsyncAPICalls": enabled}) as scheduler:
        await asyncio.sleep(1)
        scheduler._patches.set(web, nominated_node_name="b")
        status = cluster.stored_pod("default/web")["status"]
        cluster.change_pod("default/web", status={**status, "nominatedNodeName": "b"})
        await asyncio.sleep(30)
    assert log == (["condition"] if enabled else ["condition", "b"])


async def test_plugins_have_the_dispatcher_with_the_gate_on(cluster: Any, scheduling: Any) -> None:
    for enabled in (True, False):
        async with scheduling(gates={"SchedulerAsyncAPICalls": enabled}) as scheduler:
            (framework,) = scheduler.frameworks.values()
            assert (framework.plugins["DefaultBinder"]._handle.api_cacher is not None) is enabled
