"""Patches: their bodies and preconditions."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.api.patches import json_patch, merge_from, merge_patch, strategic_merge_patch
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import ObjectMeta
from support.controllers.sites import Site, SiteSpec

OBJ: dict[str, Any] = {
    "metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
    "spec": {"replicas": 1, "text": "x"},
}


def test_merge_patch_pins_the_uid():
    patch = merge_patch({"spec": {"replicas": 2}})
    assert patch.type is PatchType.MERGE
    assert patch.body_for(OBJ) == {"metadata": {"uid": "1"}, "spec": {"replicas": 2}}
    assert strategic_merge_patch({}).type is PatchType.STRATEGIC
    assert json_patch([{"op": "remove", "path": "/spec"}]).body_for(OBJ) == [{"op": "remove", "path": "/spec"}]


def test_merge_from_contains_changed_fields_only():
    new = {
        "metadata": {**OBJ["metadata"], "labels": {"a": "1", "c": "3"}},
        "spec": {"replicas": 2, "text": "x", "list": [1]},
    }
    expected = {"metadata": {"labels": {"b": None, "c": "3"}, "uid": "1"}, "spec": {"replicas": 2, "list": [1]}}
    assert merge_from(OBJ).body_for(new) == expected


def test_merge_from_with_optimistic_lock_pins_the_version():
    metadata = ObjectMeta(name="a", uid="1", resource_version="7")
    old, new = Site(metadata=metadata), Site(metadata=metadata, spec=SiteSpec(replicas=3))
    body = merge_from(old, optimistic_lock=True).body_for(new)
    assert body == {"metadata": {"uid": "1", "resourceVersion": "7"}, "spec": {"replicas": 3}}
