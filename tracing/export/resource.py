"""Resource of exported spans: service name, version and OTEL_RESOURCE_ATTRIBUTES."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from kubeloop.tracing.spans.trace import Attributes


def kubeloop_version() -> str:
    try:
        return version("kubeloop")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


def resource_attributes() -> Attributes:
    """Return the resource of OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPERIMENTAL_RESOURCE_DETECTORS."""
    from opentelemetry.sdk.resources import Resource

    attributes = dict(Resource.create({"service.version": kubeloop_version()}).attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        attributes["service.name"] = "kubeloop"
    return {key: value if isinstance(value, str | int | float) else str(value) for key, value in attributes.items()}
