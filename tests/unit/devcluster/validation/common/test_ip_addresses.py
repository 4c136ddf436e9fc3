"""Validation of addresses and CIDRs."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList, error_list_type
from kubeloop.devcluster.validation.common.ip_addresses import (
    validate_cidr,
    validate_ip,
    validate_strict_cidr,
    validate_strict_ip,
)
from kubeloop.kube.feature_gates import FeatureGates


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


@pytest.mark.parametrize(("text", "is_address"), [("010.0.0.1", True), ("::ffff:10.0.0.1", True), ("10.0.0", False)])
def test_notation_of_addresses_is_free_without_strict_validation(text: str, is_address: bool):
    lenient = error_list_type(FeatureGates({"StrictIPCIDRValidation": False}))
    for error_list, is_valid in ((ErrorList, False), (lenient, is_address)):
        validate_ip(errors := error_list(), "spec.ip", text)
        assert (not errors) is is_valid
        validate_strict_ip(errors := error_list(), "spec.ip", text)
        assert errors


@pytest.mark.parametrize("text", ["10.0.0.1/8", "010.0.0.0/8", "10.0.0.0/08", "::ffff:10.0.0.0/104"])
def test_notation_of_cidrs_is_free_without_strict_validation(text: str):
    lenient = error_list_type(FeatureGates({"StrictIPCIDRValidation": False}))
    validate_cidr(errors := lenient(), "spec.cidr", text)
    assert not errors
    validate_strict_cidr(errors, "spec.cidr", text)
    assert errors
