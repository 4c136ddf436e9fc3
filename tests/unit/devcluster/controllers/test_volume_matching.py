"""Match of a PersistentVolumeClaim with PersistentVolumes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.controllers.volume_matching import best_match, mismatch_message
from support.persistent_volumes import persistent_volume, persistent_volume_claim

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
        persistent_volume({"name": "large", "uid": "1", "labels": {"tier": "gold"}}, "5Gi"),
        persistent_volume({"name": "small", "uid": "2"}, "2Gi"),
        persistent_volume({"name": "tiny", "uid": "3"}, "1Mi"),
        persistent_volume({"name": "shared", "uid": "4"}, "1Gi", ("ReadWriteOnce", "ReadWriteMany")),
        persistent_volume({"name": "taken", "uid": "5"}, "1Gi", claimRef=OTHER_CLAIM),
        persistent_volume({"name": "terminating", "uid": "6", "deletionTimestamp": "now"}, "1Gi"),
    ]
    match = best_match(persistent_volume_claim(**spec), volumes, delayed=False)
    assert (match and match["metadata"]["name"]) == expected


def test_delayed_claim_matches_only_volume_with_its_claim_ref():
    claim_ref = {"namespace": "default", "name": "data", "uid": "c"}
    reserved = persistent_volume({"name": "reserved", "uid": "1"}, "5Gi", claimRef=claim_ref)
    assert best_match(persistent_volume_claim(), [persistent_volume()], delayed=True) is None
    assert best_match(persistent_volume_claim(), [persistent_volume(), reserved], delayed=True) is reserved


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
    assert mismatch_message(persistent_volume(), persistent_volume_claim(**spec)) == message
