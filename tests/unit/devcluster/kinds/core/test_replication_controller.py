"""Validation of ReplicationControllers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.replication_controller import STRATEGY, validate_replication_controller
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import REPLICATION_CONTROLLERS
from support.objects.validation_causes import create_causes, defaulted, pod, validator_causes


def test_replication_controller_name_length_is_in_bytes():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "a" * 254}, "spec": {"selector": {"a": "b"}, "template": template}}
    causes = create_causes(REPLICATION_CONTROLLERS, body)
    assert [cause.rpartition(": ")[2] for cause in causes] == ["must be no more than 253 bytes"]


def replication_controller(**spec: Any) -> JSON:
    template = {"metadata": {"labels": {"a": "b"}}, **pod()}
    return defaulted(REPLICATION_CONTROLLERS, {"spec": {"selector": {"a": "b"}, "template": template, **spec}})


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param(
            {"selector": {"a": "c"}},
            ['spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'],
            id="selector does not match the template",
        ),
        pytest.param(
            {"template": None, "selector": None, "replicas": -1},
            [
                "spec.selector: Required value",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.template: Required value",
            ],
            id="no template",
        ),
    ],
)
def test_replication_controller_causes(spec: JSON, causes: list[str]) -> None:
    obj = replication_controller(**spec)
    assert validator_causes(validate_replication_controller, obj) == causes
    assert validator_causes(STRATEGY.validate_update, obj, obj) == []
