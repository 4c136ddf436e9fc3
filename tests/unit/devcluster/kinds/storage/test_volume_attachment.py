"""Validation of VolumeAttachments."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.storage.volume_attachment import (
    STRATEGY,
    validate_volume_attachment,
    validate_volume_attachment_status_update,
)
from kubeloop.kube.objects.resources import VOLUME_ATTACHMENTS
from support.objects.validation_causes import create_causes, validator_causes


def test_inline_volume_spec_has_fewer_fields():
    inline = {"hostPath": {"path": "/a"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "x"}
    body = {"spec": {"attacher": "a.b", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}}
    where = "spec.source.inlineVolumeSpec"
    assert create_causes(VOLUME_ATTACHMENTS, body) == [
        f"{where}.csi: Required value: has to be specified in the context of inline volumes",
        f"{where}.storageClassName: Forbidden: may not be specified in the context of inline volumes",
    ]


def attachment(attacher: str = "a.b", **source: Any) -> dict[str, Any]:
    return {"spec": {"attacher": attacher, "nodeName": "n", "source": source}}


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param(attachment(persistentVolumeName="v"), [], id="valid"),
        pytest.param(
            attachment(),
            ["spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"],
            id="no source",
        ),
        pytest.param(
            attachment(persistentVolumeName="v", inlineVolumeSpec={}),
            ["spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"],
            id="two sources",
        ),
        pytest.param(attachment("", persistentVolumeName="v"), ["spec.attacher: Required value"], id="no attacher"),
    ],
)
def test_volume_attachment_causes(obj: dict[str, Any], causes: list[str]) -> None:
    assert validator_causes(validate_volume_attachment, obj) == causes


def test_volume_attachment_spec_is_immutable() -> None:
    new, old = (attachment(persistentVolumeName=name) for name in "wv")
    [cause] = validator_causes(STRATEGY.validate_update, new, old)
    assert cause.startswith('spec: Invalid value: {"Attacher":"a.b","Source":{"PersistentVolumeName":"w"')
    assert cause.endswith(": field is immutable")


def test_attachment_error_code_is_not_negative() -> None:
    status = {"attachError": {"errorCode": -1, "message": "m" * 1025}}
    assert validator_causes(validate_volume_attachment_status_update, {"status": status}, {}) == [
        "status.attachError.message: Too long: may not be more than 262144 bytes",
        "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ]
