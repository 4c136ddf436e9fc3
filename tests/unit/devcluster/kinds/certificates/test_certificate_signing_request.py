"""Strategy of CertificateSigningRequests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write
from kubeloop.devcluster.kinds.certificates.certificate_signing_request import STRATEGY
from support.objects.kinds import cell_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    return cell_of(
        "certificatesigningrequests.certificates.k8s.io", column, {"metadata": metadata or {}, **fields}, NOW
    )


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


NOW = Write(now=lambda: "now")


def test_approval_changes_conditions_and_the_metadata_of_clients():
    old = {
        "metadata": {"name": "a", "annotations": {"b": "c"}},
        "spec": {"signerName": "s"},
        "status": {"certificate": "x"},
    }
    condition = {"type": "Approved", "status": "True", "lastUpdateTime": "t1"}
    sent = {
        "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
        "spec": {},
        "status": {"certificate": "y", "conditions": [condition]},
    }
    assert STRATEGY.prepare_subresources["approval"](sent, old, NOW) == {
        "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
        "spec": {"signerName": "s"},
        "status": {"certificate": "x", "conditions": [{**condition, "lastTransitionTime": "now"}]},
    }


def test_condition_that_does_not_change_keeps_its_transition_time():
    before = {"type": "Approved", "status": "True", "lastTransitionTime": "t0"}
    old = {"metadata": {}, "spec": {}, "status": {"conditions": [before]}}
    sent = {"metadata": {}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    stored = STRATEGY.prepare_subresources["approval"](sent, old, NOW)
    assert stored["status"]["conditions"] == [{**before, "lastUpdateTime": "now"}]


def test_status_write_keeps_decisions_and_completes_times():
    approved = {"type": "Approved", "status": "True", "lastUpdateTime": "t0", "lastTransitionTime": "t0"}
    old = {"status": {"conditions": [approved]}}
    obj = {"status": {"conditions": [{"type": "Approved", "reason": "other"}, {"type": "Failed", "status": "True"}]}}
    assert STRATEGY.prepare_status is not None
    STRATEGY.prepare_status(obj, old, NOW)
    times = {"lastUpdateTime": "now", "lastTransitionTime": "now"}
    assert obj["status"]["conditions"] == [approved, {"type": "Failed", "status": "True", **times}]
