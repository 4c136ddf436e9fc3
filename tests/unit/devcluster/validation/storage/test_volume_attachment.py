"""Validation of VolumeAttachments."""

from __future__ import annotations

from kubeloop.kube.objects.resources import VOLUME_ATTACHMENTS
from support.validation_causes import create_causes


def test_inline_volume_spec_has_fewer_fields():
    inline = {"hostPath": {"path": "/a"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "x"}
    body = {"spec": {"attacher": "a.b", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}}
    where = "spec.source.inlineVolumeSpec"
    assert create_causes(VOLUME_ATTACHMENTS, body) == [
        f"{where}.csi: Required value: has to be specified in the context of inline volumes",
        f"{where}.storageClassName: Forbidden: may not be specified in the context of inline volumes",
    ]
