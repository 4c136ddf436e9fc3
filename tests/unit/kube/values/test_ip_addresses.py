"""Notations of IP addresses."""

from __future__ import annotations

import pytest

from kubeloop.kube.values.ip_addresses import allocated_ip, sloppy_ip


@pytest.mark.parametrize("text", ["10.0.0.7", "010.0.0.07", "::ffff:10.0.0.7"])
def test_allocated_address_has_one_form(text: str):
    assert str(allocated_ip(text)) == "10.0.0.7"


@pytest.mark.parametrize("text", ["", "10.0.0", "fe80::1%eth0", "10.0.0.256", "web"])
def test_text_without_address_is_none(text: str):
    assert sloppy_ip(text) is None
