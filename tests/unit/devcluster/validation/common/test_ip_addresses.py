"""Validation of CIDRs."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_cidr


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.0/255.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("FE80::/64", ""),
    ],
)
def test_new_cidrs_are_validated_strictly(text: str, detail: str):
    errors = ErrorList()
    validate_cidr(errors, "spec.cidr", text)
    assert [error["message"] for error in errors] == ([f'Invalid value: "{text}": {detail}'] if detail else [])
    validate_cidr(errors := ErrorList(), "spec.cidr", text, {text})
    assert not errors
