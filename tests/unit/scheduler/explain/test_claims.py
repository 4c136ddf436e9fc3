"""Problems of the claims of a pending pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.informers.store import Store
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.explain.claims import ClaimProblem, claim_problems
from support.scheduling.plugin_cluster import make_pod

DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def listers(*objects: tuple[Any, dict[str, Any]]) -> Listers:
    stores = {PersistentVolumeClaim: Store[Any](), PersistentVolume: Store[Any](), StorageClass: Store[Any]()}
    for kind, fields in objects:
        obj = api_types.convert(kind, fields)
        stores[kind].put(obj.key, obj)
    return Listers(
        persistent_volume_claims=stores[PersistentVolumeClaim],
        persistent_volumes=stores[PersistentVolume],
        storage_classes=stores[StorageClass],
    )


def claim(**spec: Any) -> tuple[Any, dict[str, Any]]:
    return PersistentVolumeClaim, {"metadata": {"name": "data", "namespace": "default"}, "spec": spec}


def storage_class(name: str, annotations: dict[str, str] | None = None, **fields: Any) -> tuple[Any, dict[str, Any]]:
    defaults = {"provisioner": "csi.example.com", "volumeBindingMode": "Immediate"}
    return StorageClass, {"metadata": {"name": name, "annotations": annotations or {}}, **defaults, **fields}


USER = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
EPHEMERAL = {"volumes": [{"name": "v", "ephemeral": {}}]}


@pytest.mark.parametrize(
    ("objects", "problem", "advice"),
    [
        ([], "the claim data does not exist", "create the missing object"),
        (
            [claim()],
            "names no StorageClass, and there is no default StorageClass",
            "create a default StorageClass, or create the claim data again with a storageClassName",
        ),
        (
            [claim(), storage_class("slow")],
            "names no StorageClass, and there is no default StorageClass",
            "mark a StorageClass as default, or create the claim data again with a storageClassName (slow)",
        ),
        ([claim(), storage_class("std", DEFAULT)], "the default one is std", "persistentvolume-binder controller run"),
        ([claim(storageClassName="")], 'storageClassName is "", and no volume without a class', "without a class"),
        ([claim(storageClassName="gone")], "there is no StorageClass gone", "create the StorageClass gone"),
        (
            [claim(storageClassName="std"), storage_class("std")],
            "waits for the provisioner csi.example.com of StorageClass std",
            "see kubectl describe pvc data",
        ),
        (
            [claim(storageClassName="std"), storage_class("std", provisioner="kubernetes.io/no-provisioner")],
            "no volume of StorageClass std fits, and nothing provisions one",
            "create a PersistentVolume of class std",
        ),
        ([claim(volumeName="pv")], "bound to the volume pv, which does not exist", "restore the volume pv"),
    ],
)
def test_problem_names_the_claim_and_the_cause(objects, problem, advice):
    (found,) = claim_problems(make_pod("p", **USER), listers(*objects))
    assert "the claim data " in found.problem
    assert problem in found.problem
    assert advice in found.advice


@pytest.mark.parametrize(
    "objects",
    [
        [claim(volumeName="pv"), (PersistentVolume, {"metadata": {"name": "pv"}})],
        [claim(storageClassName="std"), storage_class("std", volumeBindingMode="WaitForFirstConsumer")],
    ],
)
def test_claim_that_does_not_delay_the_pod_is_no_problem(objects):
    assert claim_problems(make_pod("p", **USER), listers(*objects)) == []


def test_claim_of_an_ephemeral_volume_has_the_name_of_the_pod():
    assert claim_problems(make_pod("p", **EPHEMERAL), listers()) == [
        ClaimProblem(
            "the claim p-v of an ephemeral volume does not exist yet",
            "wait until the ephemeral volume controller has created it",
        )
    ]


@pytest.mark.parametrize(
    ("objects", "unknown"),
    [
        ([], "persistentvolumeclaims"),
        ([claim(volumeName="pv")], "persistentvolumes"),
        ([claim(storageClassName="gone")], "storageclasses.storage.k8s.io"),
        ([claim()], "storageclasses.storage.k8s.io"),
    ],
)
def test_unknown_objects_are_no_problem(objects, unknown):
    assert claim_problems(make_pod("p", **USER), listers(*objects), {unknown}) == []
