"""Strategic merge patches: lists with keys, directives and orders."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.patches import PatchError, json_patch, merge_patch, remaining_patch, strategic_patch
from kubeloop.kube import schema

POD = schema.type_for("", "v1", "Pod")
LIVE: dict[str, Any] = {
    "metadata": {"name": "p", "finalizers": ["a/x", "a/y"]},
    "spec": {"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "2"}]},
}


def containers(*patch: Any, **order: Any) -> list[tuple[str, str]]:
    spec = {"containers": list(patch), **{f"$setElementOrder/{name}": each for name, each in order.items()}}
    patched = strategic_patch(LIVE, {"spec": spec}, POD)
    return [(each["name"], each.get("image", "")) for each in patched["spec"]["containers"]]


@pytest.mark.parametrize(("patch", "expected"), [
    pytest.param([{"name": "y", "image": "3"}], [("x", "1"), ("y", "3")], id="an item is found by its key"),
    pytest.param([{"name": "z", "image": "3"}], [("z", "3"), ("x", "1"), ("y", "2")], id="a new one goes first"),
    pytest.param([{"name": "x", "$patch": "delete"}], [("y", "2")], id="$patch: delete"),
    pytest.param([{"$patch": "replace"}, {"name": "z"}], [("z", "")], id="$patch: replace")])  # fmt: skip
def test_a_list_merges_by_its_key(patch: list[Any], expected: list[tuple[str, str]]):
    assert containers(*patch) == expected


def test_the_order_of_elements_is_the_patchs():
    order = [{"name": "z"}, {"name": "y"}, {"name": "x"}]
    assert containers({"name": "z"}, containers=order) == [("z", ""), ("y", "2"), ("x", "1")]


def test_a_patch_that_contradicts_its_own_order_is_refused():
    with pytest.raises(PatchError, match="doesn't match \\$setElementOrder list"):
        containers({"name": "z"}, containers=[{"name": "x"}])


def test_ordered_lists_are_not_left_of_a_patch_that_is_merged():
    """Messages about a merged patch show the rest of it, as kube-apiserver's do."""
    order = {"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "x"}], "contaners": []}
    assert remaining_patch({"spec": order, "new": order}, LIVE) == {"spec": {"contaners": []}, "new": order}


def test_members_of_a_primitive_list_are_deleted_by_name():
    patched = strategic_patch(LIVE, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}}, POD)
    assert patched["metadata"]["finalizers"] == ["a/y"]


def test_patches_leave_the_live_object_alone():
    before = repr(LIVE)
    strategic_patch(LIVE, {"spec": {"containers": [{"name": "x", "image": "9"}]}}, POD)
    merge_patch(LIVE, {"metadata": {"name": None}})
    json_patch(LIVE, [{"op": "remove", "path": "/spec/containers/0"}])
    assert repr(LIVE) == before


def test_a_json_patch_is_applied_whole_or_not_at_all():
    with pytest.raises(PatchError):
        json_patch(LIVE, [{"op": "remove", "path": "/metadata/name"}, {"op": "test", "path": "/spec/x", "value": 1}])
