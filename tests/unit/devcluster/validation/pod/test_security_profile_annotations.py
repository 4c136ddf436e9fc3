"""Profiles in annotations of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_POD_ANNOTATION,
    app_armor_profile,
    app_armor_warnings,
    set_app_armor_from_annotations,
    validate_profile_annotations,
    validate_profiles_match_fields,
)
from support.apiserver.api_requests import InProcessApi
from support.objects.validation_causes import pod, validator_causes

JSON = dict[str, Any]


def annotated(body: JSON, **annotations: str) -> JSON:
    return {**body, "metadata": {"name": "p", "annotations": annotations}}


async def test_app_armor_annotation_sets_the_field():
    api = InProcessApi()
    body = annotated(pod(), **{"container.apparmor.security.beta.kubernetes.io/c": "localhost/mine"})
    _, response = api("POST", "/api/v1/namespaces/default/pods", body)
    profile = {"type": "Localhost", "localhostProfile": "mine"}
    assert response["spec"]["containers"][0]["securityContext"] == {"appArmorProfile": profile}


CONTAINERS: dict[str, Any] = {"containers": [{"name": "c"}]}


@pytest.mark.parametrize(
    ("annotations", "causes"),
    [
        pytest.param({SECCOMP_POD_ANNOTATION: "localhost/a", f"{APP_ARMOR_PREFIX}c": "unconfined"}, [], id="valid"),
        pytest.param(
            {SECCOMP_POD_ANNOTATION: "strict"},
            [f'm.{SECCOMP_POD_ANNOTATION}: Invalid value: "strict": must be a valid seccomp profile'],
            id="unknown seccomp profile",
        ),
        pytest.param(
            {f"{APP_ARMOR_PREFIX}d": "strict"},
            [
                f'm[{APP_ARMOR_PREFIX}d]: Invalid value: "d": container not found',
                f'm[{APP_ARMOR_PREFIX}d]: Invalid value: "strict": invalid AppArmor profile name: "strict"',
            ],
            id="AppArmor profile of another container",
        ),
    ],
)
def test_profile_annotation_causes(annotations: dict[str, str], causes: list[str]) -> None:
    assert validator_causes(validate_profile_annotations, "m", annotations, CONTAINERS) == causes


def test_profiles_of_annotation_and_field_must_match() -> None:
    spec = {**CONTAINERS, "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}
    for annotation, causes in (
        ("docker/default", []),
        ("unconfined", ["spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field "
                        "must match"]),
    ):  # fmt: skip
        annotations = {SECCOMP_POD_ANNOTATION: annotation}
        assert validator_causes(validate_profiles_match_fields, "spec", annotations, spec) == causes


@pytest.mark.parametrize(
    ("annotation", "profile"),
    [
        ("unconfined", {"type": "Unconfined"}),
        ("runtime/default", {"type": "RuntimeDefault"}),
        ("localhost/a", {"type": "Localhost", "localhostProfile": "a"}),
        ("localhost/", None),
        ("a", None),
    ],
)
def test_app_armor_profile_of_an_annotation(annotation: str, profile: dict[str, str] | None) -> None:
    assert app_armor_profile(annotation) == profile


def test_app_armor_annotation_of_a_new_pod_sets_the_field() -> None:
    key = f"{APP_ARMOR_PREFIX}c"
    new = {"metadata": {"annotations": {key: "unconfined"}}, "spec": {"containers": [{"name": "c"}]}}
    assert app_armor_warnings(new) == [
        f'metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    ]
    set_app_armor_from_annotations(new)
    assert new["spec"]["containers"] == [{"name": "c", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]
    assert app_armor_warnings(new) == []
