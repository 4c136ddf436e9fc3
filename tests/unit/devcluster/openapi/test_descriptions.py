"""Descriptions of API fields."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.openapi.descriptions import field_descriptions


@pytest.mark.parametrize(
    ("type_name", "field", "start"),
    [
        ("core/v1.PodSpec", "nodeName", "NodeName indicates in which node this pod is scheduled."),
        ("core/v1.Container", "imagePullPolicy", "Image pull policy. One of Always, Never, IfNotPresent."),
        ("apps/v1.DeploymentSpec", "minReadySeconds", "Minimum number of seconds for which a newly created pod"),
    ],
)
def test_description_of_a_field(type_name: str, field: str, start: str):
    assert field_descriptions(type_name)[field].startswith(start)


@pytest.mark.parametrize("type_name", ["core/v1.NoSuchType", "resource.Quantity"])
def test_unknown_type_has_no_descriptions(type_name: str):
    assert field_descriptions(type_name) == {}
