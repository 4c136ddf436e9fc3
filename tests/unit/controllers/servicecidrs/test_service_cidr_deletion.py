"""Relations of address ranges, and which can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.servicecidrs.service_cidr_deletion import can_delete, containing_address, overlapping

OURS = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}


def cidr(name: str, *cidrs: str) -> Any:
    return {"metadata": {"name": name}, "spec": {"cidrs": [*cidrs]}}


def address(name: str, labels: Any = OURS) -> Any:
    return {"metadata": {"name": name, "labels": labels}}


SMALL, LARGE, OTHER = cidr("small", "10.0.0.0/24"), cidr("large", "10.0.0.0/16"), cidr("other", "10.9.0.0/24")
DUAL = cidr("dual", "10.0.0.0/24", "fd00::/112")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", {"small", "large", "dual"}),
        ("10.0.0.0", set()),
        ("10.0.0.255", {"large"}),
        ("10.0.255.255", set()),
        ("10.1.0.1", set()),
        ("fd00::1", {"dual"}),
        ("fd00::", set()),
        ("fd00::ffff", {"dual"}),
    ],
)
def test_address_belongs_to_ranges_that_can_allocate_it(text: str, expected: set[str]):
    assert containing_address(text, [SMALL, LARGE, OTHER, DUAL]) == expected


def test_overlapping_ranges_share_addresses_of_one_family():
    everything = [SMALL, LARGE, OTHER, DUAL, cidr("v6", "fd00::/64")]
    assert overlapping(SMALL, everything) == {"small", "large", "dual"}
    assert overlapping(cidr("v6", "fd00::/64"), everything) == {"v6", "dual"}


@pytest.mark.parametrize(
    ("deleted", "others", "addresses", "expected"),
    [
        pytest.param(SMALL, [], [], True, id="unused"),
        pytest.param(SMALL, [], [address("10.0.0.1")], False, id="used"),
        pytest.param(SMALL, [], [address("10.0.0.1", {})], True, id="used by another allocator"),
        pytest.param(SMALL, [LARGE], [address("10.0.0.1")], True, id="within a larger range"),
        pytest.param(LARGE, [SMALL], [address("10.0.0.1")], True, id="all addresses are in a smaller range"),
        pytest.param(LARGE, [SMALL], [address("10.0.1.1")], False, id="an address is outside of the smaller range"),
        pytest.param(SMALL, [cidr("twin", "10.0.0.0/24")], [address("10.0.0.1")], True, id="the same range again"),
        pytest.param(DUAL, [SMALL], [address("10.0.0.1"), address("fd00::1")], False, id="one family is used"),
        pytest.param(DUAL, [SMALL], [address("10.0.0.1")], True, id="the other family is unused"),
    ],
)
def test_range_can_be_deleted_without_orphaned_addresses(deleted: Any, others: Any, addresses: Any, expected: bool):
    assert can_delete(deleted, [deleted, *others], addresses) is expected
