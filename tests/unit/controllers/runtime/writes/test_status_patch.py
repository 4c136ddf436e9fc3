"""Merge patches from two versions of a status."""

from __future__ import annotations

from kubeloop.controllers.runtime.writes.status_patch import changed_fields, versioned_merge_patch
from kubeloop.kube.objects.api_types import ReplicaSetStatus


def test_changed_fields_set_new_values_and_remove_zero_values():
    old, new = ReplicaSetStatus(replicas=3, ready_replicas=1), ReplicaSetStatus(replicas=3, available_replicas=2)
    assert changed_fields(old, new) == {"readyReplicas": None, "availableReplicas": 2}


def test_changed_fields_keep_fields_that_are_always_sent():
    assert changed_fields(ReplicaSetStatus(replicas=3), ReplicaSetStatus(), always={"replicas": 0}) == {"replicas": 0}


def test_versioned_merge_patch_adds_the_resource_version():
    patch = versioned_merge_patch("7", metadata={"annotations": {"a": "b"}}, status={"replicas": 1})
    assert patch == {"metadata": {"resourceVersion": "7", "annotations": {"a": "b"}}, "status": {"replicas": 1}}
    assert versioned_merge_patch("", status={}) == {"metadata": {}, "status": {}}
