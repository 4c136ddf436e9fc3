"""Validation of PersistentVolumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.persistent_volume import validate_persistent_volume
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES
from support.objects.validation_causes import create_causes, update_causes, validator_causes


def test_local_volume_requires_node_affinity():
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/a"}}
    assert create_causes(PERSISTENT_VOLUMES, {"spec": spec}) == [
        "spec.nodeAffinity: Required value: Local volume requires node affinity"
    ]


JSON = dict[str, Any]


def volume(**spec: Any) -> JSON:
    fields = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}, **spec}
    return {"metadata": {"name": "a"}, "spec": {name: value for name, value in fields.items() if value is not None}}


def test_volume_source_is_immutable_and_diffed_in_go_order():
    causes = update_causes(
        PERSISTENT_VOLUMES, volume(), volume(hostPath=None, quobyte={"registry": "r", "volume": "v"})
    )
    assert causes[0].startswith('spec.quobyte.registry: Invalid value: "r": must be a host:port pair')
    lines = causes[-1].splitlines()
    assert lines[0].endswith("Forbidden: spec.persistentvolumesource is immutable after creation")
    removed = lines.index('- "Quobyte": null,')
    assert [lines[removed - 1].strip(), lines[removed + 9].strip()] == ['"RBD": null,', '"ISCSI": null,']


def affinity(key: str) -> JSON:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone", True),
        ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", False),
        ("a", "b", False),
    ],
)
def test_volume_affinity_may_change_to_the_stable_label(old: str, new: str, allowed: bool):
    causes = update_causes(PERSISTENT_VOLUMES, volume(nodeAffinity=affinity(old)), volume(nodeAffinity=affinity(new)))
    assert [cause.partition(":")[0] for cause in causes] == ([] if allowed else ["nodeAffinity"])


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(volume()["spec"], [], id="valid"),
        pytest.param(
            volume(hostPath=None, accessModes=None)["spec"],
            ["spec.accessModes: Required value", "spec: Required value: must specify a volume type"],
            id="no access modes and no source",
        ),
        pytest.param(
            volume(nfs={"server": "s", "path": "/"})["spec"],
            ["spec.nfs: Forbidden: may not specify more than 1 volume type"],
            id="two sources",
        ),
        pytest.param(
            volume(hostPath={"path": "/."}, persistentVolumeReclaimPolicy="Recycle")["spec"],
            ["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"],
            id="recycled root folder",
        ),
        pytest.param(
            volume(capacity={"storage": "0"})["spec"],
            ['spec.capacity[storage]: Invalid value: "0": must be greater than zero'],
            id="no capacity",
        ),
        pytest.param(
            volume(hostPath=None, csi={"driver": "a.b", "nodePublishSecretRef": {"name": "s"}})["spec"],
            [
                "spec.csi.volumeHandle: Required value",
                "spec.csi.nodePublishSecretRef.namespace: Required value",
            ],
            id="CSI volume without handle",
        ),
        pytest.param(
            volume(volumeAttributesClassName="gold")["spec"],
            ["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
            id="attributes class without CSI",
        ),
    ],
)
def test_persistent_volume_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_persistent_volume, {"metadata": {}, "spec": spec}) == causes


def test_mount_options_need_a_mountable_source() -> None:
    obj = {**volume(), "metadata": {"annotations": {"volume.beta.kubernetes.io/mount-options": "ro"}}}
    assert validator_causes(validate_persistent_volume, obj) == [
        "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: "
        "may not specify mount options for this volume type"
    ]
