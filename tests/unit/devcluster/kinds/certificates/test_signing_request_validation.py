"""Validation of CertificateSigningRequests. tests/parity compares all messages with kube-apiserver."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.kinds.certificates.signing_request_validation import (
    validate_approval,
    validate_signing_request,
    validate_status,
    validate_update,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.objects.certificate_requests import certificate, signing_request

VALID = signing_request()["spec"]
CERTIFICATE = certificate(datetime(2030, 1, 1, tzinfo=UTC))
APPROVED, DENIED = ({"type": decision, "status": "True"} for decision in ("Approved", "Denied"))


def encoded(text: bytes) -> str:
    return b64encode(text).decode()


def errors_of(validate: Any, *objects: dict[str, Any]) -> list[tuple[str, str]]:
    errors = ErrorList()
    validate(errors, *objects)
    return [(error["field"], error["reason"]) for error in errors]


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        pytest.param({"request": encoded(b"x")}, "spec.request", "Invalid", id="no PEM"),
        pytest.param({"request": CERTIFICATE}, "spec.request", "Invalid", id="another PEM block"),
        pytest.param(
            {"request": encoded(b64decode(VALID["request"])[:80] + b"\n-----END CERTIFICATE REQUEST-----")},
            "spec.request",
            "Invalid",
            id="truncated request",
        ),
        pytest.param({"usages": []}, "spec.usages", "Required", id="no usages"),
        pytest.param({"usages": ["any", "x"]}, "spec.usages[1]", "NotSupported", id="unknown usage"),
        pytest.param({"usages": ["any", "any"]}, "spec.usages[1]", "Duplicate", id="repeated usage"),
        pytest.param({"signerName": ""}, "spec.signerName", "Required", id="no signer"),
        pytest.param({"signerName": "example"}, "spec.signerName", "Invalid", id="signer without path"),
        pytest.param({"signerName": "example/x"}, "spec.signerName", "Invalid", id="signer without domain"),
        pytest.param({"expirationSeconds": 599}, "spec.expirationSeconds", "Invalid", id="too short"),
    ],
)
def test_invalid_field_of_a_new_request_is_reported(spec: dict[str, Any], field: str, reason: str):
    errors = errors_of(validate_signing_request, {"spec": {**VALID, **spec}})
    assert errors == [(field, f"FieldValue{reason}")]


def test_valid_request_and_certificates_have_no_errors():
    assert errors_of(validate_signing_request, {"spec": VALID}) == []
    chain = encoded(b64decode(CERTIFICATE) * 2)
    assert errors_of(validate_status, {"status": {"certificate": chain}}, {}) == []


@pytest.mark.parametrize(
    ("validate", "status", "before", "field"),
    [
        pytest.param(validate_status, {"certificate": encoded(b"x")}, {}, "status.certificate", id="no certificate"),
        pytest.param(
            validate_status, {"certificate": VALID["request"]}, {}, "status.certificate", id="another PEM block"
        ),
        pytest.param(validate_status, {}, {"certificate": CERTIFICATE}, "status.certificate", id="removed certificate"),
        pytest.param(validate_status, {"conditions": [APPROVED]}, {}, "status.conditions", id="decision in status"),
        pytest.param(validate_update, {}, {"conditions": [APPROVED]}, "status.conditions", id="removed decision"),
        pytest.param(validate_approval, {"conditions": [APPROVED, DENIED]}, {}, "status.conditions", id="both"),
        pytest.param(
            validate_approval, {"conditions": [{**APPROVED, "status": "False"}]}, {}, "status.conditions[0].status",
            id="not true",
        ),
        pytest.param(
            validate_approval, {"conditions": [APPROVED, APPROVED]}, {}, "status.conditions[1].type", id="repeated"
        ),
    ],
)  # fmt: skip
def test_invalid_status_is_reported(validate: Any, status: dict[str, Any], before: dict[str, Any], field: str):
    assert {path for path, _ in errors_of(validate, {"status": status}, {"status": before})} == {field}


def test_problems_of_the_stored_status_are_accepted():
    status = {"conditions": [APPROVED, DENIED, APPROVED], "certificate": encoded(b"x")}
    assert errors_of(validate_approval, {"status": status}, {"status": status}) == []
