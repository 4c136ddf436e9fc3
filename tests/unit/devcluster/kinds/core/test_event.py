"""Validation of Events."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.core.event import validate_event
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

MISMATCH = "does not match event.namespace"


@pytest.mark.parametrize(
    ("namespace", "involved", "timed", "causes"),
    [
        pytest.param("ns", "ns", False, [], id="same namespace"),
        pytest.param("ns", "other", True, [], id="other namespace, with eventTime"),
        pytest.param("ns", "other", False, ['"other"'], id="other namespace"),
        pytest.param("kube-system", "", True, [], id="cluster object in kube-system, with eventTime"),
        pytest.param("kube-system", "", False, ['""'], id="cluster object in kube-system"),
    ],
)
def test_namespace_of_an_event(namespace: str, involved: str, timed: bool, causes: list[str]) -> None:
    event: JSON = {"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}}
    if timed:
        event |= {"eventTime": "2026-01-01T00:00:00Z", "reportingComponent": "c"}
        event |= dict.fromkeys(("reportingInstance", "action", "reason"), "r")
    expected = [f"involvedObject.namespace: Invalid value: {value}: {MISMATCH}" for value in causes]
    assert validator_causes(validate_event, event) == expected
