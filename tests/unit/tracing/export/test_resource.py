"""Resource of exported spans."""

from __future__ import annotations

from kubeloop.tracing.export.resource import kubeloop_version, resource_attributes


def test_resource_has_default_service_name_and_version(monkeypatch):
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    attributes = resource_attributes()
    assert (attributes["service.name"], attributes["service.version"]) == ("kubeloop", kubeloop_version())


def test_resource_has_attributes_of_environment(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
    attributes = resource_attributes()
    assert (attributes["service.name"], attributes["k8s.cluster.name"]) == ("mine", "blue")
