"""Validation of volumes of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.volumes import (
    validate_csi_driver_name,
    validate_fibre_channel,
    validate_host_path,
    validate_iscsi,
    validate_nfs,
    validate_volumes,
)
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from support.objects.validation_causes import cause_texts, create_causes, pod, validator_causes, workload

JSON = dict[str, Any]

ONE_TYPE = "Forbidden: may not specify more than 1 volume type"


def volume(**source: Any) -> JSON:
    return pod(volumes=[{"name": "v", **source}])


V = "spec.volumes[0]"


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(
            volume(nfs={}),
            [
                f"{V}.nfs.server: Required value",
                f"{V}.nfs.path: Required value",
                f'{V}.nfs.path: Invalid value: "": must be an absolute path',
            ],
            id="nfs",
        ),
        pytest.param(volume(hostPath={"type": "X"}), [f"{V}.hostPath.path: Required value"], id="hostPath"),
        pytest.param(
            volume(iscsi={"targetPortal": "p", "iqn": "iqn.x", "lun": 256}),
            [
                f'{V}.iscsi.iqn: Invalid value: "iqn.x": must be valid format',
                f"{V}.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
            ],
            id="iscsi",
        ),
        pytest.param(
            volume(gcePersistentDisk={"partition": 300}),
            [
                f"{V}.persistentDisk.pdName: Required value",
                f"{V}.persistentDisk.partition: Invalid value: 300: "
                "must be between 1 and 255, inclusive",
            ],
            id="gcePersistentDisk has another path",
        ),
        pytest.param(
            volume(secret={"secretName": "s", "items": [{"key": "k", "path": ".."}]}, configMap={"name": "c"}),
            [
                f"{V}.secret.items[0].path: Invalid value: \"..\": must not contain '..'",
                f"{V}.secret.items[0].path: Invalid value: \"..\": must not start with '..'",
                f"{V}.configMap: {ONE_TYPE}",
            ],
            id="two sources: the first is validated, the second forbidden",
        ),
        pytest.param(
            volume(csi={"driver": ""}),
            [
                f"{V}.csi.driver: Required value",
            ],
            id="csi",
        ),
        pytest.param(
            volume(projected={"sources": [{"serviceAccountToken": {"path": "/x"}, "configMap": {"name": "c"}}]}),
            [
                f'{V}.projected.path: Invalid value: "/x": must be a relative path',
                f"{V}.projected.sources[0]: {ONE_TYPE} per source",
                f"{V}.projected.sources[0].serviceAccountToken: "
                "Forbidden: must not be specified when serviceAccountName is not set",
            ],
            id="projected",
        ),
        pytest.param(
            volume(ephemeral={"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {"accessModes": ["Any"]}}}),
            [
                f"{V}.ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                f'{V}.ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "Any": supported values: '
                '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
                f"{V}.ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
            id="ephemeral",
        ),
    ],
)  # fmt: skip
def test_pod_volume_causes(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes


def test_image_volume_reference_is_required_in_pods_only():
    spec = {"volumes": [{"name": "v", "image": {}}]}
    assert create_causes(PODS, pod(**spec)) == ["spec.volumes[0].image.reference: Required value"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod(**spec)["spec"]}
    assert create_causes(DEPLOYMENTS, workload(selector={"matchLabels": {"a": "b"}}, template=template)) == []


def test_only_valid_volumes_are_mountable() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b"}, {"name": "a", "hostPath": {"path": "/"}}]
    errors = ErrorList()
    assert validate_volumes(errors, "v", {"volumes": volumes}) == {"a": volumes[0]}
    assert cause_texts(errors) == [
        "v[1]: Required value: must specify a volume type",
        'v[2].name: Duplicate value: "a"',
    ]


@pytest.mark.parametrize(
    ("validator", "source", "causes"),
    [
        pytest.param(validate_host_path, {"path": "/a", "type": "Directory"}, [], id="host path"),
        pytest.param(validate_host_path, {}, ["s.path: Required value"], id="host path without path"),
        pytest.param(
            validate_host_path,
            {"path": "/a/.."},
            ["s.path: Invalid value: \"/a/..\": must not contain '..'"],
            id="parent",
        ),
        pytest.param(
            validate_nfs,
            {"path": "a"},
            ["s.server: Required value", 's.path: Invalid value: "a": must be an absolute path'],
            id="NFS",
        ),
        pytest.param(
            validate_iscsi,
            {"targetPortal": "p", "iqn": "iqn.2026-01.com.a:b", "lun": 256, "chapAuthSession": True},
            [
                "s.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                "s.secretRef: Required value",
            ],
            id="iSCSI",
        ),
        pytest.param(
            validate_fibre_channel,
            {"targetWWNs": ["a"]},
            ["s.lun: Required value: lun is required if targetWWNs is specified"],
            id="fibre channel without LUN",
        ),
        pytest.param(
            validate_fibre_channel,
            {},
            ["s.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
            id="fibre channel without target",
        ),
    ],
)
def test_volume_source_causes(validator: Any, source: dict[str, Any], causes: list[str]) -> None:
    assert validator_causes(validator, "s", source) == causes


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("csi.Example.com", []),
        ("", ["d: Required value"]),
        ("a" * 64, ["d: Too long: may not be more than 63 bytes"]),
    ],
)
def test_csi_driver_name_causes(name: str, causes: list[str]) -> None:
    assert validator_causes(validate_csi_driver_name, "d", name) == causes


def test_volume_must_not_use_claim_of_an_ephemeral_volume() -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "p-scratch"}},
    ]
    assert validator_causes(validate_volumes, "v", {"volumes": volumes}, "other") == []
    assert validator_causes(validate_volumes, "v", {"volumes": volumes}, "p") == [
        'v[1].persistentVolumeClaim.claimName: Invalid value: "p-scratch": '
        "must not reference a PVC that gets created for an ephemeral volume"
    ]
