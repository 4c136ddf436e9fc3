"""When a claim needs a resizer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.controllers.volumeexpand.expansion import is_event_for_expander, is_growing, needs_resizer
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim


def claim(requested: str | None = "1Gi", capacity: str | None = "1Gi", phase: str = "Bound") -> PersistentVolumeClaim:
    status: dict[str, Any] = {"phase": phase, "capacity": {"storage": capacity} if capacity else {}}
    resources: dict[str, Any] = {"requests": {"storage": requested} if requested else {}}
    body = {**persistent_volume_claim(resources=resources), "status": status}
    return msgspec.convert(body, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("arguments", "grows"),
    [
        pytest.param(("2Gi", "1Gi"), True, id="larger"),
        pytest.param(("1Gi", "1Gi"), False, id="equal"),
        pytest.param(("1024Mi", "1Gi"), False, id="equal in another unit"),
        pytest.param(("1Gi", "2Gi"), False, id="smaller"),
        pytest.param(("1Gi", None), True, id="no capacity yet"),
        pytest.param(("2Gi", "1Gi", "Pending"), False, id="not bound"),
        pytest.param((None, None), False, id="neither request nor capacity"),
    ],
)
def test_bound_claim_grows_if_it_requests_more(arguments, grows):
    assert is_growing(claim(*arguments)) is grows
    assert needs_resizer(claim(*arguments), msgspec.convert(persistent_volume(), PersistentVolume)) is grows


def test_volume_before_its_file_system_is_expanded_needs_a_resizer():
    metadata = {"name": "disk", "annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"}}
    volume = msgspec.convert(persistent_volume(metadata), PersistentVolume)
    assert needs_resizer(claim(), volume)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        pytest.param(None, claim(), True, id="new claim"),
        pytest.param(None, claim(phase="Pending"), False, id="new claim, not bound"),
        pytest.param(claim(), claim("2Gi"), True, id="larger request"),
        pytest.param(claim("2Gi"), claim("2Gi", "2Gi"), True, id="larger capacity"),
        pytest.param(claim("2Gi"), claim("1Gi"), False, id="smaller request"),
        pytest.param(claim("2Gi"), claim("2Gi"), False, id="another change"),
        pytest.param(claim("2Gi", None), claim("2Gi", "1"), True, id="first capacity"),
        pytest.param(claim("2Gi", None), claim("2Gi", "0"), False, id="no capacity"),
    ],
)
def test_event_counts_if_request_or_capacity_grew(old, new, counts):
    assert is_event_for_expander(old, new) is counts
