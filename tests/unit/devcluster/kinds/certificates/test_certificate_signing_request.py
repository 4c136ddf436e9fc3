"""Strategy of CertificateSigningRequests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write
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


def test_requester_is_the_authenticated_user():
    obj = {"spec": {"username": "root", "uid": "0", "extra": {"a": ["b"]}, "signerName": "s"}}
    assert STRATEGY.prepare_create is not None
    STRATEGY.prepare_create(obj, Write(user={"username": "jane", "groups": ["g"]}))
    assert obj["spec"] == {"signerName": "s", "username": "jane", "groups": ["g"]}


def test_approval_changes_only_conditions():
    old = {"metadata": {"name": "a"}, "spec": {"signerName": "s"}, "status": {"certificate": "x"}}
    condition = {"type": "Approved", "status": "True", "lastUpdateTime": "t1"}
    sent = {
        "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
        "spec": {},
        "status": {"certificate": "y", "conditions": [condition]},
    }
    assert STRATEGY.prepare_subresources["approval"](sent, old, Write()) == {
        "metadata": {"name": "a", "managedFields": [1]},
        "spec": {"signerName": "s"},
        "status": {"certificate": "x", "conditions": [{**condition, "lastTransitionTime": "t1"}]},
    }
