"""Protection of objects in use: when the finalizer is added, and when it is removed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.protection_controller import needs_write
from kubeloop.kube.objects.api_types import ObjectMeta, convert

FINALIZER = "example.com/protection"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("metadata", "adds_finalizer", "expected"),
    [
        pytest.param({}, True, True, id="finalizer missing"),
        pytest.param({}, False, False, id="the API server adds the finalizer"),
        pytest.param({"finalizers": ["example.com/f"]}, True, True, id="other finalizer"),
        pytest.param({"finalizers": ["example.com/f", FINALIZER]}, True, False, id="protected"),
        pytest.param({**DELETED, "finalizers": [FINALIZER]}, True, True, id="in deletion"),
        pytest.param({**DELETED, "finalizers": [FINALIZER]}, False, True, id="in deletion, of the API server"),
        pytest.param({**DELETED, "finalizers": ["example.com/f"]}, True, False, id="in deletion, released"),
    ],
)
def test_needs_write(metadata: dict[str, Any], adds_finalizer: bool, expected: bool):
    assert needs_write(convert(ObjectMeta, metadata), FINALIZER, adds_finalizer=adds_finalizer) is expected
