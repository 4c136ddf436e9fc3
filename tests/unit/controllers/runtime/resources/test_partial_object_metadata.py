"""Resources whose objects are decoded as metadata only."""

from __future__ import annotations

from kubeloop.controllers.runtime.resources.partial_object_metadata import metadata_only
from kubeloop.kube.objects.api_types import PartialObjectMetadata, Pod
from kubeloop.kube.objects.resources import PODS


def test_metadata_only_changes_type_and_keeps_path():
    resource = metadata_only(PODS)
    assert (resource.type, PODS.type) == (PartialObjectMetadata, Pod)
    assert resource.path(namespace="ns", name="a") == PODS.path(namespace="ns", name="a")
    assert resource.group_resource == "pods"
