"""The address range of Services."""

from __future__ import annotations

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.service_range import parse_service_range


@pytest.mark.parametrize("text", ["10.0.0.0/8", "10.96.0.0/12", "10.0.0.0/29"])
def test_range_is_an_ipv4_network(text: str):
    assert str(parse_service_range(text, "--range")) == text


@pytest.mark.parametrize("text", ["", "10.0.0.1/24", "fd00::/112", "10.0.0.0/7", "10.0.0.0/30", "x"])
def test_other_texts_are_errors(text: str):
    with pytest.raises(UserError, match=r"^--range: ") as raised:
        parse_service_range(text, "--range")
    assert "10.0.0.0/16" in raised.value.hint
