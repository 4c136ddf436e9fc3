"""The status patch of a ResourceQuota."""

from __future__ import annotations

from kubeloop.controllers.resourcequota.usage_calculation import status_patch
from kubeloop.kube.objects.api_types import ResourceQuota, convert
from kubeloop.kube.values.quantities import parse_quantity


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


def test_status_patch_keeps_greater_usage_unless_it_may_decrease():
    amounts = {"pods": "9", "secrets": "9"}
    status = {"hard": amounts, "used": {"pods": "5", "secrets": "1"}}
    quota = convert(ResourceQuota, {"spec": {"hard": amounts}, "status": status})
    usage = {"pods": parse_quantity(4), "secrets": parse_quantity(2)}
    patch = status_patch(quota, usage, may_decrease=False)
    assert patch is not None
    assert patch["used"] == {"pods": "5", "secrets": "2"}
