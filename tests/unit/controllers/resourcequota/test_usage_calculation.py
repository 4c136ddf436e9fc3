"""The status patch of a ResourceQuota."""

from __future__ import annotations

from kubeloop.controllers.resourcequota.usage_calculation import status_patch
from kubeloop.kube.objects.api_types import ResourceQuota, convert
from kubeloop.kube.quantities import parse_quantity


def test_status_patch_keeps_unknown_and_drops_unlimited_names():
    quota = convert(
        ResourceQuota,
        {
            "spec": {"hard": {"pods": "2", "secrets": "1"}},
            "status": {"hard": {"secrets": "1", "services": "1"}, "used": {"secrets": "1", "services": "1"}},
        },
    )
    assert status_patch(quota, {"pods": parse_quantity(1)}) == {
        "hard": {"pods": "2", "secrets": "1", "services": None},
        "used": {"pods": "1", "secrets": "1", "services": None},
    }
