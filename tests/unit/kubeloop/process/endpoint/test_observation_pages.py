"""Pages of a process that observes a cluster."""

from __future__ import annotations

import random

import aiohttp
from prometheus_client import CollectorRegistry

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.process.endpoint.observation_pages import add_observation_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.observation.observation import Observation, ObservationSettings
from kubeloop.tracing.observation.clock_skew import ClockSkew
from support.processes.endpoints import serving


async def test_pages_cover_readiness_configuration_and_traces():
    clock, rng, skew = SystemClock(), random.Random(1), ClockSkew()
    skew.http_date(10, 11, 12)
    settings = ObservationSettings(namespace="shop", missing=frozenset({"events"}))
    client = ApiClient(None, clock=clock, rng=rng)
    observation = Observation(client, settings, clock=clock, rng=rng, registry=MetricsRegistry(), skew=skew)
    endpoint = EndpointServer(CollectorRegistry(), clock=clock)
    add_observation_pages(endpoint, observation)
    async with serving(endpoint) as url, aiohttp.ClientSession() as session:

        async def status(path):
            async with session.get(url + path) as response:
                return response.status

        assert await status("/readyz") == 500
        observation.synced.set()
        assert await status("/readyz") == 200
        assert await status("/traces") == 200
        assert await status("/debug/traces") == 404  # no trace yet
        async with session.get(f"{url}/configz") as response:
            document = await response.json()
    assert document["tracing.kubeloop.dev"]["until"] == "ready"
    observed = document["observation.kubeloop.dev"]
    assert (observed["namespace"], observed["missingPermissions"]) == ("shop", ["events"])
    assert list(observed["clockSkew"]) == ["API server"]
