"""The OpenAPI documents of the server: /openapi/v3 with one document per group version, and /openapi/v2 with all.

Generated from kube.schema and the registry on first use and kept as bytes. They hold what clients act on: paths with
their operations, parameters and kinds, types with their fields, merge keys and list types. Descriptions, for
`kubectl explain`, are those that the installed client library has (see descriptions). Source of the forms:
k8s.io/kube-openapi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha512
from importlib import metadata, resources
from typing import Any

import msgspec

from kubeloop.devcluster import errors
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
    for name in _EVERYWHERE:
        kind = name.rpartition(".")[2]
        result[name] = [{"group": group, "kind": kind, "version": version} for group, version in group_versions()]
    for kind in ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"):
        result[f"meta/v1.{kind}"] = [{"group": "", "kind": kind, "version": "v1"}]
    return result


_EVERYWHERE = ("meta/v1.DeleteOptions", "meta/v1.WatchEvent")
"""Kinds of every group version."""


def _union(discriminator: str, *fields: str) -> JSON:
    named: JSON = {"fields-to-discriminateBy": {name: _title(name) for name in fields}}
    return {"discriminator": discriminator, **named} if discriminator else named


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


_UNIONS = {
    "core/v1.AppArmorProfile": _union("type", "localhostProfile"),
    "core/v1.PodSchedulingGroup": _union("", "podGroupName"),
    "core/v1.SeccompProfile": _union("type", "localhostProfile"),
    "flowcontrol/v1.LimitResponse": _union("type", "queuing"),
    "flowcontrol/v1.PriorityLevelConfigurationSpec": _union("type", "exempt", "limited"),
    "flowcontrol/v1.Subject": _union("kind", "group", "serviceAccount", "user"),
}
"""x-kubernetes-unions by type."""


# --- types ------------------------------------------------------------------------------------------------------------


class Schemas:
    """The types that a document refers to, in the form of OpenAPI 2 or 3; grows as references are made.

    of: the group and version that a document of OpenAPI 3 is about.
    """

    def __init__(self, *, v3: bool, of: tuple[str, str] = ("", "v1")) -> None:
        self._v3 = v3
        self._of = of
        self._scalars = _SCALARS_V3 if v3 else _SCALARS_V2
        self._prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self.schemas: dict[str, JSON] = {}
        self._custom: dict[tuple[str, str, str], str] = {}

    def _kinds(self, type_name: str) -> list[JSON]:
        """Those that a type is, in every version or in the document's."""
        kinds = _kinds_of_type().get(type_name, [])
        if type_name not in _EVERYWHERE or not self._v3:
            return kinds
        return [each for each in kinds if (each["group"], each["version"]) in (("", "v1"), self._of)]

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

    def watch_event(self) -> None:
        """Define what watches are told, though no path here says so."""
        event, raw = (_schema_name(name) for name in ("meta/v1.WatchEvent", "runtime.RawExtension"))
        self.schemas.setdefault(raw, {"type": "object"})
        self.schemas[event] = {
            "type": "object",
            "required": ["type", "object"],
            "properties": {
                "object": {"allOf": [{"$ref": self._prefix + raw}]},
                "type": {"type": "string", "default": ""},
            },
            "x-kubernetes-group-version-kind": self._kinds("meta/v1.WatchEvent"),
        }

    def _scalar(self, ref: TypeRef) -> JSON:
        name = _schema_name(ref.named)
        self.schemas.setdefault(name, self._scalars[ref.kind])
        return {"$ref": self._prefix + name}

    def _value(self, ref: TypeRef, *, nested: bool = False) -> JSON:
        """`nested`: in a list or map. A property may have more to say than $ref, hence allOf in OpenAPI 3."""
        if ref.kind == "struct" or ref.kind in self._scalars:
            reference = self.reference(ref.named) if ref.kind == "struct" else self._scalar(ref)
            return {"allOf": [reference]} if self._v3 and not nested else dict(reference)
        if ref.kind == "list" and ref.element is not None:
            return {"type": "array", "items": self._value(ref.element, nested=True)}
        if ref.kind == "map" and ref.element is not None:
            return {"type": "object", "additionalProperties": self._value(ref.element, nested=True)}
        value = dict(_PLAIN[ref.kind])
        if ref.enum:
            value["enum"] = sorted(ref.enum)
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
            elif kind in _ZERO and not (field.omit_empty or field.omit_zero):
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
        if required := [name for name, field in struct.json.items() if field.required]:
            result["required"] = required
        if properties:
            result["properties"] = properties
        if kinds := self._kinds(struct.name):
            result["x-kubernetes-group-version-kind"] = kinds
        if unions := _UNIONS.get(struct.name):
            result["x-kubernetes-unions"] = [unions]
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


_UNAUTHORIZED = {"description": "Unauthorized"}
_CONNECTED = ("attach", "exec", "portforward", "proxy")
_MORE_RESPONSES = {
    "create": {"201": "Created", "202": "Accepted"},
    "update": {"201": "Created"},
    "patch": {"201": "Created"},
    "delete": {"202": "Accepted"},
}


def _group_name(group: str) -> str:
    """A group as operations are named by it: "Apps", "RbacAuthorization", "Core"."""
    return "".join(_title(part) for part in group.removesuffix(".k8s.io").split(".")) or "Core"


class Paths:
    """Paths of the resources of a group."""

    def __init__(self, schemas: Schemas, *, v3: bool) -> None:
        self._schemas, self._v3 = schemas, v3
        self._media_types: tuple[str, ...] = errors.BODY_TYPES
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
            for name in ("name", "namespace")
            if f"{{{name}}}" in path
        ]
        if not subresource or subresource not in _CONNECTED:
            item["parameters"].append(self._parameter("pretty", "query", "string"))
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
        group_name = _group_name(resource.group)
        tag = f"{group_name[0].lower()}{group_name[1:]}_{resource.version}"
        shown = "connect" if subresource in _CONNECTED else _ACTIONS.get(verb, verb)
        namespaced = "Namespaced" if resource.namespaced and not scope else ""
        words, more = {"update": "replace", "get": "read", "deletecollection": "delete"}.get(verb, verb), ""
        if verb == "deletecollection":
            more = "Collection"
        elif subresource in _CONNECTED:
            words, more = "connect", _title(_METHODS[verb])
        words += f"{group_name}{_title(resource.version)}{more}"
        identifier = f"{words}{namespaced}{resource.kind}{_title(subresource)}{scope}"
        operation: JSON = {
            "tags": [tag],
            "operationId": identifier,
            "x-kubernetes-action": shown,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
            "parameters": [self._parameter(name, "query", type_) for name, type_ in sorted(_PARAMETERS[verb].items())],
        }
        self._media_types = (JSON_TYPE, "application/yaml") if each.custom is not None else errors.BODY_TYPES
        if subresource in _CONNECTED:
            answered = (
                {"content": {"*/*": {"schema": {"type": "string"}}}} if self._v3 else {"schema": {"type": "string"}}
            )
            operation["responses"] = {"200": {"description": "OK", **answered}, "401": _UNAUTHORIZED}
            del operation["parameters"]
            return operation
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
        produced = list(self._media_types)
        if verb == "list":
            produced += [f"{each};stream=watch" for each in produced if each != "application/yaml"]
        if not type_name:
            produced = [JSON_TYPE]
        if self._v3:
            ok["content"] = {each: {"schema": body} for each in sorted(produced)}
        else:
            ok["schema"] = body
            operation["produces"] = produced
        operation["responses"] = {"200": ok, "401": _UNAUTHORIZED}
        if not operation["parameters"]:
            del operation["parameters"]
        for code, told in _MORE_RESPONSES.get(verb, {}).items():
            operation["responses"][code] = ok | {"description": told}
        operation["responses"] = dict(sorted(operation["responses"].items()))


# --- documents --------------------------------------------------------------------------------------------------------

_INFO = {"title": "Kubernetes", "version": "1.36"}


def document(paths: dict[str, JSON], schemas: dict[str, JSON]) -> bytes:
    components = {"components": {"schemas": dict(sorted(schemas.items()))}} if schemas else {}
    return msgspec.json.encode({"openapi": "3.0.0", "info": _INFO, "paths": dict(sorted(paths.items())), **components})


@cache
def _v3_document(group: str, version: str) -> bytes:
    schemas = Schemas(v3=True, of=(group, version))
    paths = Paths(schemas, v3=True)
    for each in of_version(group, version):
        paths.add(each)
        if "watch" in each.verbs:
            schemas.watch_event()
    name = _group_name(group)
    paths.paths[f"/{_v3_path(group, version)}/"] = _listed(
        schemas.reference("meta/v1.APIResourceList"),
        f"get{name}{_title(version)}APIResources",
        f"{name[0].lower()}{name[1:]}_{version}",
    )
    return document(paths.paths, schemas.schemas)


def _listed(answer: JSON, identifier: str, tag: str, media_types: Sequence[str] = errors.BODY_TYPES) -> JSON:
    """A path of discovery."""
    content = {each: {"schema": answer} for each in sorted(media_types)}
    responses = {"200": {"description": "OK", "content": content}, "401": _UNAUTHORIZED}
    return {"get": {"tags": [tag], "operationId": identifier, "responses": responses}}


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
_TAGS = {".well-known/openid-configuration": "WellKnown", "api": "core", "openid/v1/jwks": "openid"}


@cache
def one_path(name: str) -> bytes:
    """The document of a path above the resources: one of those, or a group's list of versions."""
    group = name.removeprefix("apis/")
    path, identifier, type_name = _ABOVE_RESOURCES.get(name) or (
        f"/apis/{group}/", f"get{_group_name(group)}APIGroup", "meta/v1.APIGroup"
    )  # fmt: skip
    schemas = Schemas(v3=True)
    answer = schemas.reference(type_name) if type_name else {"type": "object"}
    produced = errors.BODY_TYPES if type_name else (_ODD_TYPES.get(name, JSON_TYPE),)
    group_name = _group_name(group)
    tag = _TAGS.get(name) or f"{group_name[0].lower()}{group_name[1:]}"
    return document({path: _listed(answer, identifier, tag, produced)}, schemas.schemas)


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
