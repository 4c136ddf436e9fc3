"""Quantities of resource lists are rounded up to thousandths."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.decoding import _round_up_to_milli


@pytest.mark.parametrize(
    ("quantity", "rounded"),
    [
        ("7Ei", "7Ei"),
        ("100Ei", "100Ei"),
        ("9e15", "9e15"),
        ("100m", "100m"),
        ("1500u", "2m"),
        ("1n", "1m"),
        ("-1500u", "-2m"),
    ],
)
def test_resource_quantity_is_rounded_up_to_thousandths(quantity: str, rounded: str) -> None:
    assert _round_up_to_milli(quantity) == rounded
