"""Cells and definitions of the columns that a kind's declaration names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.printers.declared_columns import declared_cells, declared_columns

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    complete = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z", **(metadata or {})}
    name, value = declared_cells((column,), {"metadata": complete, **fields}, NOW)
    assert name == "x"
    return value


def test_column_with_a_path_shows_the_value():
    assert cell("Driver=spec.driver", spec={"driver": "gpu.example.com"}) == "gpu.example.com"
    assert cell("Driver=spec.driver", spec={}) == "<none>"
    assert cell("Modes=spec.modes", spec={"modes": ["a", "b"]}) == "a,b"


def test_number_column_shows_the_length_of_a_list():
    assert cell("Webhooks#=webhooks", webhooks=[{}, {}]) == 2
    assert cell("Webhooks#=webhooks") == 0
    assert cell("Value#=spec.value", spec={"value": 7}) == 7


def test_definitions_start_with_the_name_and_type_numbers():
    definitions = declared_columns(("Driver=spec.driver", "Webhooks#=webhooks", "Age"))
    assert [(column["name"], column["type"], column["format"]) for column in definitions] == [
        ("Name", "string", "name"),
        ("Driver", "string", ""),
        ("Webhooks", "integer", ""),
        ("Age", "string", ""),
    ]


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


def test_resource_claim_without_allocation_is_pending():
    deleted = {"deletionTimestamp": "2026-05-01T11:59:00Z"}
    assert cell("State") == "pending"
    assert cell("State", metadata=deleted) == "deleted,pending"
    assert cell("State", status={"allocation": {"devices": {}}, "reservedFor": [{}]}) == "allocated,reserved"


def test_policy_parameters_show_kind_or_object():
    assert cell("ParamKind", spec={"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}) == "v1/ConfigMap"
    assert cell("ParamKind", spec={}) == "<unset>"
    assert cell("ParamRef", spec={"paramRef": {"name": "limits"}}) == "*/limits"
    assert cell("ParamRef", spec={"paramRef": {"namespace": "default", "name": "limits"}}) == "default/limits"


def test_unavailable_api_service_shows_the_reason():
    missing = {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
    assert cell("Available", status={"conditions": [missing]}) == "False (ServiceNotFound)"
    assert cell("Available", status={"conditions": [{"type": "Available", "status": "True"}]}) == "True"
    assert cell("Available") == "Unknown"
    assert cell("Service", spec={"service": {"namespace": "kube-system", "name": "metrics"}}) == "kube-system/metrics"


def test_parent_of_an_ip_address_includes_group_and_namespace():
    parent = {"group": "apps", "resource": "deployments", "namespace": "default", "name": "web"}
    assert cell("ParentRef", spec={"parentRef": parent}) == "deployments.apps/default/web"
    service = {"resource": "services", "namespace": "default", "name": "web"}
    assert cell("ParentRef", spec={"parentRef": service}) == "services/default/web"
    assert cell("ParentRef", spec={}) == "<none>"
