"""The subresource scale of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.apiextensions.custom_scale import PathScale, replicas_paths
from kubeloop.devcluster.validation.common.error_list import ErrorList

JSON = dict[str, Any]
PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def gear(**fields: Any) -> JSON:
    return {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "g", "uid": "u"}, **fields}


def test_scale_has_the_values_at_its_paths():
    scale_of = PathScale(PATHS, {})
    obj = gear(spec={"replicas": 3}, status={"replicas": 2})
    scale = scale_of.read(obj)
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 3}, {"replicas": 2})
    scale["spec"]["replicas"] = 5
    assert scale_of.apply(obj, scale)["spec"] == {"replicas": 5}
    assert obj["spec"] == {"replicas": 3}


def test_scale_without_replicas_is_an_error():
    scale_of = PathScale(PATHS, {})
    with pytest.raises(StatusError, match=r"spec\.replicas.* does not exist"):
        scale_of.read(gear(), strict=True)
    with pytest.raises(StatusError, match=r"spec\.replicas.* cannot be empty"):
        scale_of.apply(gear(), scale_of.read_for_update(gear()))


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        pytest.param(-1, "should be a non-negative integer", id="negative"),
        pytest.param(2**31, "should be less than or equal to 2147483647", id="more than an int32"),
        pytest.param("3", "3 is of the type string, expected int64", id="text"),
    ],
)
def test_invalid_replicas_are_an_error(replicas: Any, error: str):
    causes = ErrorList()
    PathScale(PATHS, {}).validate(causes, gear(spec={"replicas": replicas}))
    (cause,) = causes
    assert cause["field"] == ".spec.replicas"
    assert error in cause["message"]


def test_replicas_paths_are_those_of_versions_with_scale():
    versions = [{"name": "v1", "subresources": {"scale": PATHS}}, {"name": "v2"}]
    assert replicas_paths({"spec": {"group": "example.com", "versions": versions}}) == {
        "example.com/v1": ("spec", "replicas"),
        "example.com/v2": None,
    }
