"""Getters of the values that field selectors compare."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.selectable_fields import METADATA, field_getter, fields


@pytest.mark.parametrize(
    ("obj", "value"),
    [
        pytest.param({"spec": {"nodeName": "n"}}, "n", id="text"),
        pytest.param({"spec": {"nodeName": True}}, "true", id="boolean"),
        pytest.param({"spec": {}}, "", id="unset"),
        pytest.param({"spec": None}, "", id="no parent"),
    ],
)
def test_field_is_compared_as_text(obj: dict[str, Any], value: str):
    assert field_getter("spec.nodeName")(obj) == value


def test_unset_booleans_and_numbers_have_zero_values():
    for obj in ({}, {"spec": {}}):
        assert field_getter("spec.hostNetwork", "false")(obj) == "false"
    assert field_getter("status.replicas", "0")({"status": {"replicas": 0}}) == "0"


def test_fields_are_selected_by_their_path():
    (name, getter), *others = fields("status.phase").items()
    assert (name, getter({"status": {"phase": "Active"}}), others) == ("status.phase", "Active", [])


def test_every_kind_has_a_name():
    assert METADATA["metadata.name"]({"metadata": {"name": "web"}}) == "web"
