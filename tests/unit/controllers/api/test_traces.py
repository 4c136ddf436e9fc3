"""Traces of an author's reconciles: links to their causes, requests, Pods, and the reconciles that they cause."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.api import Controller, For, Owns, Request, Result, set_controller_reference
from kubeloop.controllers.api.resources import PODS
from kubeloop.controllers.api.runner import ControllerRunner
from kubeloop.testing import memory_cluster, virtual_time
from kubeloop.testing.virtual_time import VirtualClock
from support.controllers.sites import CRD, SITES, Sites, site

REQUEST = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class SitePods(Controller):
    """Creates a Pod for each Site."""

    name = "site-pods"
    watches = (For(SITES), Owns(PODS))

    async def reconcile(self, request: Request) -> Result:
        site = self.cache.get(SITES, request)
        if site is not None and not self.cache.owned_by(PODS, site):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": request.name, "namespace": request.namespace},
                "spec": {"containers": [{"name": "web", "image": "nginx:1"}]},
            }
            await self.client.create(set_controller_reference(site, pod))
        return None


def records(controller: type[Controller], ready: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the records of all reconciles after a Site was applied, and the trace of its Pod if it has its name."""

    async def scenario() -> tuple[list[Any], dict[str, Any]]:
        async with memory_cluster(clock=VirtualClock(), nodes=1, controllers=["*", controller]) as cluster:
            await cluster.apply(CRD)
            applied = site()
            applied["metadata"]["annotations"] = {"tracing.k8s.io/traceparent": REQUEST}
            await cluster.apply(applied)
            await cluster.wait_for(ready, "Ready" if ready.startswith("pod") else "Available")
            trace = await cluster.trace("blog") if ready == "pod/blog" else {}
            await cluster.plane.tracing.flush()
            return [*cluster.plane.tracing.recent._reconciles], trace

    return virtual_time.run(scenario())


def test_pod_has_a_trace_with_its_owner_and_the_reconcile():
    reconciles, trace = records(SitePods, "pod/blog")
    pod, *_ = trace["spans"]
    assert (pod["attributes"]["kubeloop.owner.kind"], pod["attributes"]["kubeloop.owner.name"]) == ("Site", "blog")
    [reconcile] = [record for record in reconciles if record.controller == "site-pods"]
    span = reconcile.trace().spans[0]
    assert (span.attributes["k8s.namespace.name"], span.attributes["k8s.site.name"]) == ("default", "blog")
    assert [link["traceId"] for link in pod["links"]] == [reconcile.trace_id]
    assert [relation for _, relation in reconcile.links] == ["cause", "pod"]
    assert reconcile.links[0][0] == REQUEST


def test_reconcile_of_a_deployment_links_to_the_one_that_applied_it():
    reconciles, _ = records(Sites, "deployment/blog")
    first = next(record for record in reconciles if record.controller == "sites")
    deployment = next(record for record in reconciles if record.controller == "deployment")
    assert "apply deployment blog" in first.actions
    assert any(first.trace_id in traceparent for traceparent, relation in deployment.links if relation == "cause")


@pytest.mark.virtual_time
async def test_requests_of_a_reconcile_carry_its_traceparent(fake_apiserver, start):
    fake_apiserver.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    fake_apiserver.api.create(SITES.path("default"), site())
    await start(fake_apiserver.informers, ControllerRunner(fake_apiserver.context, Sites))
    writes = [request for request in fake_apiserver.transport.sent if request.method == "PATCH"]
    assert len(writes) >= 3
    assert all(request.headers.get("traceparent", "").startswith("00-") for request in writes)
