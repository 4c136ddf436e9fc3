"""Patches of mutating policies: apply configurations and JSON patches."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.policies.mutation_patches import (
    InvalidResult,
    PatchFailed,
    apply_configuration,
    apply_json_patch,
)
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.languages.mutation_objects import CreatedObject
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS

JSON = dict[str, Any]
CONFIG_MAP = get_served_resource(CONFIG_MAPS)


def config_map(**data: str) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def json_patch(**operation: Any) -> list[CreatedObject]:
    """Return a patch with one operation. from_: its field `from`."""
    fields = {name.removesuffix("_"): value for name, value in operation.items()}
    return [CreatedObject("JSONPatch", fields)]


def test_configuration_is_merged_into_the_object():
    configuration = CreatedObject("Object", {"data": {"b": "2"}})
    assert apply_configuration(CONFIG_MAP, config_map(a="1"), configuration) == config_map(a="1", b="2")


def test_configuration_with_a_wrong_type_name_fails():
    configuration = CreatedObject("Object", {"metadata": CreatedObject("Object.spec", {})})
    with pytest.raises(PatchFailed, match=r"^type mismatch: "):
        apply_configuration(CONFIG_MAP, config_map(), configuration)


def test_configuration_with_a_value_of_another_type_fails():
    with pytest.raises(PatchFailed, match="failed to convert patch object to typed object"):
        apply_configuration(CONFIG_MAP, config_map(), CreatedObject("Object", {"data": "text"}))


def test_configuration_cannot_change_atomic_lists():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    container = CreatedObject("Object.spec.containers", {"name": "c", "command": ["ls"]})
    configuration = CreatedObject("Object", {"spec": CreatedObject("Object.spec", {"containers": [container]})})
    with pytest.raises(PatchFailed, match=r"may not mutate atomic arrays, maps or structs: .*command"):
        apply_configuration(get_served_resource(PODS), pod, configuration)


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        pytest.param({"op": "add", "path": "/data/b", "value": "2"}, {"a": "1", "b": "2"}, id="add"),
        pytest.param({"op": "remove", "path": "/data/a"}, {}, id="remove"),
        pytest.param({"op": "move", "from_": "/data/a", "path": "/data/b"}, {"b": "1"}, id="move"),
        pytest.param({"op": "test", "path": "/data/a", "value": "9"}, {"a": "1"}, id="failed test"),
    ],
)
def test_json_patch_operation(operation: JSON, data: JSON):
    assert apply_json_patch(CONFIG_MAP, config_map(a="1"), json_patch(**operation)).get("data", {}) == data


def test_json_patch_of_a_missing_path_fails():
    with pytest.raises(PatchFailed, match=r"^JSON Patch: "):
        apply_json_patch(CONFIG_MAP, config_map(), json_patch(op="remove", path="/data/a"))


@pytest.mark.parametrize(
    ("path", "value"),
    [pytest.param("/data", True, id="wrong type"), pytest.param("/other", "x", id="unknown field")],
)
def test_json_patch_with_an_invalid_result_is_an_error(path: str, value: Any):
    with pytest.raises(InvalidResult):
        apply_json_patch(CONFIG_MAP, config_map(), json_patch(op="add", path=path, value=value))
