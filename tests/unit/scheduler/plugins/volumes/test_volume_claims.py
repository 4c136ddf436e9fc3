"""Claims of a pod: references, owners, StorageClasses and binding state."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.plugins.volumes.volume_claims import (
    ClaimError,
    ClaimNotFound,
    check_owned_by,
    claim_class,
    claim_uses,
    get_claim,
    is_bound_to,
    is_fully_bound,
    references_claim,
    uses_claim,
    waits_for_consumer,
)
from support.objects.plugin_volumes import make_claim, make_volume

VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
    {"name": "config", "configMap": {"name": "m"}},
]


def test_claims_of_a_pod(pod: Any) -> None:
    uses = [(use.claim_name, use.ephemeral) for use in claim_uses(pod("p", volumes=VOLUMES))]
    assert uses == [("c", False), ("p-scratch", True)]


def test_generic_ephemeral_claims_are_used_but_not_referenced(pod: Any) -> None:
    incoming, claim = pod("p", volumes=VOLUMES), make_claim("p-scratch")
    assert uses_claim(incoming, claim)
    assert not references_claim(incoming, claim)
    assert references_claim(incoming, make_claim("c"))


def test_missing_claim_raises(plugin_cluster: Any, pod: Any) -> None:
    with pytest.raises(ClaimNotFound, match='persistentvolumeclaim "c" not found'):
        get_claim(pod("p"), "c", plugin_cluster().listers)


def test_ephemeral_claim_of_another_pod_raises(pod: Any) -> None:
    with pytest.raises(ClaimError, match=r"was not created for pod default/p \(pod is not owner\)"):
        check_owned_by(pod("p"), make_claim("p-scratch"))


def test_beta_annotation_overrides_storage_class_name() -> None:
    metadata = {"name": "c", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    claim = convert(PersistentVolumeClaim, {"metadata": metadata, "spec": {"storageClassName": "new"}})
    assert claim_class(claim) == "old"
    assert claim_class(make_claim("c")) == "wait"


def test_binding_state() -> None:
    assert is_fully_bound(make_claim("c", "pv"))
    assert not is_fully_bound(make_claim("c"))
    volume = make_volume("pv", claimRef={"namespace": "default", "name": "c", "uid": "other"})
    assert not is_bound_to(volume, make_claim("c"))
    assert is_bound_to(make_volume("pv", claimRef={"namespace": "default", "name": "c"}), make_claim("c"))


@pytest.mark.parametrize(("mode", "waits"), [("WaitForFirstConsumer", True), ("Immediate", False)])
def test_waits_for_first_consumer(mode: str, waits: bool, plugin_cluster: Any) -> None:
    cluster = plugin_cluster()
    storage_class = {"metadata": {"name": "wait"}, "provisioner": "x", "volumeBindingMode": mode}
    cluster.put("storage_classes", convert(StorageClass, storage_class))
    assert waits_for_consumer(make_claim("c"), cluster.listers) == waits
