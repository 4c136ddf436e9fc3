"""The subresource scale of custom resources, by the paths that a definition declares.

Source: apiextensions-apiserver pkg/registry/customresource/etcd.go.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.handlers.subresources.scale import ReplicasPaths
from kubeloop.devcluster.languages import jsonpath
from kubeloop.devcluster.registry.scale import scale_document
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_MAX_INT32 = (1 << 31) - 1
_NOT_SET = -(1 << 31)


class PathScale:
    """The scale of one version. paths: subresources.scale of the version. replicas_paths: see replicas_paths()."""

    def __init__(self, paths: JSON, replicas_paths: ReplicasPaths) -> None:
        self._paths = paths
        self.replicas_paths = replicas_paths

    def read(self, obj: JSON, *, strict: bool = False) -> JSON:
        """Return the autoscaling/v1 Scale of an object. Raises StatusError 500 if `strict` and replicas are unset."""
        spec_path = self._paths["specReplicasPath"]
        try:
            replicas = _integer_at(obj, spec_path)
            status = _integer_at(obj, self._paths["statusReplicasPath"])
            selector = _text_at(obj, self._paths["labelSelectorPath"]) if self._paths.get("labelSelectorPath") else ""
        except _WrongType as error:
            raise errors.internal(str(error)) from error
        if replicas is None and strict:
            message = f"Internal error occurred: the spec replicas field {quoted(spec_path)} does not exist"
            raise errors.internal(message, reason="InternalError", details={"causes": [{"message": message[25:]}]})
        return scale_document(obj, replicas, status, selector)

    def read_for_update(self, obj: JSON) -> JSON:
        """Return the Scale for an update; replicas that are not set become a value no client sends."""
        scale = self.read(obj)
        if _integer_at(obj, self._paths["specReplicasPath"]) is None:
            scale["spec"] = {"replicas": _NOT_SET}
        return scale

    def apply(self, obj: JSON, scale: JSON) -> JSON:
        """Return `obj` with the replicas of `scale`, whose resourceVersion is a precondition. Raises StatusError."""
        if (scale.get("spec") or {}).get("replicas") == _NOT_SET:
            raise errors.bad_request(
                f"the spec replicas field {quoted(self._paths['specReplicasPath'])} cannot be empty"
            )
        result = deepcopy(obj)
        parent: JSON = result
        *parents, last = jsonpath.field_names(self._paths["specReplicasPath"])
        for name in parents:
            parent = parent.setdefault(name, {})
        parent[last] = (scale.get("spec") or {}).get("replicas", 0)
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version:
            result["metadata"]["resourceVersion"] = version
        return result

    def validate(self, causes: ErrorList, obj: JSON, *, only_status: bool = False) -> None:
        """Add the errors of replicas and selector."""
        paths = [self._paths["statusReplicasPath"]]
        if not only_status:
            paths.insert(0, self._paths["specReplicasPath"])
        for path in paths:
            try:
                replicas = _integer_at(obj, path)
            except _WrongType as error:
                causes.invalid(path, 0, str(error))
                continue
            if replicas is not None and replicas < 0:
                causes.invalid(path, replicas, "should be a non-negative integer")
            elif replicas is not None and replicas > _MAX_INT32:
                causes.invalid(path, replicas, f"should be less than or equal to {_MAX_INT32}")
        if selector := self._paths.get("labelSelectorPath"):
            try:
                _text_at(obj, selector)
            except _WrongType as error:
                causes.invalid(selector, "", str(error))


def replicas_paths(definition: JSON) -> ReplicasPaths:
    """Return the field path of replicas by apiVersion; None for versions without scale."""
    paths: dict[str, tuple[str, ...] | None] = {}
    for entry in definition["spec"]["versions"]:
        scale = (entry.get("subresources") or {}).get("scale")
        path = tuple(jsonpath.field_names(scale["specReplicasPath"])) if scale else None
        paths[f"{definition['spec']['group']}/{entry['name']}"] = path
    return paths


class _WrongType(Exception):
    """The value at a path has the wrong type."""


def _nested(obj: JSON, path: str) -> Any:
    value: Any = obj
    for name in jsonpath.field_names(path):
        if not isinstance(value, dict):
            actual, expected = _go_type(value), "map[string]interface{}"
            raise _WrongType(f"{path} accessor error: {value} is of the type {actual}, expected {expected}")
        if name not in value:
            return None
        value = value[name]
    return value


def _integer_at(obj: JSON, path: str) -> int | None:
    value = _nested(obj, path)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _WrongType(f"{path} accessor error: {value} is of the type {_go_type(value)}, expected int64")


def _text_at(obj: JSON, path: str) -> str:
    value = _nested(obj, path)
    if value is None or isinstance(value, str):
        return value or ""
    raise _WrongType(f"{path} accessor error: {value} is of the type {_go_type(value)}, expected string")


def _go_type(value: Any) -> str:
    names = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}" if isinstance(value, dict) else "<nil>")
