"""Age after which a CertificateSigningRequest is deleted. A pure function of JSON.

Source: v1.36 pkg/controller/certificates/cleaner/cleaner.go.
"""

from __future__ import annotations

import base64
from datetime import datetime, timedelta

from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.values.times import parse_time, seconds_between

_PENDING = timedelta(hours=24)
_DECIDED = timedelta(hours=1)


def is_outdated(request: JSONValue, now: datetime) -> bool:
    """Return True for a request that was denied, failed or fulfilled an hour ago, or has waited for 24 hours.

    A request also ends with its certificate.
    """
    status = request.get("status") or {}
    conditions = status.get("conditions") or ()
    certificate: str = status.get("certificate") or ""
    if not conditions:
        return _is_older(request["metadata"].get("creationTimestamp"), _PENDING, now)
    for condition in conditions:
        age = _DECIDED if certificate or condition["type"] != "Approved" else _PENDING
        if condition["type"] in ("Approved", "Denied", "Failed") and _is_older(
            condition.get("lastUpdateTime"), age, now
        ):
            return True
    is_approved = any(condition["type"] == "Approved" for condition in conditions)
    return is_approved and bool(certificate) and _is_expired(certificate, now)


def _is_older(text: str | None, age: timedelta, now: datetime) -> bool:
    return text is not None and seconds_between(parse_time(text), now) > age.total_seconds()


def _is_expired(certificate: str, now: datetime) -> bool:
    """Return True for a certificate, in base64 of PEM, whose time is over; False if it cannot be read."""
    from cryptography import x509

    try:
        first = x509.load_pem_x509_certificates(base64.b64decode(certificate))[0]
    except ValueError:
        return False
    return now > first.not_valid_after_utc
