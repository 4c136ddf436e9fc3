"""Conversion of HorizontalPodAutoscalers between autoscaling/v1 and v2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.autoscaling.version_conversion import autoscaler_from_v1, autoscaler_to_v1
from kubeloop.kube.json_object import JSON

TARGET = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
REQUESTS = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"},
        "metric": {"name": "requests", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "Value", "value": "10k"},
    },
}
LENGTH = {
    "type": "External",
    "external": {"metric": {"name": "length"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}
BEHAVIOR = {"scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}}
CONDITION = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Ready"}


def autoscaler(version: str, spec: JSON, status: JSON | None = None, **metadata: Any) -> JSON:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", **metadata},
        "spec": {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 3, **spec},
        "status": {"currentReplicas": 2, "desiredReplicas": 2, **(status or {})},
    }


def test_v1_has_cpu_target_in_percent():
    v1 = autoscaler_to_v1(autoscaler("v2", {"metrics": [CPU]}))
    assert v1["apiVersion"] == "autoscaling/v1"
    assert v1["spec"]["targetCPUUtilizationPercentage"] == 50
    assert "annotations" not in v1["metadata"]
    assert autoscaler_from_v1(v1)["spec"]["metrics"] == [CPU]


def test_v1_default_cpu_target_is_80_percent():
    (metric,) = autoscaler_from_v1(autoscaler("v1", {}))["spec"]["metrics"]
    assert metric["resource"]["target"]["averageUtilization"] == 80


def test_v1_annotations_preserve_other_fields():
    current = [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "5m"}}}
    ]
    v2 = autoscaler(
        "v2",
        {"metrics": [CPU, MEMORY, REQUESTS, LENGTH], "behavior": BEHAVIOR},
        {"currentMetrics": current, "conditions": [CONDITION]},
        annotations={"own": "value"},
    )
    v1 = autoscaler_to_v1(v2)
    assert v1["status"]["currentCPUUtilizationPercentage"] == 40
    annotations = dict(v1["metadata"]["annotations"])
    assert annotations.pop("own") == "value"
    decoded = {name.partition("/")[2]: json.loads(text) for name, text in annotations.items()}
    assert set(decoded) == {"metrics", "current-metrics", "conditions", "behavior"}
    assert decoded["metrics"][0]["resource"] == {"name": "memory", "targetAverageValue": "1Gi"}
    assert decoded["metrics"][1]["object"]["targetValue"] == "10k"
    assert decoded["behavior"]["ScaleUp"]["Policies"][0]["PeriodSeconds"] == 15
    converted_back = autoscaler_from_v1(v1)
    for part in ("metadata", "spec", "status"):
        assert converted_back[part] == v2[part]


def test_invalid_annotation_is_rejected():
    broken = autoscaler("v1", {}, annotations={"autoscaling.alpha.kubernetes.io/metrics": "{"})
    with pytest.raises(StatusError) as raised:
        autoscaler_from_v1(broken)
    assert raised.value.code == 400


def test_annotations_have_go_struct_encoding():
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0, **BEHAVIOR["scaleUp"]}}
    condition = {"message": "a<b", **CONDITION}
    v1 = autoscaler_to_v1(autoscaler("v2", {"metrics": [REQUESTS], "behavior": behavior}, {"conditions": [condition]}))
    annotations = v1["metadata"]["annotations"]
    prefix = "autoscaling.alpha.kubernetes.io/"
    assert annotations[f"{prefix}metrics"] == (
        '[{"type":"Object","object":{"target":{"kind":"Service","name":"web","apiVersion":"v1"},'
        '"metricName":"requests","targetValue":"10k","selector":{"matchLabels":{"a":"b"}}}}]'
    )
    assert annotations[f"{prefix}behavior"] == (
        '{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,'
        '"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}'
    )
    assert annotations[f"{prefix}conditions"] == (
        '[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"Ready",'
        '"message":"a\\u003cb"}]'
    )
