"""All pages of a process that runs controllers and scheduler."""

from __future__ import annotations

from typing import Any

from kubeloop.process.control_plane.control_plane import ControlPlane
from kubeloop.process.endpoint.explain_pages import add_explain_pages
from kubeloop.process.endpoint.object_pages import add_object_pages
from kubeloop.process.endpoint.pod_resource_metrics import pod_resources
from kubeloop.process.endpoint.scheduler_dump_pages import add_dump_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages


def add_process_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add the readiness check, configuration, traces, explanations, objects and dumps of `plane`."""
    endpoint.add_readiness_check("informer-sync", lambda: None if plane.synced.is_set() else "caches are not filled")
    endpoint.add_page("/configz", lambda _: _configuration(plane))
    if "scheduler" in plane.settings.controllers:
        endpoint.add_page("/metrics/resources", lambda _: pod_resources(plane.pods.list()))
    add_trace_pages(endpoint, plane.tracing, plane.pods, plane.deployments)
    add_explain_pages(endpoint, plane)
    add_object_pages(endpoint, plane.client)
    add_dump_pages(endpoint, plane)


def _configuration(plane: ControlPlane) -> dict[str, Any]:
    document: dict[str, Any] = {"tracing.kubeloop.dev": plane.tracing.document()}
    if "scheduler" in plane.settings.controllers:
        from kubeloop.scheduler.config.v1 import configuration_document

        document["kubescheduler.config.k8s.io"] = configuration_document(plane.settings.scheduler)
    return document
