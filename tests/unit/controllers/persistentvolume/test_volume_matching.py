"""Match of a PersistentVolumeClaim with PersistentVolumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.persistentvolume.volume_matching import (
    best_match,
    default_class,
    is_bound_to,
    mismatch_message,
)
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim


def claim(**fields: Any) -> PersistentVolumeClaim:
    return convert(PersistentVolumeClaim, persistent_volume_claim(**fields))


def volume(*arguments: Any, **fields: Any) -> PersistentVolume:
    return convert(PersistentVolume, persistent_volume(*arguments, **fields))


OTHER_CLAIM = {"namespace": "default", "name": "other", "uid": "x"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, "small", id="smallest that is large enough"),
        pytest.param({"size": "3Gi"}, "large", id="larger request"),
        pytest.param({"size": "9Gi"}, None, id="request larger than all volumes"),
        pytest.param({"modes": ("ReadWriteMany",)}, "shared", id="access mode"),
        pytest.param({"storageClassName": "other"}, None, id="storage class"),
        pytest.param({"volumeMode": "Block"}, None, id="volume mode"),
        pytest.param({"selector": {"matchLabels": {"tier": "gold"}}}, "large", id="label selector"),
    ],
)
def test_claim_matches_smallest_suitable_volume(spec, expected):
    volumes = [
        volume({"name": "large", "uid": "1", "labels": {"tier": "gold"}}, "5Gi"),
        volume({"name": "small", "uid": "2"}, "2Gi"),
        volume({"name": "tiny", "uid": "3"}, "1Mi"),
        volume({"name": "shared", "uid": "4"}, "1Gi", ("ReadWriteOnce", "ReadWriteMany")),
        volume({"name": "taken", "uid": "5"}, "1Gi", claimRef=OTHER_CLAIM),
        volume({"name": "terminating", "uid": "6", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "1Gi"),
    ]
    match = best_match(claim(**spec), volumes, delayed=False)
    assert (match and match.metadata.name) == expected


def test_delayed_claim_matches_only_volume_with_its_claim_ref():
    claim_ref = {"namespace": "default", "name": "data", "uid": "c"}
    reserved = volume({"name": "reserved", "uid": "1"}, "5Gi", claimRef=claim_ref)
    assert best_match(claim(), [volume()], delayed=True) is None
    assert best_match(claim(), [volume(), reserved], delayed=True) is reserved


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({}, "", id="match"),
        pytest.param({"size": "2Gi"}, "requested PV is too small", id="size"),
        pytest.param({"storageClassName": "x"}, "storageClassName does not match", id="storage class"),
        pytest.param({"volumeMode": "Block"}, "incompatible volumeMode", id="volume mode"),
        pytest.param({"modes": ("ReadOnlyMany",)}, "incompatible accessMode", id="access modes"),
        pytest.param(
            {"volumeAttributesClassName": "g"}, "VolumeAttributesClassName does not match", id="attributes class"
        ),
    ],
)
def test_mismatch_message_of_requested_volume(spec, message):
    assert mismatch_message(volume(), claim(**spec)) == message


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        pytest.param([], None, id="none"),
        pytest.param([("a", 1, "false")], None, id="no default"),
        pytest.param([("a", 1, "true"), ("b", 2, "true"), ("c", 3, "false")], "b", id="newest"),
        pytest.param([("b", 1, "true"), ("a", 1, "true")], "a", id="first by name"),
    ],
)
def test_default_class(classes: list[tuple[str, int, str]], expected: str | None):
    objects = [
        convert(
            StorageClass,
            {
                "metadata": {
                    "name": name,
                    "creationTimestamp": f"2026-01-01T00:00:0{second}Z",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": is_default},
                }
            },
        )
        for name, second, is_default in classes
    ]
    storage_class = default_class(objects)
    assert (storage_class and storage_class.metadata.name) == expected


@pytest.mark.parametrize(
    ("of_volume", "of_claim", "message"),
    [
        pytest.param({}, {"volumeMode": "Filesystem"}, "", id="Filesystem is the default of the volume"),
        pytest.param({"volumeMode": "Filesystem"}, {}, "", id="Filesystem is the default of the claim"),
        pytest.param({"volumeMode": "Block"}, {"volumeMode": "Block"}, "", id="blocks"),
        pytest.param({"volumeMode": "Block"}, {}, "incompatible volumeMode", id="blocks for files"),
        pytest.param({}, {"volumeAttributesClassName": ""}, "", id="no class of attributes"),
        pytest.param({"volumeAttributesClassName": "g"}, {"volumeAttributesClassName": "g"}, "", id="same class"),
        pytest.param(
            {"volumeAttributesClassName": "g"},
            {"volumeAttributesClassName": "h"},
            "VolumeAttributesClassName does not match",
            id="other class",
        ),
        pytest.param({"size": "2Gi"}, {"size": "2Gi"}, "", id="exactly the size"),
        pytest.param({"modes": ("ReadWriteOnce", "ReadOnlyMany")}, {"modes": ("ReadOnlyMany",)}, "", id="one of modes"),
    ],
)
def test_volume_and_claim_are_compared_with_defaults(of_volume, of_claim, message):
    disk, data = volume(**of_volume), claim(**of_claim)
    assert mismatch_message(disk, data) == message
    assert best_match(data, [disk], delayed=False) is (None if message else disk)


@pytest.mark.parametrize(
    ("reference", "bound"),
    [
        pytest.param(None, False, id="no reference"),
        pytest.param({"namespace": "default", "name": "data", "uid": "c"}, True, id="this claim"),
        pytest.param({"namespace": "default", "name": "data"}, True, id="no UID yet"),
        pytest.param({"namespace": "default", "name": "data", "uid": "old"}, False, id="a former claim"),
        pytest.param({"namespace": "other", "name": "data", "uid": "c"}, False, id="another namespace"),
        pytest.param({"namespace": "default", "name": "other", "uid": "c"}, False, id="another name"),
    ],
)
def test_volume_is_bound_by_namespace_name_and_uid(reference, bound):
    disk = volume(**({} if reference is None else {"claimRef": reference}))
    assert is_bound_to(disk, claim()) is bound


def test_ties_go_to_few_access_modes_then_size_then_name():
    volumes = [
        volume({"name": "modes", "uid": "1"}, "1Gi", ("ReadWriteOnce", "ReadWriteMany")),
        volume({"name": "large", "uid": "2"}, "3Gi"),
        volume({"name": "b", "uid": "3"}, "2Gi"),
        volume({"name": "a", "uid": "4"}, "2Gi"),
    ]
    chosen = []
    while volumes:
        match = best_match(claim(), volumes, delayed=False)
        assert match is not None
        chosen.append(match.metadata.name)
        volumes.remove(match)
    assert chosen == ["a", "b", "large", "modes"]
