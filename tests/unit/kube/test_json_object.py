"""The order of maps."""

from __future__ import annotations

import pytest

from kubeloop.kube.json_object import JSON, sorted_map


@pytest.mark.parametrize("value", [{}, {"a": 2, "b": 1}, {"b": 1, "a": 2}, {"é": 1, "z": 2, "Z": 3, "": 4}])
def test_sorted_map_has_the_order_of_encoded_keys(value: JSON):
    result = sorted_map(value)
    assert result == value
    assert [*result] == sorted(value, key=str.encode)
