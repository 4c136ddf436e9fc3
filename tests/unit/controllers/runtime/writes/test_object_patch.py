"""Patches of an object that was read before."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.writes.object_patch import (
    changed_fields,
    merge_object,
    patch_object,
    patch_status,
    versioned_merge_patch,
)
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import Conflict
from kubeloop.kube.objects.api_types import ReplicaSetStatus
from kubeloop.kube.objects.resources import REPLICA_SETS

pytestmark = pytest.mark.virtual_time


async def test_patches_address_the_object_and_its_version(fake_apiserver):
    client = fake_apiserver.client
    fake_apiserver.add(REPLICA_SETS, "web")
    read = await client.get(REPLICA_SETS, "web", "ns")
    labels = {"metadata": {"labels": {"app": "web"}}}
    labelled = await patch_object(client, REPLICA_SETS, read, labels, PatchType.STRATEGIC)
    assert labelled.metadata.labels == {"app": "web"}
    for refused in (
        merge_object(client, REPLICA_SETS, read, spec={"replicas": 5}),
        patch_status(client, REPLICA_SETS, read, {"observedGeneration": 5}),
    ):
        with pytest.raises(Conflict):
            await refused
    scaled = await merge_object(client, REPLICA_SETS, labelled, spec={"replicas": 5})
    observed = await patch_status(client, REPLICA_SETS, scaled, {"observedGeneration": 7})
    assert (observed.spec.replicas, observed.status.observed_generation) == (5, 7)
    assert observed.metadata.labels == {"app": "web"}
    await patch_object(client, REPLICA_SETS, read, {"status": {"observedGeneration": 8}}, subresource="status")
    assert (await client.get(REPLICA_SETS, "web", "ns")).status.observed_generation == 8


def test_changed_fields_set_new_values_and_remove_zero_values():
    old, new = ReplicaSetStatus(replicas=3, ready_replicas=1), ReplicaSetStatus(replicas=3, available_replicas=2)
    assert changed_fields(old, new) == {"readyReplicas": None, "availableReplicas": 2}


def test_changed_fields_keep_fields_that_are_always_sent():
    assert changed_fields(ReplicaSetStatus(replicas=3), ReplicaSetStatus(), always={"replicas": 0}) == {"replicas": 0}


def test_versioned_merge_patch_adds_the_resource_version():
    patch = versioned_merge_patch("7", metadata={"annotations": {"a": "b"}}, status={"replicas": 1})
    assert patch == {"metadata": {"resourceVersion": "7", "annotations": {"a": "b"}}, "status": {"replicas": 1}}
    assert versioned_merge_patch("", status={}) == {"metadata": {}, "status": {}}
