"""Validation of PersistentVolumeClaims."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS
from support.validation_causes import update_causes

JSON = dict[str, Any]


def claim(size: str = "1Gi", phase: str = "Pending", **spec: Any) -> JSON:
    resources = {"requests": {"storage": size}}
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}, "status": {"phase": phase}}


def test_only_a_bound_claim_may_request_more_storage():
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("2Gi", "Bound")) == []
    [cause] = update_causes(PERSISTENT_VOLUME_CLAIMS, claim(), claim("2Gi"))
    assert cause.startswith("spec: Forbidden: spec is immutable after creation except resources.requests and")
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("0.5Gi", "Bound")) == []
    have = {**claim(phase="Bound"), "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, have, claim("512Mi", "Bound")) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]
