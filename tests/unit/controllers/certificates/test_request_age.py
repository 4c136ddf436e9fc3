"""Age at which CertificateSigningRequests are deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controllers.certificates.request_age import is_outdated
from kubeloop.kube.clock import rfc3339
from support.objects.certificate_requests import certificate

NOW = datetime(2026, 1, 10, tzinfo=UTC)
VALID, EXPIRED = certificate(NOW + timedelta(days=1)), certificate(NOW - timedelta(seconds=1))


def request(type_: str, hours: float, issued: str = "") -> Any:
    """Return a request whose condition was updated so many hours ago, or that was created then and has none."""
    time = rfc3339(NOW - timedelta(hours=hours))
    conditions = [{"type": type_, "status": "True", "lastUpdateTime": time}] if type_ else []
    return {
        "metadata": {"creationTimestamp": time},
        "status": {"conditions": conditions, "certificate": issued or None},
    }


@pytest.mark.parametrize(
    ("type_", "issued", "limit_hours"),
    [("", "", 24), ("Denied", "", 1), ("Failed", "", 1), ("Approved", VALID, 1), ("Approved", "", 24)],
)
def test_request_is_outdated_after_its_time(type_: str, issued: str, limit_hours: int):
    assert not is_outdated(request(type_, limit_hours, issued), NOW)
    assert is_outdated(request(type_, limit_hours + 0.01, issued), NOW)


@pytest.mark.parametrize(
    ("issued", "expected"), [(EXPIRED, True), (VALID, False), ("bm8gY2VydGlmaWNhdGU=", False), ("?", False)]
)
def test_approved_request_is_outdated_with_its_certificate(issued: str, expected: bool):
    assert is_outdated(request("Approved", 0, issued), NOW) is expected


def test_condition_without_time_never_ends():
    conditions = [{"type": "Denied", "status": "True"}]
    assert not is_outdated({"metadata": {}, "status": {"conditions": conditions}}, NOW)
