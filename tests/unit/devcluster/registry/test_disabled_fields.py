"""Dropped fields of features that are off by default."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS
from support.api_requests import InProcessApi
from support.validation_causes import pod

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
    DEFAULT_FIELDS.drop(kind, obj)
    assert containers == [{"lifecycle": {"preStop": {}}}, {}]


def test_other_kinds_are_unchanged():
    obj = {"spec": {"schedulingGroup": {}}}
    DEFAULT_FIELDS.drop("widgets.example.com", obj)
    assert obj == {"spec": {"schedulingGroup": {}}}


def test_disabled_fields_of_a_pod_status_are_dropped():
    status: JSON = {
        "phase": "Running",
        "nodeAllocatableResourceClaimStatuses": [],
        "containerStatuses": [{"volumeMounts": [{"name": "v", "volumeStatus": {}}]}],
    }
    DEFAULT_FIELDS.drop_status("pods", status, {})
    assert status == {"phase": "Running", "containerStatuses": [{"volumeMounts": [{"name": "v"}]}]}
