"""Registry of a process."""

from prometheus_client import generate_latest

from kubeloop.process.metrics.process_metrics import new_registry


def text(registry):
    return generate_latest(registry).decode()


def test_new_registry_has_process_and_build_metrics():
    page = text(new_registry())
    assert "process_resident_memory_bytes" in page
    assert "kubeloop_build_info{" in page


def test_target_info_has_the_resource_attributes_of_the_environment(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sites")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=sites-0,k8s.cluster.name=blue")
    [line] = [line for line in text(new_registry()).splitlines() if line.startswith("target_info{")]
    for label in ('service_name="sites"', 'k8s_pod_name="sites-0"', 'k8s_cluster_name="blue"', "service_version="):
        assert label in line
