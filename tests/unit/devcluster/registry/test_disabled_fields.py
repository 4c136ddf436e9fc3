"""Dropped fields of features that are off by default."""

from __future__ import annotations

from typing import Any

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
