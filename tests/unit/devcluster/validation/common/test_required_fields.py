"""Required fields of kinds without validators of their own."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.required_fields import validate_required_fields
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("group", "version", "kind", "obj", "causes"),
    [
        pytest.param("authentication.k8s.io", "v1", "TokenReview", {"spec": {"token": "t"}}, [], id="valid"),
        pytest.param(
            "authentication.k8s.io",
            "v1",
            "TokenReview",
            {"spec": {"audiences": ["a"]}},
            ["spec.token: Required value"],
            id="field of a struct",
        ),
        pytest.param("networking.k8s.io", "v1", "IPAddress", {"spec": {}}, ["spec: Required value"], id="empty struct"),
        pytest.param(
            "resource.k8s.io",
            "v1",
            "ResourceSlice",
            {"spec": {"devices": [{"name": "a"}, {"name": "b", "consumesCounters": [{"counterSet": "c"}]}]}},
            ["spec.devices[1].consumesCounters[0].counters: Required value"],
            id="field of a list item",
        ),
    ],
)
def test_required_field_causes(group: str, version: str, kind: str, obj: JSON, causes: list[str]) -> None:
    struct = schema.type_for(group, version, kind)
    assert struct is not None
    assert validator_causes(validate_required_fields, struct, obj) == causes
