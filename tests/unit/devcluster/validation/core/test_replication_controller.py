"""Validation of ReplicationControllers."""

from __future__ import annotations

from kubeloop.kube.objects.resources import REPLICATION_CONTROLLERS
from support.validation_causes import create_causes


def test_replication_controller_name_length_is_in_bytes():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "a" * 254}, "spec": {"selector": {"a": "b"}, "template": template}}
    causes = create_causes(REPLICATION_CONTROLLERS, body)
    assert [cause.rpartition(": ")[2] for cause in causes] == ["must be no more than 253 bytes"]
