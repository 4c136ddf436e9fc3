"""Comparison of resource versions."""

from __future__ import annotations

import pytest

from kubeloop.informers.metadata_accessor import is_older


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("1", "2", -1),
        ("9", "10", -1),
        ("10", "9", 1),
        ("7", "7", 0),
        ("99999999999999999999999999", "100000000000000000000000000", -1),
    ],
)
def test_resource_versions_compare_as_numbers(left, right, order):
    assert is_older(left, right) == (order < 0)
    assert is_older(right, left) == (order > 0)


@pytest.mark.parametrize("wrong", ["", "0", "01", "a", "-1", "1.5", " 1", "\u0661"])
def test_invalid_resource_version_is_not_comparable(wrong):
    assert not is_older(wrong, "5")
    assert not is_older("5", wrong)
