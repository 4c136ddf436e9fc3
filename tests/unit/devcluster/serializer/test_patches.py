"""JSON patches and strategic merge patches: keyed lists, directives, orders."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.patches import PatchError, json_patch, merge_patch, remaining_patch, strategic_patch
from kubeloop.kube import schema

POD = schema.type_for("", "v1", "Pod")
CURRENT: dict[str, Any] = {
    "metadata": {"name": "p", "finalizers": ["a/x", "a/y"]},
    "spec": {"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "2"}]},
}


def containers(*patch: Any, **order: Any) -> list[tuple[str, str]]:
    spec = {"containers": list(patch), **{f"$setElementOrder/{name}": items for name, items in order.items()}}
    patched = strategic_patch(CURRENT, {"spec": spec}, POD)
    return [(item["name"], item.get("image", "")) for item in patched["spec"]["containers"]]


@pytest.mark.parametrize(("patch", "expected"), [
    pytest.param([{"name": "y", "image": "3"}], [("x", "1"), ("y", "3")], id="existing item"),
    pytest.param([{"name": "z", "image": "3"}], [("z", "3"), ("x", "1"), ("y", "2")], id="new item goes first"),
    pytest.param([{"name": "x", "$patch": "delete"}], [("y", "2")], id="$patch: delete"),
    pytest.param([{"$patch": "replace"}, {"name": "z"}], [("z", "")], id="$patch: replace")])  # fmt: skip
def test_strategic_patch_merges_lists_by_key(patch: list[Any], expected: list[tuple[str, str]]):
    assert containers(*patch) == expected


def test_set_element_order_sorts_the_list():
    order = [{"name": "z"}, {"name": "y"}, {"name": "x"}]
    assert containers({"name": "z"}, containers=order) == [("z", ""), ("y", "2"), ("x", "1")]


def test_patch_that_contradicts_its_order_is_rejected():
    with pytest.raises(PatchError, match="doesn't match \\$setElementOrder list"):
        containers({"name": "z"}, containers=[{"name": "x"}])


def test_remaining_patch_omits_ordered_lists():
    order = {"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "x"}], "contaners": []}
    assert remaining_patch({"spec": order, "new": order}, CURRENT) == {"spec": {"contaners": []}, "new": order}


def test_delete_from_primitive_list():
    patched = strategic_patch(CURRENT, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}}, POD)
    assert patched["metadata"]["finalizers"] == ["a/y"]


def test_patches_do_not_modify_the_object():
    before = repr(CURRENT)
    strategic_patch(CURRENT, {"spec": {"containers": [{"name": "x", "image": "9"}]}}, POD)
    merge_patch(CURRENT, {"metadata": {"name": None}})
    json_patch(CURRENT, [{"op": "remove", "path": "/spec/containers/0"}])
    assert repr(CURRENT) == before


def test_json_patch_limits_the_size_of_copies():
    copies = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]  # each doubles /a
    assert json_patch({"a": {}}, copies[:2]) == {"a": {"0": {}, "1": {"0": {}}}}
    with pytest.raises(PatchError, match="accumulated size increase of copy is 3408273, exceeding the limit 3145728"):
        json_patch({"a": {}}, copies)


def test_json_patch_is_applied_completely_or_not_at_all():
    with pytest.raises(PatchError):
        json_patch(CURRENT, [{"op": "remove", "path": "/metadata/name"}, {"op": "test", "path": "/spec/x", "value": 1}])


@pytest.mark.parametrize(("operation", "result"), [
    ({"op": "add", "path": "/b"}, {"a": [1, 2], "b": None}),
    ({"op": "replace", "path": "/b", "value": 1}, {"a": [1, 2], "b": 1}),
    ({"op": "add", "path": "x/b", "value": 1}, {"a": [1, 2], "b": 1}),
    ({"op": "add", "path": "/a/-1", "value": 3}, {"a": [1, 2, 3]}),
    ({"op": "remove", "path": "/a/-1"}, {"a": [1]}),
    ({"op": "test", "path": "/b", "value": None}, {"a": [1, 2]}),
    ({"op": "replace", "path": "", "value": {}}, {}),
    ({"op": "test", "path": "/a/0", "value": True}, None),
    ({"op": "replace", "path": "/a/2", "value": 1}, None),
    ({"op": "add", "path": "", "value": {}}, None),
    ({"op": "remove", "path": "/b"}, None),
    ({"op": "add", "path": "/a/_1", "value": 1}, None),
])  # fmt: skip
def test_json_patch_behaves_like_evanphx_json_patch(operation: dict[str, Any], result: Any):
    obj = {"a": [1, 2]}
    if result is None:
        with pytest.raises(PatchError):
            json_patch(obj, [operation])
    else:
        assert json_patch(obj, [operation]) == result
