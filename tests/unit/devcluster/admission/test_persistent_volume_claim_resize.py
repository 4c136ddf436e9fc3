"""PersistentVolumeClaimResize admission."""

from __future__ import annotations

from typing import Any

from support.api_requests import InProcessApi

JSON = dict[str, Any]


def claim(size: str = "1Gi", phase: str = "Pending", **spec: Any) -> JSON:
    resources = {"requests": {"storage": size}}
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}, "status": {"phase": phase}}


async def test_claim_expansion_needs_a_class_that_allows_it():
    api = InProcessApi()
    api("POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "fixed"}, "provisioner": "x/y"})
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    body = {"metadata": {"name": "c"}, **claim(storageClassName="fixed")}
    api("POST", claims, body)
    api("PATCH", f"{claims}/c/status", {"status": {"phase": "Bound"}})
    patch = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    status, response = api("PATCH", f"{claims}/c", patch)
    assert (status, response["message"].partition(": ")[2]) == (
        403,
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
        "resize",
    )
