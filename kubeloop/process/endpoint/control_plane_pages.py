"""Pages of a process that runs controllers and scheduler: configuration, traces, explanations, objects and dumps."""

from __future__ import annotations

from typing import Any

from kubeloop.process.control_plane.control_plane import ControlPlane
from kubeloop.process.endpoint.explain_pages import add_explain_pages
from kubeloop.process.endpoint.object_pages import add_object_pages
from kubeloop.process.endpoint.pod_resource_metrics import pod_resources
from kubeloop.process.endpoint.scheduler_dump_pages import add_dump_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages


def add_control_plane_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add the pages of `plane`."""
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
