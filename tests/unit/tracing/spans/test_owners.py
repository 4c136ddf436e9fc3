"""Owners of pods as text."""

from __future__ import annotations

import pytest

from kubeloop.tracing.spans.owners import deployment_name, plural_kind


@pytest.mark.parametrize(
    ("kind", "plural"), [("statefulset", "statefulsets"), ("ingress", "ingresses"), ("policy", "policies")]
)
def test_plural_is_that_of_the_resource(kind, plural):
    assert plural_kind(kind) == plural


@pytest.mark.parametrize(
    ("kind", "name", "template_hash", "deployment"),
    [
        ("ReplicaSet", "web-5f", "5f", "web"),
        ("ReplicaSet", "web-5f", "", ""),
        ("ReplicaSet", "web", "5f", ""),
        ("StatefulSet", "web-5f", "5f", ""),
    ],
)
def test_deployment_name_is_derived_from_the_template_hash(kind, name, template_hash, deployment):
    assert deployment_name(kind, name, template_hash) == deployment
