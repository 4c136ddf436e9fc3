"""All pages of a process that observes a cluster."""

from __future__ import annotations

from typing import Any

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod
from kubeloop.process.endpoint.object_pages import add_object_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages
from kubeloop.process.observation.observation import Observation


def add_observation_pages(endpoint: EndpointServer, observation: Observation) -> None:
    """Add the readiness check, configuration, traces and objects of `observation`."""
    endpoint.add_readiness_check(
        "pods-listed", lambda: None if observation.synced.is_set() else "the first list of pods is not complete"
    )
    endpoint.add_page("/configz", lambda _: _configuration(observation))
    add_trace_pages(endpoint, observation.tracing, Store[Pod](), clock_skew=observation.skew)
    add_object_pages(endpoint, observation.client)


def _configuration(observation: Observation) -> dict[str, Any]:
    settings = observation.settings
    observed = {
        "namespace": settings.namespace,
        "labelSelector": settings.label_selector,
        "missingPermissions": sorted(observation.missing),
        "clockSkew": observation.skew.document(),
    }
    return {"tracing.kubeloop.dev": observation.tracing.document(), "observation.kubeloop.dev": observed}
