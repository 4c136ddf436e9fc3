"""Dropped fields of features that are off by default."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS, DisabledFields
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, WORKLOADS, Resource
from support.apiserver.api_requests import InProcessApi
from support.objects.kinds import strategy_named
from support.objects.validation_causes import pod

JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


async def test_fields_of_disabled_features_are_dropped():
    api = InProcessApi()
    sources = [{"clusterTrustBundle": {"path": "a", "name": "b"}}, {"podCertificate": {"signerName": "a/b"}}]
    body = named_pod(
        schedulingGroup={"podGroupName": "g"},
        containers=[{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}],
        volumes=[{"name": "v", "projected": {"sources": sources}}],
    )
    status, response = api("POST", "/api/v1/namespaces/default/pods", body)
    assert status == 201, response
    assert response["spec"]["volumes"][0]["projected"]["sources"] == [{}, {}]
    assert "schedulingGroup" not in response["spec"]
    assert "lifecycle" not in response["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("pods", ()),
        ("deployments.apps", ("spec", "template")),
        ("cronjobs.batch", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_stop_signal_is_dropped_from_pod_templates(kind: str, path: tuple[str, ...]):
    containers = [{"lifecycle": {"stopSignal": "SIGTERM", "preStop": {}}}, {"lifecycle": {"stopSignal": "SIGTERM"}}]
    obj: JSON = {"spec": {"containers": containers}}
    for name in reversed(path):
        obj = {name: obj}
    DEFAULT_FIELDS.drop(strategy_named(kind), obj)
    assert containers == [{"lifecycle": {"preStop": {}}}, {}]


def test_gated_fields_of_workload_templates_are_compared_by_index():
    gated: JSON = {"priority": 1, "resourceClaims": [{"name": "c"}], "schedulingConstraints": {"topology": []}}
    obj: JSON = {"spec": {"podGroupTemplates": [{"name": "a", **gated}, {"name": "b", **gated}]}}
    DEFAULT_FIELDS.drop(strategy_of(WORKLOADS), obj, {"spec": {"podGroupTemplates": [{"name": "x", **gated}]}})
    assert obj["spec"]["podGroupTemplates"] == [{"name": "a", **gated}, {"name": "b", "schedulingConstraints": None}]


def test_gated_fields_of_pod_groups_are_retained_one_by_one():
    obj: JSON = {"spec": {"priority": 1, "disruptionMode": "Pod", "schedulingPolicy": {"basic": {}}}}
    DEFAULT_FIELDS.drop(strategy_of(POD_GROUPS), obj, {"spec": {"disruptionMode": "Pod"}})
    assert obj == {"spec": {"disruptionMode": "Pod", "schedulingPolicy": {"basic": {}}}}


def test_other_kinds_are_unchanged():
    obj = {"spec": {"schedulingGroup": {}}}
    DEFAULT_FIELDS.drop(strategy_of(Resource("example.com", "v1", "Widget", "widgets", True, dict)), obj)
    assert obj == {"spec": {"schedulingGroup": {}}}


def test_disabled_fields_of_a_pod_status_are_dropped():
    status: JSON = {
        "phase": "Running",
        "nodeAllocatableResourceClaimStatuses": [],
        "containerStatuses": [{"volumeMounts": [{"name": "v", "volumeStatus": {}}]}],
    }
    pod: JSON = {"status": status}
    DEFAULT_FIELDS.drop_status(strategy_of(PODS), pod, {})
    assert pod["status"] == {"phase": "Running", "containerStatuses": [{"volumeMounts": [{"name": "v"}]}]}


@pytest.mark.parametrize("enabled", [False, True])
def test_observed_generation_of_a_definition_status_needs_its_gate(enabled: bool):
    status: JSON = {"observedGeneration": 2, "conditions": [{"type": "Established", "observedGeneration": 2}]}
    fields = DisabledFields(FeatureGates({"CRDObservedGenerationTracking": enabled}))
    definition: JSON = {"status": status}
    fields.drop_status(strategy_of(CUSTOM_RESOURCE_DEFINITIONS), definition, {})
    status = definition["status"]
    assert ("observedGeneration" in status, "observedGeneration" in status["conditions"][0]) == (enabled, enabled)
