"""Pods from templates."""

from __future__ import annotations

from kubeloop.controllers.runtime.pods.pod_template import generate_name, pod_from_template
from kubeloop.kube.objects.api_types import ObjectMeta, ReplicaSet


def test_generate_name_has_dash_if_valid():
    assert generate_name("web-1") == "web-1-"
    assert generate_name("n" * 253) == "n" * 253 + "-"
    assert generate_name("n" * 254) == "n" * 254
    assert generate_name("No_Pod") == "No_Pod"


def test_pod_from_template_has_owner_reference_and_labels():
    owner = ReplicaSet(
        api_version="apps/v1", kind="ReplicaSet", metadata=ObjectMeta(name="rs", namespace="ns", uid="u1")
    )
    body = pod_from_template(owner, {"metadata": {"name": "ignored", "labels": {"a": "1"}}, "spec": {"containers": []}})
    metadata = body["metadata"]
    reference = metadata["ownerReferences"][0]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("ReplicaSet", "u1", True)
    assert metadata["labels"] == {"a": "1"}
    assert metadata.keys() == {"generateName", "labels", "ownerReferences"}
    assert body["spec"] == {"containers": []}
