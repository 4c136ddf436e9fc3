"""OpenAPI documents of what the server serves: /openapi/v3 with one document per group version, and /openapi/v2.

Generated from the type table and the registry when somebody first asks, then kept. They hold what clients act on: types,
required fields, list and patch semantics, and the operations with their parameters; no prose, so `kubectl explain`
shows fields and types without descriptions. Source of the form: kube-openapi and apiserver pkg/endpoints/openapi.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from kubeloop.devcluster.discovery import subresource_kind, subresource_verbs
from kubeloop.devcluster.registry import SERVED, VERSIONS, Served, served
from kubeloop.kube import schema

JSON = dict[str, Any]
JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PACKAGES = {
    "meta/v1": _META,
    "resource": "io.k8s.apimachinery.pkg.api.resource",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "runtime": "io.k8s.apimachinery.pkg.runtime",
}
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_BODIES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_SCALARS: dict[str, JSON] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "byte": {"type": "integer"},
}
_NAMED_V3: dict[str, JSON] = {
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "time": {"type": "string", "format": "date-time"},
    "microTime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "fieldsV1": {"type": "object"},
    "raw": {"type": "object"},
}
_NAMED_V2 = {**_NAMED_V3, "quantity": {"type": "string"}, "intOrString": {"type": "string", "format": "int-or-string"}}


def schema_name(type_name: str) -> str:
    """ "core/v1.Pod" -> "io.k8s.api.core.v1.Pod"."""
    package, _, name = type_name.rpartition(".")
    return f"{_PACKAGES.get(package) or 'io.k8s.api.' + package.replace('/', '.')}.{name}"


class _Schemas:
    """The schemas that a document refers to, collected as references are made."""

    def __init__(self, prefix: str, *, v2: bool) -> None:
        self._prefix = prefix
        self._v2 = v2
        self.definitions: dict[str, JSON] = {}

    def reference(self, type_name: str) -> JSON:
        """A $ref; the schema behind it becomes part of the document."""
        name = schema_name(type_name)
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self._definition(type_name)
        return {"$ref": f"{self._prefix}{name}"}

    def _definition(self, type_name: str) -> JSON:
        if type_name in schema.SCALARS:
            return (_NAMED_V2 if self._v2 else _NAMED_V3)[schema.SCALARS[type_name]]
        struct = schema.type_named(type_name)
        assert struct is not None, type_name
        definition: JSON = {"type": "object"}
        if struct.json:
            definition["properties"] = {name: self._property(field) for name, field in struct.json.items()}
        required = [name for name, field in struct.json.items() if field.required]
        if required:
            definition["required"] = required
        kinds = _kinds_of().get(type_name)
        if kinds:
            definition["x-kubernetes-group-version-kind"] = kinds
        if struct.atomic:
            definition["x-kubernetes-map-type"] = "atomic"
        return definition

    def _property(self, field: schema.Field) -> JSON:
        result = self._type(field.type)
        if field.default is not None and not str(field.default).startswith("ref("):
            result["default"] = field.default
        for name, value in (
            ("x-kubernetes-list-type", field.list_type),
            ("x-kubernetes-list-map-keys", list(field.list_map_keys)),
            ("x-kubernetes-map-type", field.map_type or field.struct_type),
            ("x-kubernetes-patch-strategy", ",".join(field.patch_strategy)),
            ("x-kubernetes-patch-merge-key", field.patch_merge_key),
        ):
            if value:
                result[name] = value
        return result

    def _type(self, ref: schema.TypeRef) -> JSON:
        if ref.kind == "list" and ref.element is not None:
            return {"type": "array", "items": self._type(ref.element)}
        if ref.kind == "map" and ref.element is not None:
            return {"type": "object", "additionalProperties": self._type(ref.element)}
        if ref.kind in _SCALARS:
            return dict(_SCALARS[ref.kind])
        # beside a $ref nothing else counts in OpenAPI 3.0, so it stands in an allOf
        found = self.reference(ref.named)
        return found if self._v2 else {"allOf": [found]}


@cache
def _kinds_of() -> dict[str, list[JSON]]:
    """The group, version and kind under which each type appears."""
    kinds: dict[str, list[JSON]] = {}
    for (group, version, kind), name in schema.kinds().items():
        if name.partition("/")[0] != "meta":
            kinds.setdefault(name, []).append({"group": group, "kind": kind, "version": version})
    return kinds


# --- operations -------------------------------------------------------------------------------------------------------


def _query(name: str, kind: str, *, v2: bool) -> JSON:
    parameter: JSON = {"name": name, "in": "query"}
    return {**parameter, "type": kind} if v2 else {**parameter, "schema": {"type": kind}}


def _parameters(action: str, *, v2: bool) -> list[JSON]:
    writes = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")]
    lists = [
        ("allowWatchBookmarks", "boolean"), ("continue", "string"), ("fieldSelector", "string"),
        ("labelSelector", "string"), ("limit", "integer"), ("resourceVersion", "string"),
        ("resourceVersionMatch", "string"), ("sendInitialEvents", "boolean"), ("timeoutSeconds", "integer"),
        ("watch", "boolean"),
    ]  # fmt: skip
    deletes = [("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("orphanDependents", "boolean"),
               ("propagationPolicy", "string")]  # fmt: skip
    by_action = {
        "post": writes,
        "put": writes,
        "patch": [*writes, ("force", "boolean")],
        "list": lists,
        "delete": deletes,
        "deletecollection": [*deletes, *lists],
    }
    return [_query(name, kind, v2=v2) for name, kind in by_action.get(action, [])]


_ACTION_METHODS = {
    "get": "get", "list": "get", "post": "post", "put": "put", "patch": "patch", "delete": "delete",
    "deletecollection": "delete",
}  # fmt: skip
_VERB_ACTIONS = {"create": "post", "update": "put"}


def _operation(schemas: _Schemas, action: str, kind: JSON, type_name: str, *, v2: bool) -> JSON:
    operation: JSON = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": _parameters(action, v2=v2),
    }
    body = {"post": type_name, "put": type_name, "patch": "meta/v1.Patch", "delete": "meta/v1.DeleteOptions"}.get(
        action
    )
    media = _PATCHES if action == "patch" else _BODIES
    if v2:
        operation["consumes"], operation["produces"] = list(media), list(_BODIES)
        if body is not None:
            content = {"type": "object"} if action == "patch" else schemas.reference(body)
            operation["parameters"].append({"name": "body", "in": "body", "schema": content})
        operation["responses"] = {"200": {"description": "OK", "schema": schemas.reference(type_name)}}
        return operation
    if body is not None:
        content = {"type": "object"} if action == "patch" else schemas.reference(body)
        operation["requestBody"] = {"content": {each: {"schema": content} for each in media}}
    answer = {each: {"schema": schemas.reference(type_name)} for each in _BODIES}
    operation["responses"] = {"200": {"description": "OK", "content": answer}}
    return operation


def _path_parameters(path: str, *, v2: bool) -> list[JSON]:
    found = []
    for name in ("name", "namespace"):
        if f"{{{name}}}" in path:
            parameter: JSON = {"name": name, "in": "path", "required": True}
            found.append({**parameter, "type": "string"} if v2 else {**parameter, "schema": {"type": "string"}})
    return found


def _endpoints(each: Served) -> Iterator[tuple[str, str, str, tuple[str, str, str]]]:
    """(path, suffix, action, (group, version, kind)) of all operations of a resource and its subresources."""
    resource = each.resource
    own = (resource.group, resource.version, resource.kind)
    namespace = "{namespace}" if resource.namespaced else ""
    collection = resource.path(namespace)
    for verb, action in (("list", "list"), ("create", "post"), ("deletecollection", "deletecollection")):
        if verb in each.verbs:
            yield collection, "", action, own
    if resource.namespaced and "list" in each.verbs:
        yield resource.path(), "", "list", own
    for verb in ("get", "update", "patch", "delete"):
        if verb in each.verbs:
            yield resource.path(namespace, "{name}"), "", _VERB_ACTIONS.get(verb, verb), own
    for subresource in resource.subresources:
        group, version, kind = subresource_kind(each, subresource)
        of = (group or resource.group, version or resource.version, kind) if (group or version) else (*own[:2], kind)
        for verb in subresource_verbs(subresource):
            action = _VERB_ACTIONS.get(verb, verb)
            if action in _ACTION_METHODS:
                yield resource.path(namespace, "{name}", subresource), subresource, action, of


def _type_name(kind: tuple[str, str, str], fallback: tuple[str, str, str]) -> str | None:
    for each in (kind, fallback):
        struct = schema.type_for(*each)
        if struct is not None:
            return struct.name
    return None


def _paths(schemas: _Schemas, resources: list[Served], *, v2: bool) -> JSON:
    paths: JSON = {}
    for each in resources:
        resource = each.resource
        own = (resource.group, resource.version, resource.kind)
        for path, _, action, of in _endpoints(each):
            shown = (*own[:2], resource.kind + "List") if action == "list" else of
            type_name = _type_name(shown, own)
            if type_name is None:
                continue
            group, version, kind = of
            item = paths.setdefault(path, {"parameters": _path_parameters(path, v2=v2)})
            told = {"group": group, "kind": kind, "version": version}
            item[_ACTION_METHODS[action]] = _operation(schemas, action, told, type_name, v2=v2)
        if schema.type_for(*own) is not None:
            schemas.reference(_type_name(own, own) or "")
    return paths


_INFO = {"title": "Kubernetes", "version": "v1.36.0"}


def _group_path(group: str) -> str:
    return f"apis/{group}/{VERSIONS[group]}" if group else f"api/{VERSIONS[group]}"


@cache
def _group_document(group: str) -> bytes:
    schemas = _Schemas("#/components/schemas/", v2=False)
    resources = [served(each) for each in SERVED if each.group == group]
    document = {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": _paths(schemas, resources, v2=False),
        "components": {"schemas": schemas.definitions},
    }
    return msgspec.json.encode(document)


@cache
def _v2_document() -> bytes:
    schemas = _Schemas("#/definitions/", v2=True)
    document = {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(schemas, [served(each) for each in SERVED], v2=True),
        "definitions": schemas.definitions,
    }
    return msgspec.json.encode(document)


@cache
def _index() -> bytes:
    paths = {}
    for group in VERSIONS:
        # the name stands for the content, which is fixed for a release: no need to build it for its hash
        digest = hashlib.sha512(f"{_INFO['version']}/{_group_path(group)}".encode()).hexdigest().upper()
        path = _group_path(group)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return msgspec.json.encode({"paths": paths})


def openapi(path: str, accept: str) -> tuple[bytes, str] | None:
    """Body and content type of a document under /openapi, None for a path that is none.

    `accept` is not looked at: documents come as JSON, which kubectl and the client libraries take.
    """
    del accept
    if path == "/openapi/v2":
        return _v2_document(), JSON_TYPE
    if path == "/openapi/v3":
        return _index(), TEXT_TYPE
    for group in VERSIONS:
        if path == f"/openapi/v3/{_group_path(group)}":
            return _group_document(group), JSON_TYPE
    return None
