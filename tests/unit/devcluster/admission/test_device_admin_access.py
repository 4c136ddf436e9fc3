"""Admin access to devices: which namespaces may have it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.device_admin_access import check_allocation, check_requests
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

CLAIM_SPEC: JSON = {"devices": {"requests": [{"name": "a"}, {"name": "b", "exactly": {"adminAccess": True}}]}}
PLAIN_SPEC: JSON = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}
GRANTED: JSON = {"allocation": {"devices": {"results": [{}, {"adminAccess": True}]}}}


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore(seconds=lambda: 0.0)
    for name, value in (("admin", "true"), ("other", "yes"), ("default", "")):
        labels = {"resource.kubernetes.io/admin-access": value} if value else {}
        store.create(NAMESPACES, {"metadata": {"name": name, "uid": name, "labels": labels}})
    return store


def obj(namespace: str, spec: JSON, **fields: Any) -> JSON:
    return {"metadata": {"name": "x", "namespace": namespace}, "spec": spec, **fields}


@pytest.mark.parametrize("namespace", ["default", "other", "missing"])
def test_namespace_without_the_label_is_rejected(store: ObjectStore, namespace: str) -> None:
    (cause,) = check_requests(store, obj(namespace, CLAIM_SPEC), CLAIM_SPEC)
    assert cause["field"] == "spec.devices.requests[1].adminAccess"
    assert "admin access to devices requires the `resource" in cause["message"]
    allocated = obj(namespace, CLAIM_SPEC, status=GRANTED)
    (cause,) = check_allocation(store, allocated, obj(namespace, CLAIM_SPEC))
    assert cause["field"] == "status.allocation.devices.results[1].adminAccess"


def test_namespace_with_the_label_is_accepted(store: ObjectStore) -> None:
    assert check_requests(store, obj("admin", CLAIM_SPEC), CLAIM_SPEC) == []
    assert check_allocation(store, obj("admin", CLAIM_SPEC, status=GRANTED), obj("admin", CLAIM_SPEC)) == []


def test_stored_admin_access_and_plain_claims_need_no_label(store: ObjectStore) -> None:
    assert check_requests(store, obj("default", PLAIN_SPEC), PLAIN_SPEC) == []
    granted = obj("default", CLAIM_SPEC, status=GRANTED)
    assert check_allocation(store, granted, granted) == []
