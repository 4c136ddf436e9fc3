"""Profiles in annotations of pods."""

from __future__ import annotations

from typing import Any

from support.api_requests import InProcessApi
from support.validation_causes import pod

JSON = dict[str, Any]


def annotated(body: JSON, **annotations: str) -> JSON:
    return {**body, "metadata": {"name": "p", "annotations": annotations}}


async def test_app_armor_annotation_sets_the_field():
    api = InProcessApi()
    body = annotated(pod(), **{"container.apparmor.security.beta.kubernetes.io/c": "localhost/mine"})
    _, response = api("POST", "/api/v1/namespaces/default/pods", body)
    profile = {"type": "Localhost", "localhostProfile": "mine"}
    assert response["spec"]["containers"][0]["securityContext"] == {"appArmorProfile": profile}
