"""Validation of ServiceCIDRs."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.networking.service_cidr import (
    validate_service_cidr,
    validate_service_cidr_update,
)
from support.objects.validation_causes import validator_causes

V4, V6 = "10.0.0.0/24", "2001:db8::/64"


@pytest.mark.parametrize(
    ("cidrs", "causes"),
    [
        pytest.param([V4, V6], [], id="one range of each family"),
        pytest.param([], ["spec.cidrs: Required value: at least one CIDR required"], id="no range"),
        pytest.param(
            [V4, "10.1.0.0/24"],
            [
                'spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: '
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            ],
            id="two ranges of one family",
        ),
        pytest.param(
            [V4, V6, V4],
            [f'spec.cidrs: Invalid value: {{"CIDRs":["{V4}","{V6}","{V4}"]}}: may only hold up to 2 values'],
            id="three ranges",
        ),
    ],
)
def test_service_cidr_causes(cidrs: list[str], causes: list[str]) -> None:
    assert validator_causes(validate_service_cidr, {"spec": {"cidrs": cidrs}}) == causes


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        pytest.param([V4], [V4, V6], [], id="add the second family"),
        pytest.param(
            [V4], ["10.1.0.0/24"], ['spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable'], id="change"
        ),
        pytest.param(
            [V4, V6], [V4], ['spec.cidrs: Invalid value: ["10.0.0.0/24"]: field is immutable'], id="remove a family"
        ),
    ],
)
def test_service_cidr_update_causes(old: list[str], new: list[str], causes: list[str]) -> None:
    before, after = ({"spec": {"cidrs": cidrs}} for cidrs in (old, new))
    assert validator_causes(validate_service_cidr_update, after, before) == causes
