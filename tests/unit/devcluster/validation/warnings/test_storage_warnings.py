"""Warnings about PersistentVolumes and PersistentVolumeClaims."""

from __future__ import annotations

from kubeloop.devcluster.validation.warnings.pod_warnings import (
    claim_warnings,
    class_annotation_warnings,
)


def test_storage_class_annotation_is_deprecated():
    key = "volume.beta.kubernetes.io/storage-class"
    assert class_annotation_warnings({"annotations": {key: "fast"}}) == [
        f'metadata.annotations[{key}]: deprecated since v1.8; use "storageClassName" attribute instead'
    ]
    assert class_annotation_warnings({"annotations": {"a": "b"}}) == []


def test_claim_warns_about_fractional_storage():
    amounts = {"storage": "1500m", "memory": "1m"}
    assert claim_warnings({"resources": {"requests": amounts, "limits": {"storage": "1Gi"}}}, "spec") == [
        'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'
    ]
