"""Validation of HorizontalPodAutoscalers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import HORIZONTAL_POD_AUTOSCALERS_V1
from kubeloop.devcluster.kinds.autoscaling.horizontal_pod_autoscaler import (
    validate_horizontal_pod_autoscaler,
    validate_horizontal_pod_autoscaler_status_update,
    validate_horizontal_pod_autoscaler_update,
)
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
RESOURCE = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}}}
POLICY = {"type": "Pods", "value": 1, "periodSeconds": 1800}


def autoscaler(**spec: Any) -> JSON:
    return {"spec": {"maxReplicas": 3, "scaleTargetRef": TARGET, **spec}}


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param(
            autoscaler(minReplicas=1, metrics=[RESOURCE], behavior={"scaleUp": {"policies": [POLICY]}}), [], id="valid"
        ),
        pytest.param(
            {"spec": {"scaleTargetRef": TARGET}},
            ["spec.maxReplicas: Required value: must be set and greater than 0"],
            id="no maximum",
        ),
        pytest.param(
            autoscaler(minReplicas=4),
            ["spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"],
            id="maximum below the minimum",
        ),
        pytest.param(
            autoscaler(minReplicas=0, metrics=[RESOURCE]),
            [
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to "
                "zero replicas",
            ],
            id="minimum of zero",
        ),
        pytest.param(
            autoscaler(scaleTargetRef={"apiVersion": "v1", "name": "a/b"}),
            [
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
                'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group',
            ],
            id="target in the core group without kind",
        ),
        pytest.param(
            autoscaler(metrics=[{**RESOURCE, "type": "Pods"}]),
            [
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            ],
            id="metric source of another type",
        ),
        pytest.param(
            autoscaler(metrics=[{"type": "Resource", "resource": {"target": {"type": "Value", "value": "0"}}}]),
            [
                "spec.metrics[0].resource.name: Required value: must specify a resource name",
                'spec.metrics[0].resource.target.value: Invalid value: "0": must be positive',
                "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw "
                "value or a target utilization",
            ],
            id="resource metric without name and average",
        ),
        pytest.param(
            autoscaler(behavior={"scaleDown": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Best"}}),
            [
                "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: "
                "must be less than or equal to 3600",
                'spec.behavior.scaleDown.selectPolicy: Unsupported value: "Best": '
                'supported values: "Disabled", "Max", "Min"',
                "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy",
            ],
            id="scaling rules",
        ),
        pytest.param(
            autoscaler(behavior={"scaleUp": {"policies": [{**POLICY, "value": 0, "periodSeconds": 1801}]}}),
            [
                "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: "
                "must be less than or equal to 1800",
            ],
            id="scaling policy",
        ),
    ],
)
def test_horizontal_pod_autoscaler_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_horizontal_pod_autoscaler, obj) == causes


def test_autoscaler_update_may_keep_a_core_group_target() -> None:
    core = {"apiVersion": "v1", "kind": "ReplicationController", "name": "r"}
    new, old = autoscaler(scaleTargetRef=core, minReplicas=1), autoscaler(scaleTargetRef=core)
    assert validator_causes(validate_horizontal_pod_autoscaler_update, new, old) == []
    assert validator_causes(validate_horizontal_pod_autoscaler_update, new, autoscaler()) == [
        'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'
    ]


def test_autoscaler_status_counts_are_not_negative() -> None:
    status = {"currentReplicas": 0, "desiredReplicas": -1}
    assert validator_causes(validate_horizontal_pod_autoscaler_status_update, {"status": status}, {}) == [
        "status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_stored_minimum_of_zero_may_stay_without_the_gate():
    metrics = [{"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}}]
    zero, one = (autoscaler(minReplicas=minimum, metrics=metrics) for minimum in (0, 1))
    update = autoscaler(minReplicas=0, metrics=metrics, behavior={"scaleUp": {"policies": [POLICY]}})
    assert validator_causes(validate_horizontal_pod_autoscaler_update, update, zero) == []
    assert validator_causes(validate_horizontal_pod_autoscaler_update, update, one) == [
        "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    ]


def test_older_version_has_no_default_metrics():
    obj = {"apiVersion": "autoscaling/v1", "spec": {}}
    apply_defaults(HORIZONTAL_POD_AUTOSCALERS_V1, obj)
    assert obj == {"apiVersion": "autoscaling/v1", "spec": {"minReplicas": 1}}
