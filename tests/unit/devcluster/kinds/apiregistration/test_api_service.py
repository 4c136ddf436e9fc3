"""Strategy of APIServices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.kinds.apiregistration.api_service import STRATEGY

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    return STRATEGY.computed_columns[column]({"metadata": metadata or {}, **fields}, NOW)


def test_unavailable_api_service_shows_the_reason():
    missing = {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
    assert cell("Available", status={"conditions": [missing]}) == "False (ServiceNotFound)"
    assert cell("Available", status={"conditions": [{"type": "Available", "status": "True"}]}) == "True"
    assert cell("Available") == "Unknown"
    assert cell("Service", spec={"service": {"namespace": "kube-system", "name": "metrics"}}) == "kube-system/metrics"
