"""Admin access to devices: which namespaces may have it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.device_admin_access import check_allocation, check_requests
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS

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


def rejected_fields(error: StatusError) -> list[str]:
    return [cause["field"] for cause in error.status["details"]["causes"]]


@pytest.mark.parametrize("namespace", ["default", "other", "missing"])
def test_namespace_without_the_label_is_rejected(store: ObjectStore, namespace: str) -> None:
    with pytest.raises(StatusError, match="admin access to devices requires the `resource") as raised:
        check_requests(store, RESOURCE_CLAIMS, obj(namespace, CLAIM_SPEC), CLAIM_SPEC)
    assert rejected_fields(raised.value) == ["spec.devices.requests[1].adminAccess"]
    with pytest.raises(StatusError):
        check_requests(store, RESOURCE_CLAIM_TEMPLATES, obj(namespace, {"spec": CLAIM_SPEC}), CLAIM_SPEC)
    with pytest.raises(StatusError) as raised:
        check_allocation(store, RESOURCE_CLAIMS, obj(namespace, CLAIM_SPEC, status=GRANTED), obj(namespace, CLAIM_SPEC))
    assert rejected_fields(raised.value) == ["status.allocation.devices.results[1].adminAccess"]


def test_namespace_with_the_label_is_accepted(store: ObjectStore) -> None:
    check_requests(store, RESOURCE_CLAIMS, obj("admin", CLAIM_SPEC), CLAIM_SPEC)
    check_requests(store, RESOURCE_CLAIM_TEMPLATES, obj("admin", {"spec": CLAIM_SPEC}), CLAIM_SPEC)
    check_allocation(store, RESOURCE_CLAIMS, obj("admin", CLAIM_SPEC, status=GRANTED), obj("admin", CLAIM_SPEC))


def test_stored_admin_access_and_plain_claims_need_no_label(store: ObjectStore) -> None:
    check_requests(store, RESOURCE_CLAIMS, obj("default", PLAIN_SPEC), PLAIN_SPEC)
    granted = obj("default", CLAIM_SPEC, status=GRANTED)
    check_allocation(store, RESOURCE_CLAIMS, granted, granted)
