"""Metric of the feature gates."""

from prometheus_client import generate_latest

from kubeloop.kube.feature_gates import GATES, FeatureGates
from kubeloop.process.metrics.feature_metrics import FeatureGateCollector
from kubeloop.process.metrics.metrics_registry import MetricsRegistry


def test_every_gate_has_stage_and_value():
    registry = MetricsRegistry()
    registry.register(FeatureGateCollector(FeatureGates({"MemoryQoS": True})))
    lines = generate_latest(registry).decode().splitlines()
    assert 'kubernetes_feature_enabled{name="MemoryQoS",stage="ALPHA"} 1.0' in lines
    assert 'kubernetes_feature_enabled{name="SidecarContainers",stage=""} 1.0' in lines
    assert 'kubernetes_feature_enabled{name="GangScheduling",stage="ALPHA"} 0.0' in lines
    assert sum(line.startswith("kubernetes_feature_enabled") for line in lines) == len(GATES)
