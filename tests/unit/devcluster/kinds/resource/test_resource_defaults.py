"""Default values of ResourceClaims, ResourceClaimTemplates and ResourceSlices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.resource import resource_claim, resource_claim_template, resource_slice

JSON = dict[str, Any]
EXACTLY = {"allocationMode": "ExactCount", "count": 1}


@pytest.mark.parametrize(
    ("strategy", "spec", "defaulted"),
    [
        pytest.param(
            resource_claim_template.STRATEGY,
            {"spec": {"devices": {"requests": [{"exactly": {}}]}}},
            {"spec": {"devices": {"requests": [{"exactly": EXACTLY}]}}},
            id="claim template",
        ),
        pytest.param(
            resource_claim.STRATEGY,
            {"devices": {"requests": [{"firstAvailable": [{"allocationMode": "All"}, {}]}]}},
            {"devices": {"requests": [{"firstAvailable": [{"allocationMode": "All"}, EXACTLY]}]}},
            id="claim with alternatives",
        ),
        pytest.param(
            resource_slice.STRATEGY,
            {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {}}}, {}]},
            {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}, {}]},
            id="slice",
        ),
    ],
)
def test_defaults_of_a_kind(strategy: Any, spec: JSON, defaulted: JSON):
    obj = {"spec": spec}
    strategy.default(obj)
    assert obj == {"spec": defaulted}
