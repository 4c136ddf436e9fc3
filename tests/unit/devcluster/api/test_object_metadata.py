"""Access to the metadata of objects."""

from __future__ import annotations

from kubeloop.devcluster.api.object_metadata import without_managed_fields


def test_copy_without_managed_fields_leaves_the_object_unchanged():
    obj = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {}}
    assert without_managed_fields(obj) == {"metadata": {"name": "a"}, "spec": {}}
    assert obj["metadata"]["managedFields"] == [{"manager": "m"}]
