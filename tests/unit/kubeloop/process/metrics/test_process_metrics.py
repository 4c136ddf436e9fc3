"""Registry of a process."""

from prometheus_client import generate_latest

from kubeloop.process.metrics.process_metrics import new_registry


def text(registry):
    return generate_latest(registry).decode()


def test_new_registry_has_process_and_build_metrics():
    page = text(new_registry())
    assert "process_resident_memory_bytes" in page
    assert "kubeloop_build_info{" in page
