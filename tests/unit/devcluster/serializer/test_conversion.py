"""An autoscaler is one object under two versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.serializer.conversion import autoscaler_from_v1, autoscaler_to_v1

JSON = dict[str, Any]
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


def test_the_first_version_says_cpu_as_a_number_of_percent():
    shown = autoscaler_to_v1(autoscaler("v2", {"metrics": [CPU]}))
    assert shown["apiVersion"] == "autoscaling/v1"
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 50
    assert "annotations" not in shown["metadata"]
    assert autoscaler_from_v1(shown)["spec"]["metrics"] == [CPU]


def test_without_a_metric_the_first_version_means_80_percent_of_cpu():
    (metric,) = autoscaler_from_v1(autoscaler("v1", {}))["spec"]["metrics"]
    assert metric["resource"]["target"]["averageUtilization"] == 80


def test_what_the_first_version_cannot_say_travels_in_annotations_and_comes_back():
    current = [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "5m"}}}
    ]
    whole = autoscaler(
        "v2",
        {"metrics": [CPU, MEMORY, REQUESTS, LENGTH], "behavior": BEHAVIOR},
        {"currentMetrics": current, "conditions": [CONDITION]},
        annotations={"mine": "kept"},
    )
    shown = autoscaler_to_v1(whole)
    assert shown["status"]["currentCPUUtilizationPercentage"] == 40
    annotations = dict(shown["metadata"]["annotations"])
    assert annotations.pop("mine") == "kept"
    read = {name.partition("/")[2]: json.loads(text) for name, text in annotations.items()}
    assert set(read) == {"metrics", "current-metrics", "conditions", "behavior"}
    assert read["metrics"][0]["resource"] == {"name": "memory", "targetAverageValue": "1Gi"}
    assert read["metrics"][1]["object"]["targetValue"] == "10k"
    assert read["behavior"]["ScaleUp"]["Policies"][0]["PeriodSeconds"] == 15
    back = autoscaler_from_v1(shown)
    for part in ("metadata", "spec", "status"):
        assert back[part] == whole[part]


def test_an_annotation_that_is_not_json_is_refused():
    broken = autoscaler("v1", {}, annotations={"autoscaling.alpha.kubernetes.io/metrics": "{"})
    with pytest.raises(StatusError) as caught:
        autoscaler_from_v1(broken)
    assert caught.value.code == 400


def test_annotations_are_written_as_go_writes_its_structs():
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0, **BEHAVIOR["scaleUp"]}}
    condition = {"message": "a<b", **CONDITION}
    shown = autoscaler_to_v1(
        autoscaler("v2", {"metrics": [REQUESTS], "behavior": behavior}, {"conditions": [condition]})
    )
    annotations = shown["metadata"]["annotations"]
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
