"""Computed columns of several kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from support.objects.kinds import cell_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)

KINDS = {
    "State": "resourceclaims.resource.k8s.io",
    "ParamKind": "validatingadmissionpolicies.admissionregistration.k8s.io",
    "ParamRef": "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "ParentRef": "ipaddresses.networking.k8s.io",
}


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    return cell_of(KINDS[column], column, {"metadata": metadata or {}, **fields}, NOW)


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


def test_parent_of_an_ip_address_includes_group_and_namespace():
    parent = {"group": "apps", "resource": "deployments", "namespace": "default", "name": "web"}
    assert cell("ParentRef", spec={"parentRef": parent}) == "deployments.apps/default/web"
    service = {"resource": "services", "namespace": "default", "name": "web"}
    assert cell("ParentRef", spec={"parentRef": service}) == "services/default/web"
    assert cell("ParentRef", spec={}) == "<none>"
