"""Warnings about feature gates."""

from kubeloop.cli.options.gate_warnings import log_gate_warnings
from kubeloop.kube.feature_gates import FeatureGates


def test_each_warning_of_the_gates_is_logged(caplog):
    log_gate_warnings(FeatureGates.parse(["MemoryQoS=true,CRIListStreaming=true"]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "feature gate MemoryQoS=true has no effect" in caplog.records[0].getMessage()
