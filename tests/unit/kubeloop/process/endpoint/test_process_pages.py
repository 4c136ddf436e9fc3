"""All pages of a process, over a running control plane."""

import asyncio
import json

import aiohttp
from prometheus_client import CollectorRegistry

from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import PODS
from kubeloop.process.endpoint.control_plane_pages import add_control_plane_pages
from kubeloop.process.endpoint.process_pages import add_process_pages
from kubeloop.process.endpoint.scheduler_dump_pages import add_dump_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages
from kubeloop.testing.in_memory import memory_cluster
from support.processes.endpoints import serving


async def get(url, path):
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return response.status, await response.text()


async def test_process_pages_cover_readiness_configuration_and_resources():
    async with memory_cluster(nodes=1) as cluster:
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_process_pages(endpoint, cluster.plane)
        async with asyncio.timeout(30), serving(endpoint) as url:
            assert (await get(url, "/readyz"))[0] == 200
            status, configuration = await get(url, "/configz")
            assert status == 200
            assert '"kubescheduler.config.k8s.io"' in configuration
            assert '"tracing.kubeloop.dev"' in configuration
            assert (await get(url, "/metrics/resources"))[0] == 200


async def test_pages_of_a_control_plane_without_scheduler_have_no_resource_metrics():
    async with memory_cluster(controllers=["deployment"]) as cluster:
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_control_plane_pages(endpoint, cluster.plane)
        async with serving(endpoint) as url:
            status, configuration = await get(url, "/configz")
            assert (status, list(json.loads(configuration))) == (200, ["tracing.kubeloop.dev"])
            assert (await get(url, "/metrics/resources"))[0] == 404


async def test_scheduler_dump_shows_nodes_queue_and_no_differences():
    async with memory_cluster(nodes=2) as cluster:
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_dump_pages(endpoint, cluster.plane)
        async with serving(endpoint) as url:
            status, text = await get(url, "/debug/scheduler")
    assert status == 200
    document = json.loads(text)
    assert len(document["nodes"]) == 2
    assert not any(document["differences"].values())
    assert "queue" in document


async def test_trace_pages_have_no_trace_before_the_first_pod():
    async with memory_cluster(nodes=1) as cluster:
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_trace_pages(endpoint, cluster.plane.tracing, cluster.plane.informers.informer(PODS).store)
        async with serving(endpoint) as url:
            status, text = await get(url, "/debug/traces")
            assert status == 404
            assert "no trace of any pod yet" in text
            assert (await get(url, "/traces"))[0] == 200
