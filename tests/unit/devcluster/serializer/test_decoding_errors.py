"""Order and paths of decoding errors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.decoding import DecodeError, decode
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import pod


def test_type_mismatch_names_the_embedding_structs():
    with pytest.raises(DecodeError, match=r"field NFSVolumeSource.spec.volumes.VolumeSource.nfs.server of type string"):
        decode(PODS, pod(volumes=[{"name": "v", "nfs": {"server": 7}}]))


JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


def test_value_error_comes_before_a_type_mismatch():
    body = named_pod(nodeName=7, containers=[{"name": "c", "resources": {"limits": {"cpu": "abc"}}}])
    with pytest.raises(DecodeError, match="quantities must match the regular expression"):
        decode(PODS, body)
