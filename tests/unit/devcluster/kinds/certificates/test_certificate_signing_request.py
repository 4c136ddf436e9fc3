"""Strategy of CertificateSigningRequests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.kinds.certificates.certificate_signing_request import STRATEGY

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    return STRATEGY.computed_columns[column]({"metadata": metadata or {}, **fields}, NOW)


@pytest.mark.parametrize(
    ("conditions", "certificate", "text"),
    [
        ([], "", "Pending"),
        (["Approved"], "LS0t", "Approved,Issued"),
        (["Approved", "Failed"], "", "Approved,Failed"),
        (["Approved", "Denied"], "", "Denied"),
    ],
)
def test_signing_request_condition_combines_states(conditions, certificate, text):
    status = {"conditions": [{"type": condition} for condition in conditions], "certificate": certificate}
    assert cell("Condition", status=status) == text
