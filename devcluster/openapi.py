"""The OpenAPI documents of the server: /openapi/v3 with one document per group version, and /openapi/v2 with all.

Generated from kube.schema and the registry on first use and kept as bytes. They hold what clients act on: paths with
their operations, parameters and kinds, types with their fields, merge keys and list types. Descriptions, for
`kubectl explain`, are those that the installed client library has (see descriptions). Source of the forms:
k8s.io/kube-openapi.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha512
from importlib import metadata, resources
from typing import Any

import msgspec

from kubeloop.devcluster.descriptions import field_descriptions
from kubeloop.devcluster.discovery import subresource_kind, subresource_verbs
from kubeloop.devcluster.openapi_protobuf import CONTENT_TYPE as PROTOBUF_TYPE
from kubeloop.devcluster.openapi_protobuf import encode
from kubeloop.devcluster.paths import KEY_SET_TYPE
from kubeloop.devcluster.registry import Served, api_groups, group_versions, of_version
from kubeloop.devcluster.request import JSON_TYPE
from kubeloop.kube import schema
from kubeloop.kube.schema import Field, StructType, TypeRef

JSON = dict[str, Any]

_INDEX_TYPE = "text/plain; charset=utf-8"
_PROTOBUF_ACCEPTED = (PROTOBUF_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")

_PACKAGES = {
    "apiextensions/v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apiregistration/v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "resource": "io.k8s.apimachinery.pkg.api.resource",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "runtime": "io.k8s.apimachinery.pkg.runtime",
}
_PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_PLAIN: dict[str, JSON] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "byte": {"type": "integer", "format": "byte"},
    "bytes": {"type": "string", "format": "byte"},
}
_ZERO: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_SCALARS_V2: dict[str, JSON] = {
    "quantity": {"type": "string"},
    "intOrString": {"type": "string", "format": "int-or-string"},
    "time": {"type": "string", "format": "date-time"},
    "microTime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "fieldsV1": {"type": "object"},
    "raw": {"type": "object"},
    "any": {},
}
_SCALARS_V3 = _SCALARS_V2 | {
    "time": {**_SCALARS_V2["time"], "nullable": True},  # a time that is not set is null where it is not left out
    "microTime": {**_SCALARS_V2["microTime"], "nullable": True},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
}

_LIST_PARAMETERS = {
    "allowWatchBookmarks": "boolean",
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
_WRITE_PARAMETERS = {"dryRun": "string", "fieldManager": "string", "fieldValidation": "string"}
_DELETE_PARAMETERS = {
    "dryRun": "string",
    "gracePeriodSeconds": "integer",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
    "orphanDependents": "boolean",
    "propagationPolicy": "string",
}
_PARAMETERS: dict[str, dict[str, str]] = {
    "get": {},
    "list": _LIST_PARAMETERS,
    "create": _WRITE_PARAMETERS,
    "update": _WRITE_PARAMETERS,
    "patch": _WRITE_PARAMETERS | {"force": "boolean"},
    "delete": _DELETE_PARAMETERS,
    "deletecollection": {name: type_ for name, type_ in _LIST_PARAMETERS.items() if name != "watch"}
    | _DELETE_PARAMETERS,
}
_METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
_ACTIONS = {"create": "post", "update": "put"}
"""What x-kubernetes-action says where it is not the verb."""


def _schema_name(type_name: str) -> str:
    """ "io.k8s.api.core.v1.PodSpec" of "core/v1.PodSpec"."""
    package, _, name = type_name.rpartition(".")
    prefix = _PACKAGES.get(package) or "io.k8s.api." + package.replace("/", ".")
    return f"{prefix}.{name}"


@cache
def _kinds_of_type() -> dict[str, list[JSON]]:
    result: dict[str, list[JSON]] = {}
    for (group, version, kind), name in schema.kinds().items():
        result.setdefault(name, []).append({"group": group, "kind": kind, "version": version})
    groups = [{"group": group, "kind": "DeleteOptions", "version": version} for group, version in group_versions()]
    return result | {
        "meta/v1.DeleteOptions": groups,
        "meta/v1.Status": [{"group": "", "kind": "Status", "version": "v1"}],
    }


# --- types ------------------------------------------------------------------------------------------------------------


class Schemas:
    """The types that a document refers to, in the form of OpenAPI 2 or 3; grows as references are made."""

    def __init__(self, *, v3: bool) -> None:
        self._v3 = v3
        self._scalars = _SCALARS_V3 if v3 else _SCALARS_V2
        self._prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self.schemas: dict[str, JSON] = {}
        self._custom: dict[tuple[str, str, str], str] = {}

    def define(self, group: str, version: str, kind: str, value: JSON) -> None:
        """A type that is none of Kubernetes' own, by its schema."""
        name = ".".join((*reversed(group.split(".")), version, kind))
        self._custom[group, version, kind] = name
        self.schemas[name] = value

    def type_of(self, group: str, version: str, kind: str) -> str:
        """The name of a kind's type, for reference(); "" if it has none."""
        return self._custom.get((group, version, kind)) or _kind_type(group, version, kind)

    def reference(self, type_name: str) -> JSON:
        if type_name in self.schemas:
            return {"$ref": self._prefix + type_name}
        name = _schema_name(type_name)
        if name not in self.schemas:
            struct = schema.type_named(type_name)
            if struct is None:
                raise KeyError(type_name)
            self.schemas[name] = {}  # before its fields: types may contain themselves
            self.schemas[name] = self._struct(struct)
        return {"$ref": self._prefix + name}

    def patch(self) -> JSON:
        self.schemas[_PATCH] = {"type": "object"}
        return {"$ref": self._prefix + _PATCH}

    def _scalar(self, ref: TypeRef) -> JSON:
        name = _schema_name(ref.named)
        self.schemas.setdefault(name, self._scalars[ref.kind])
        return {"$ref": self._prefix + name}

    def _named(self, reference: JSON, default: Any = None) -> JSON:
        """A reference as a property: in OpenAPI 3 nothing may stand beside $ref, hence allOf."""
        if not self._v3:
            return dict(reference)
        return {"allOf": [reference]} if default is None else {"allOf": [reference], "default": default}

    def _value(self, ref: TypeRef, *, nested: bool = False) -> JSON:
        """`nested`: an element of a list or map, which is there or not and so has a zero value as its default."""
        if ref.kind == "struct":
            return self._named(self.reference(ref.named), None if ref.pointer or not nested else {})
        if ref.kind in self._scalars:
            return self._named(self._scalar(ref))
        if ref.kind == "list" and ref.element is not None:
            return {"type": "array", "items": self._value(ref.element, nested=True)}
        if ref.kind == "map" and ref.element is not None:
            return {"type": "object", "additionalProperties": self._value(ref.element, nested=True)}
        value = dict(_PLAIN[ref.kind])
        if ref.enum:
            value["enum"] = sorted(ref.enum)
        if nested and self._v3 and not ref.pointer:
            value["default"] = _ZERO.get(ref.kind, "")
        return value

    def _property(self, field: Field) -> JSON:
        value = self._value(field.type)
        if self._v3 and not (field.omit_empty or field.omit_zero) and _may_be_null(field.type):
            value["nullable"] = True
        kind = field.type.kind
        if field.default is not None:
            value["default"] = field.default
        elif self._v3 and not field.type.pointer:
            if kind == "struct":
                value["default"] = {}
            elif field.required and kind in _ZERO and not field.type.enum:
                value["default"] = _ZERO[kind]
        if field.patch_strategy:
            value["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategy)
        if field.patch_merge_key:
            value["x-kubernetes-patch-merge-key"] = field.patch_merge_key
        if field.list_type:
            value["x-kubernetes-list-type"] = field.list_type
        if field.list_map_keys:
            value["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
        if atomic := field.map_type or field.struct_type:
            value["x-kubernetes-map-type"] = atomic
        return value

    def _struct(self, struct: StructType) -> JSON:
        result: JSON = {"type": "object"}
        properties = {name: self._property(field) for name, field in sorted(struct.json.items())}
        if self._v3:
            for name, text in field_descriptions(struct.name).items():
                if name in properties:
                    properties[name] = {"description": text, **properties[name]}
        if required := sorted(name for name, field in struct.json.items() if field.required):
            result["required"] = required
        if properties:
            result["properties"] = properties
        if kinds := _kinds_of_type().get(struct.name):
            result["x-kubernetes-group-version-kind"] = kinds
        if struct.atomic:
            result["x-kubernetes-map-type"] = "atomic"
        return result


def _may_be_null(ref: TypeRef) -> bool:
    """Has its Go type a nil? Where such a field is not left out when empty, it is null in JSON."""
    return ref.pointer or ref.kind in ("list", "map", "bytes")


# --- paths ------------------------------------------------------------------------------------------------------------


def _kind_type(group: str, version: str, kind: str) -> str:
    """The Go type of a kind; options of pods/exec and their like are answered as plain text and have none."""
    struct = schema.type_for(group, version, kind)
    return struct.name if struct is not None else ""


class Paths:
    """Paths of the resources of a group."""

    def __init__(self, schemas: Schemas, *, v3: bool) -> None:
        self._schemas, self._v3 = schemas, v3
        self.paths: dict[str, JSON] = {}

    def add(self, each: Served) -> None:
        resource = each.resource
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        collection = f"{root}/{resource.plural}"
        if resource.namespaced:
            if "list" in each.verbs:
                self._item(collection, each, ("list",), scope="ForAllNamespaces")
            collection = f"{root}/namespaces/{{namespace}}/{resource.plural}"
        self._item(collection, each, ("list", "create", "deletecollection"))
        self._item(f"{collection}/{{name}}", each, ("get", "update", "patch", "delete"))
        for subresource in resource.subresources:
            self._item(f"{collection}/{{name}}/{subresource}", each, subresource_verbs(subresource), subresource)

    def _item(self, path: str, each: Served, verbs: tuple[str, ...], subresource: str = "", *, scope: str = "") -> None:
        allowed = verbs if subresource else tuple(verb for verb in verbs if verb in each.verbs)
        if not allowed:
            return
        item: JSON = {
            _METHODS[verb]: self._operation(each, verb, subresource, scope) for verb in allowed if verb in _METHODS
        }
        item["parameters"] = [
            self._parameter(name, "path", "string", required=True)
            for name in ("namespace", "name")
            if f"{{{name}}}" in path
        ]
        self.paths[path] = item

    def _parameter(self, name: str, place: str, type_: str, *, required: bool = False) -> JSON:
        parameter: JSON = {"name": name, "in": place}
        if required:
            parameter["required"] = True
        type_schema = {"type": type_, "uniqueItems": True}
        return parameter | ({"schema": type_schema} if self._v3 else type_schema)

    def _operation(self, each: Served, verb: str, subresource: str, scope: str) -> JSON:
        resource = each.resource
        group, version, kind = subresource_kind(each, subresource) if subresource else ("", "", "")
        group, version, kind = group or resource.group, version or resource.version, kind or resource.kind
        type_name = self._schemas.type_of(group, version, kind)
        group_name = _title(resource.group.partition(".")[0] or "core")
        tag = f"{group_name[0].lower()}{group_name[1:]}_{resource.version}"
        shown = _ACTIONS.get(verb, verb)
        namespaced = "Namespaced" if resource.namespaced and not scope else ""
        words = {"update": "replace", "get": "read", "deletecollection": "deleteCollection"}.get(verb, verb)
        identifier = (
            f"{words}{group_name}{_title(resource.version)}{namespaced}{resource.kind}{_title(subresource)}{scope}"
        )
        operation: JSON = {
            "tags": [tag],
            "operationId": identifier,
            "x-kubernetes-action": shown,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
            "parameters": [self._parameter(name, "query", type_) for name, type_ in sorted(_PARAMETERS[verb].items())],
        }
        self._body(operation, verb, type_name, _PATCH_TYPES if each.custom is None else each.custom.patch_types)
        self._responses(operation, verb, type_name, group, version, f"{kind}List" if subresource else each.list_kind)
        return operation

    def _body(self, operation: JSON, verb: str, type_name: str, patch_types: tuple[str, ...]) -> None:
        if verb == "patch":
            body, media_types = self._schemas.patch(), list(patch_types)
        elif verb in ("create", "update") and type_name:
            body, media_types = self._schemas.reference(type_name), ["*/*"]
        elif verb in ("delete", "deletecollection"):
            body, media_types = self._schemas.reference("meta/v1.DeleteOptions"), ["*/*"]
        else:
            return
        required = verb in ("create", "update", "patch")
        if self._v3:
            operation["requestBody"] = {"content": {media: {"schema": body} for media in media_types}}
            if required:
                operation["requestBody"]["required"] = True
        else:
            operation["consumes"] = media_types
            parameter: JSON = {"name": "body", "in": "body", "schema": body}
            operation["parameters"].append(parameter | ({"required": True} if required else {}))

    def _answer(self, verb: str, type_name: str, list_type: str) -> JSON:
        """The schema of a verb's answer. What was deleted is answered whole, or told of by a Status."""
        if not type_name:
            return {"type": "string"}
        answered = {"list": list_type, "deletecollection": list_type}.get(verb, type_name)
        if verb not in ("delete", "deletecollection"):
            return self._schemas.reference(answered)
        status = self._schemas.reference("meta/v1.Status")
        return {"anyOf": [status, self._schemas.reference(answered)]} if self._v3 else status

    def _responses(self, operation: JSON, verb: str, type_name: str, group: str, version: str, list_kind: str) -> None:
        body = self._answer(verb, type_name, self._schemas.type_of(group, version, list_kind))
        ok: JSON = {"description": "OK"}
        if self._v3:
            ok["content"] = {JSON_TYPE: {"schema": body}}
        else:
            ok["schema"] = body
            operation["produces"] = [JSON_TYPE]
        operation["responses"] = {"200": ok, "401": {"description": "Unauthorized"}}
        if verb == "create":
            operation["responses"]["201"] = ok | {"description": "Created"}


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- documents --------------------------------------------------------------------------------------------------------

_INFO = {"title": "Kubernetes", "version": "v1.36.0"}


def document(paths: dict[str, JSON], schemas: dict[str, JSON]) -> bytes:
    components = {"components": {"schemas": dict(sorted(schemas.items()))}} if schemas else {}
    return msgspec.json.encode({"openapi": "3.0.0", "info": _INFO, "paths": dict(sorted(paths.items())), **components})


@cache
def _v3_document(group: str, version: str) -> bytes:
    schemas = Schemas(v3=True)
    paths = Paths(schemas, v3=True)
    for each in of_version(group, version):
        paths.add(each)
    return document(paths.paths, schemas.schemas)


def _v3_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


_ABOVE_RESOURCES = {
    ".well-known/openid-configuration": (
        "/.well-known/openid-configuration/",
        "getServiceAccountIssuerOpenIDConfiguration",
        "",
    ),
    "api": ("/api/", "getCoreAPIVersions", "meta/v1.APIVersions"),
    "apis": ("/apis/", "getAPIVersions", "meta/v1.APIGroupList"),
    "openid/v1/jwks": ("/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset", ""),
    "version": ("/version/", "getCodeVersion", ""),
}
"""Documents about one path each: the path, the operation's name and the type of the answer, "" for a JSON object."""
_ODD_TYPES = {"openid/v1/jwks": KEY_SET_TYPE}


@cache
def one_path(name: str) -> bytes:
    """The document of a path above the resources: one of those, or a group's list of versions."""
    group = name.removeprefix("apis/")
    path, identifier, type_name = _ABOVE_RESOURCES.get(name) or (
        f"/apis/{group}/", f"get{_title(group.partition('.')[0])}APIGroup", "meta/v1.APIGroup"
    )  # fmt: skip
    schemas = Schemas(v3=True)
    answer = schemas.reference(type_name) if type_name else {"type": "object"}
    responses = {
        "200": {"description": "OK", "content": {_ODD_TYPES.get(name, JSON_TYPE): {"schema": answer}}},
        "401": {"description": "Unauthorized"},
    }
    return document({path: {"get": {"operationId": identifier, "responses": responses}}}, schemas.schemas)


@cache
def _v3_documents() -> dict[str, Callable[[], bytes]]:
    """Every document by its path below /openapi/v3/."""
    documents: dict[str, Callable[[], bytes]] = {
        name: partial(one_path, name) for name in (*_ABOVE_RESOURCES, *(f"apis/{group}" for group in api_groups()))
    }
    for group, version in group_versions():
        documents[_v3_path(group, version)] = partial(_v3_document, group, version)
    return dict(sorted(documents.items()))


@cache
def _sources() -> bytes:
    """A hash of what documents are made of, besides the registry: types, descriptions, and this code."""
    parts = [schema.fingerprint(), metadata.version("kubernetes-asyncio").encode()]
    parts += [resources.files(__package__).joinpath(name).read_bytes() for name in ("openapi.py", "descriptions.py")]
    return sha512(b"".join(parts)).digest()


def digest(name: str) -> str | None:
    """What the index says of a document; None for those that are not here.

    It changes with the document. Documents are not written for it: all of them take a quarter second.
    """
    if name not in _v3_documents():
        return None
    group, _, its_version = name.removeprefix("apis/").removeprefix("api/").rpartition("/")
    declared = [(each.resource, each.verbs) for each in of_version(group, its_version)]
    return sha512(_sources() + repr((name, declared)).encode()).hexdigest().upper()


@cache
def _v3_index() -> bytes:
    paths = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest(name)}"} for name in _v3_documents()}
    return msgspec.json.encode({"paths": paths})


def v2_document() -> JSON:
    """/openapi/v2 of what every server has."""
    schemas = Schemas(v3=False)
    paths = Paths(schemas, v3=False)
    for group, version in group_versions():
        for each in of_version(group, version):
            paths.add(each)
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": dict(sorted(paths.paths.items())),
        "definitions": dict(sorted(schemas.schemas.items())),
    }


@cache
def _v2_document() -> bytes:
    return msgspec.json.encode(v2_document())


@cache
def _v2_protobuf() -> bytes:
    return encode(v2_document())


def _media_types(accept: str) -> list[str]:
    return [entry.partition(";")[0].strip() for entry in accept.split(",")]


def openapi(path: str, accept: str) -> tuple[bytes, str] | None:
    """The document at a path and its content type; None where there is none or the client wants another form."""
    for media_type in _media_types(accept or JSON_TYPE):
        if media_type in (JSON_TYPE, "application/*", "*/*"):
            if path == "/openapi/v2":
                return _v2_document(), JSON_TYPE
            if path == "/openapi/v3":
                return _v3_index(), _INDEX_TYPE
            document = _v3_documents().get(path.removeprefix("/openapi/v3/"))
            return None if document is None else (document(), JSON_TYPE)
        if media_type in _PROTOBUF_ACCEPTED and path == "/openapi/v2":
            return _v2_protobuf(), PROTOBUF_TYPE
    return None
