"""PersistentVolumeClaimResize admission."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.core.persistent_volume_claim import check_claim_resize
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import STORAGE_CLASSES
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
NOT_BOUND = "Only bound persistent volume claims can be expanded"
NOT_EXPANDABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


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


@pytest.mark.parametrize(
    ("sizes", "phase", "class_names", "reason"),
    [
        pytest.param(("1Gi", "2Gi"), "Bound", ("growing", "growing"), "", id="class allows expansion"),
        pytest.param(("2Gi", "1Gi"), "Pending", ("fixed", "fixed"), "", id="not an expansion"),
        pytest.param(("1Gi", "2Gi"), "Pending", ("growing", "growing"), NOT_BOUND, id="claim is not bound"),
        pytest.param(("1Gi", "2Gi"), "Bound", ("fixed", "fixed"), NOT_EXPANDABLE, id="class forbids expansion"),
        pytest.param(("1Gi", "2Gi"), "Bound", ("fixed", "growing"), NOT_EXPANDABLE, id="class changes"),
        pytest.param(("1Gi", "2Gi"), "Bound", ("none", "none"), NOT_EXPANDABLE, id="missing class"),
    ],
)
def test_claim_resize(sizes: tuple[str, str], phase: str, class_names: tuple[str, str], reason: str):
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(STORAGE_CLASSES, {"metadata": {"name": "growing"}, "allowVolumeExpansion": True})
    store.create(STORAGE_CLASSES, {"metadata": {"name": "fixed"}})
    old, new = (
        {"metadata": {"name": "c"}, **claim(size, phase, storageClassName=name)}
        for size, name in zip(sizes, class_names, strict=True)
    )
    try:
        check_claim_resize(store, new, old)
        message = ""
    except StatusError as error:
        message = error.message
    assert message == (reason and f'persistentvolumeclaims "c" is forbidden: {reason}')


async def test_claim_resize_requests_in_the_order_of_their_checks():
    api, path = InProcessApi(), "/api/v1/namespaces/default/persistentvolumeclaims"
    created = api.create(path, {"metadata": {"name": "c"}, **claim("1Gi", storageClassName="x")})

    def resize(size: str) -> str:
        """Return the message of the response after its first colon; "" if the claim is resized."""
        status, content = api("PATCH", f"{path}/c", {"spec": {"resources": {"requests": {"storage": size}}}})
        return "" if status < 300 else content["message"].partition(": ")[2]

    assert resize("2Gi").startswith("spec: Forbidden: spec is immutable after creation except")
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    api.succeed("PUT", f"{path}/c/status", {**created, "status": bound})
    assert resize("3Gi") == NOT_EXPANDABLE
    expandable = {"metadata": {"name": "x"}, "provisioner": "a.b/c", "allowVolumeExpansion": True}
    api.create("/apis/storage.k8s.io/v1/storageclasses", expandable)
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}]
    limit_range = {"metadata": {"name": "l"}, "spec": {"limits": limits}}
    api.create("/api/v1/namespaces/default/limitranges", limit_range)
    assert resize("9Gi") == "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 9Gi"
    assert resize("4Gi") == ""
