"""Empty lists and maps of a request."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.empty_values import restore_empty_values


@pytest.mark.parametrize(
    ("obj", "sent", "restored"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": [], "c": {}}, {"a": 1, "b": [], "c": {}}, id="lists and maps"),
        pytest.param({"a": {"x": 1}}, {"a": {"x": 1, "y": {}}}, {"a": {"x": 1, "y": {}}}, id="nested map"),
        pytest.param({"a": [{"x": 1}]}, {"a": [{"x": 1, "y": []}]}, {"a": [{"x": 1, "y": []}]}, id="items of a list"),
        pytest.param({"a": [1]}, {"a": [{"y": []}, 2]}, {"a": [1]}, id="lists of other lengths"),
        pytest.param({}, {"a": None, "b": "", "c": 0}, {}, id="other empty values"),
        pytest.param({"a": {"default": 1}}, {"a": {}}, {"a": {"default": 1}}, id="value that was defaulted"),
    ],
)
def test_empty_values_are_restored(obj: Any, sent: Any, restored: Any):
    assert restore_empty_values(obj, sent) == restored


def test_object_without_empty_values_is_not_copied():
    obj = {"a": [{"b": 1}]}
    assert restore_empty_values(obj, {"a": [{"b": 1}]}) is obj
