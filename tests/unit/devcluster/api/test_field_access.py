"""Access to fields of objects by their path, and to their metadata."""

from __future__ import annotations

from kubeloop.devcluster.api.field_access import value_at, without_managed_fields


def test_copy_without_managed_fields_leaves_the_object_unchanged():
    obj = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {}}
    assert without_managed_fields(obj) == {"metadata": {"name": "a"}, "spec": {}}
    assert obj["metadata"]["managedFields"] == [{"manager": "m"}]


def test_value_at_a_path_is_none_below_an_unset_field():
    obj = {"spec": {"pool": {"name": "a"}, "node": None}}
    assert value_at(obj, ("spec", "pool", "name")) == "a"
    assert [value_at(obj, path) for path in (("spec", "node", "name"), ("status",), ("spec", "pool", "name", "x"))] == (
        [None] * 3
    )
