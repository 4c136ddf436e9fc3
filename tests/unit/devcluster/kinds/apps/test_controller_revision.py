"""Validation of ControllerRevisions."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.apps.controller_revision import (
    validate_controller_revision,
    validate_controller_revision_update,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param({"revision": 0, "data": {}}, [], id="valid"),
        pytest.param(
            {"revision": -1},
            [
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data is mandatory",
            ],
            id="negative revision and no data",
        ),
        pytest.param(
            {"revision": 1, "data": ["a"]},
            ["data: Required value: data must be a valid JSON object"],
            id="data that is not an object",
        ),
    ],
)
def test_controller_revision_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_controller_revision, obj) == causes


def test_controller_revision_data_is_immutable() -> None:
    old = {"revision": 1, "data": {"a": 1}}
    assert validator_causes(validate_controller_revision_update, {**old, "revision": 2}, old) == []
    assert validator_causes(validate_controller_revision_update, {"revision": 1, "data": {"a": 2}}, old) == [
        'data: Invalid value: {"a":2}: field is immutable'
    ]
