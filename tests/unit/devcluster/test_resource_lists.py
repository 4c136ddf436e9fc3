"""Quantities of resource lists are kept to the thousandth, rounded up, however large they are."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.decoding import _whole_milli


@pytest.mark.parametrize(
    ("given", "kept"),
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
def test_a_quantity_is_rounded_up_to_thousandths(given: str, kept: str) -> None:
    assert _whole_milli(given) == kept
