"""Types of values without a schema."""

from __future__ import annotations

from kubeloop.devcluster.api.value_types import UNTYPED


def test_untyped_values_have_untyped_members_and_items():
    assert UNTYPED.member("a") is UNTYPED.items is UNTYPED
