"""Strategy of APIServices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write
from kubeloop.devcluster.kinds.apiregistration.api_service import STRATEGY
from kubeloop.kube.json_object import JSON
from support.objects.kinds import cell_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    return cell_of("apiservices.apiregistration.k8s.io", column, {"metadata": metadata or {}, **fields}, NOW)


def test_unavailable_api_service_shows_the_reason():
    missing = {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
    assert cell("Available", status={"conditions": [missing]}) == "False (ServiceNotFound)"
    assert cell("Available", status={"conditions": [{"type": "Available", "status": "True"}]}) == "True"
    assert cell("Available") == "Unknown"
    assert cell("Service", spec={"service": {"namespace": "kube-system", "name": "metrics"}}) == "kube-system/metrics"


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [({}, [("Available", "True", "Local")]), ({"service": {"name": "s"}}, [])],
    ids=["local", "of another server"],
)
def test_local_api_services_are_available_at_once(spec: JSON, conditions: list[tuple[str, str, str]]):
    obj: JSON = {"spec": spec}
    assert STRATEGY.prepare_create is not None
    STRATEGY.prepare_create(obj, Write(lambda: "t1"))
    present = obj["status"].get("conditions", [])
    assert [(it["type"], it["status"], it["reason"]) for it in present] == conditions
