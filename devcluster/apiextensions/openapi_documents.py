"""Discovery and OpenAPI documents of a server: those of built-in kinds, followed by its custom resources.

Documents are built on demand and cached until the definitions change. Without definitions, they are the documents that
all servers share. Sources: apiextensions-apiserver pkg/apiserver/customresource_discovery_controller.go and
pkg/controller/openapi/builder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha512
from typing import Any

import msgspec

from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.api.served_resources import NO_API_GATES
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.apiextensions.served_version import TERMINATING_VERBS, VERBS, ServedVersion, version_rank
from kubeloop.devcluster.apiextensions.structural_schema import EMBEDDED, INT_OR_STRING, PRESERVE, Schema
from kubeloop.devcluster.openapi import discovery as shared_discovery
from kubeloop.devcluster.openapi import documents as shared_openapi
from kubeloop.devcluster.openapi.descriptions import field_descriptions
from kubeloop.devcluster.openapi.paths import Paths
from kubeloop.devcluster.openapi.protobuf import encode
from kubeloop.devcluster.openapi.schemas import Schemas
from kubeloop.kube.json_object import JSON

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_ONLY_V3 = ("nullable", "oneOf", "anyOf", "allOf", "not", "default")


class CustomResourceDocuments:
    """The documents of one server.

    enums: see Schemas; definitions always publish theirs. gates: see served_resources.api_gates().
    """

    def __init__(self, definitions: Definitions, *, enums: bool = True, gates: frozenset[str] = NO_API_GATES) -> None:
        self._enums = enums
        self._gates = gates
        self._definitions = definitions
        self._revision = -1
        self._cache: dict[object, Any] = {}

    def _cached(self, key: object, build: Callable[[], Any]) -> Any:
        if self._revision != self._definitions.revision:
            self._cache.clear()
            self._revision = self._definitions.revision
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]

    def _versions(self) -> list[ServedVersion]:
        versions: list[ServedVersion] = self._cached("versions", self._definitions.versions)
        return versions

    def _groups(self) -> dict[str, dict[str, list[ServedVersion]]]:
        """Return the served versions by group and version."""

        def build() -> dict[str, dict[str, list[ServedVersion]]]:
            groups: dict[str, dict[str, list[ServedVersion]]] = {}
            for version in self._versions():
                resource = version.served.resource
                groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(version)
            return {
                group: dict(sorted(groups[group].items(), key=lambda item: version_rank(item[0]))) for group in groups
            }

        groups: dict[str, dict[str, list[ServedVersion]]] = self._cached("groups", build)
        return groups

    # --- discovery ----------------------------------------------------------------------------------------------------

    def discovery(self, path: str, accept: str) -> tuple[JSON, str] | None:
        """Return the document of get_discovery_document(), with custom resources."""
        built_in = shared_discovery.get_discovery_document(path, accept, self._gates)
        name = path.strip("/")
        if not self._versions() or not (name == "apis" or name.startswith("apis/")):
            return built_in
        if name == "apis":
            assert built_in is not None
            document, content_type = built_in
            if document["kind"] == "APIGroupList":
                return {**document, "groups": [*document["groups"], *map(self._group, self._groups())]}, content_type
            items = [self._aggregated(group) for group in self._groups()]
            return {**document, "items": [*document["items"], *items]}, content_type
        if built_in is not None:
            return built_in
        group, _, version = name.removeprefix("apis/").partition("/")
        versions = self._groups().get(group)
        if versions is None or (version and version not in versions):
            return None
        content_type = shared_discovery.discovery_content_type(path, accept)
        if version:
            return self._resource_list(group, version), content_type
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}, content_type

    def _group(self, group: str) -> JSON:
        return shared_discovery.api_group(group, self._groups()[group])

    def _resource_list(self, group: str, version: str) -> JSON:
        entries: list[JSON] = []
        for served_version in self._groups()[group][version]:
            entries.append(
                shared_discovery.api_resource(
                    served_version.served, _verbs(served_version), _storage_hash(served_version)
                )
            )
            subresources = served_version.served.resource.subresources
            entries.extend(shared_discovery.api_subresource(served_version.served, name) for name in subresources)
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}",
            "resources": entries,
        }

    def _aggregated(self, group: str) -> JSON:
        return {
            "metadata": {"name": group},
            "versions": [
                shared_discovery.aggregated_version(
                    version, [_aggregated(served_version) for served_version in versions]
                )
                for version, versions in self._groups()[group].items()
            ],
        }

    # --- OpenAPI ------------------------------------------------------------------------------------------------------

    def openapi(self, path: str, accept: str) -> tuple[bytes, str] | None:
        """Return the document of get_openapi_document(), with custom resources."""
        built_in = shared_openapi.get_openapi_document(path, accept, enums=self._enums, gates=self._gates)
        if not self._versions():
            return built_in
        if path == "/openapi/v2" and built_in is not None:
            if built_in[1] == JSON_TYPE:
                return self._cached("v2", lambda: msgspec.json.encode(self._v2())), JSON_TYPE
            return self._cached("v2 protobuf", lambda: encode(self._v2())), built_in[1]
        if path == "/openapi/v3" and built_in is not None:
            return self._cached("v3", lambda: self._index(built_in[0])), built_in[1]
        if built_in is None and shared_openapi.accepts_json(accept):
            root, _, rest = path.removeprefix("/openapi/v3/").partition("/")
            group, _, version = rest.partition("/")
            if root == "apis" and group in self._groups() and version in self._groups()[group]:
                return self._v3(group, version), JSON_TYPE
        return built_in

    def digest(self, name: str) -> str:
        """Return the hash of an existing OpenAPI v3 document, by its name in the index."""
        built_in = shared_openapi.document_hash(name, enums=self._enums, gates=self._gates)
        if built_in is not None:
            return built_in
        _, group, version = name.split("/")
        return sha512(self._v3(group, version)).hexdigest().upper()

    def _index(self, builtin_index: bytes) -> bytes:
        paths = msgspec.json.decode(builtin_index)["paths"]
        for group, versions in self._groups().items():
            for version in versions:
                name = f"apis/{group}/{version}"
                paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={self.digest(name)}"}
        return msgspec.json.encode({"paths": dict(sorted(paths.items()))})

    def _v3(self, group: str, version: str) -> bytes:
        def make() -> bytes:
            schemas = Schemas(v3=True, of=None, enums=self._enums)
            paths = Paths(schemas, v3=True)
            for served_version in self._groups()[group][version]:
                _define(schemas, served_version, v3=True)
                paths.add(served_version.served)
            return shared_openapi.v3_document(paths, schemas, for_crds=True)

        document: bytes = self._cached(("v3", group, version), make)
        return document

    def _v2(self) -> JSON:
        def add(paths: Paths, schemas: Schemas) -> None:
            for version in self._versions():
                _define(schemas, version, v3=False)
                paths.add(version.served)

        return shared_openapi.v2_document(add, enums=self._enums, gates=self._gates)


def _storage_hash(version: ServedVersion) -> str:
    """Return the storage version hash of discovery; "" if the storage version is not served."""
    storage_version = version.storage_version
    served = storage_version.spec.get("served")
    return shared_discovery.storage_version_hash(storage_version.served.resource) if served else ""


def _verbs(version: ServedVersion) -> Sequence[str]:
    return TERMINATING_VERBS if version.terminating else VERBS


def _aggregated(version: ServedVersion) -> JSON:
    resource = version.served.resource
    return shared_discovery.aggregated_resource(
        version.served, _verbs(version), resource.subresources, resource.group, resource.version
    )


# --- types ------------------------------------------------------------------------------------------------------------


_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"


def _define(schemas: Schemas, version: ServedVersion, *, v3: bool) -> None:
    """Add the types of a custom resource and of its list."""
    resource = version.served.resource
    metadata = {"description": _METADATA, **_reference(schemas, "meta/v1.ObjectMeta", v3=v3)}
    schema = version.schema
    kinds = [{"group": resource.group, "kind": resource.kind, "version": resource.version}]
    if v3:
        value = _to_v3(schema, metadata)
        value["properties"] = {**(value.get("properties") or {}), **_type_meta(), "metadata": metadata}
    elif schema.get(PRESERVE):
        value = {"type": "object"}
    else:
        value = _to_v2(schema, metadata)
        value["properties"] = {**(value.get("properties") or {}), **_type_meta(), "metadata": metadata}
    value["x-kubernetes-group-version-kind"] = kinds
    fields = version.spec.get("selectableFields") or ()
    selectable = [{"fieldPath": field["jsonPath"].removeprefix(".")} for field in fields]
    if selectable:
        value["x-kubernetes-selectable-fields"] = selectable
    schemas.define(resource.group, resource.version, resource.kind, value)
    reference = schemas.reference(schemas.type_name(resource.group, resource.version, resource.kind))
    list_schema: JSON = {
        "description": f"{version.served.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_type_meta(),
            "items": {
                "description": f"List of {resource.plural}. More info: {_CONVENTIONS}",
                "type": "array",
                "items": reference,
            },
            "metadata": {"description": _LIST_METADATA, **_reference(schemas, "meta/v1.ListMeta", v3=v3)},
        },
        "x-kubernetes-group-version-kind": [{**kinds[0], "kind": version.served.list_kind}],
    }
    if selectable:
        list_schema["x-kubernetes-selectable-fields"] = selectable
    schemas.define(resource.group, resource.version, version.served.list_kind, list_schema)


def _reference(schemas: Schemas, type_name: str, *, v3: bool) -> JSON:
    reference = schemas.reference(type_name)
    return {"allOf": [reference]} if v3 else reference


def _type_meta() -> JSON:
    texts = field_descriptions("core/v1.ConfigMap")
    return {
        name: {**({"description": texts[name]} if name in texts else {}), "type": "string"}
        for name in ("apiVersion", "kind")
    }


def _map_subschemas(schema: Schema, make: Callable[[Schema], JSON]) -> JSON:
    """Return a schema with `make` applied to its subschemas."""
    result = dict(schema)
    if schema.get("properties"):
        result["properties"] = {name: make(subschema) for name, subschema in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            result[name] = make(schema[name])
    return result


def _to_v3(schema: Schema, metadata: JSON) -> JSON:
    """Return a schema as OpenAPI v3 publishes it: x-kubernetes-int-or-string and embedded resources are expanded."""
    result = _map_subschemas(schema, lambda subschema: _to_v3(subschema, metadata))
    if schema.get(INT_OR_STRING):
        result.pop("type", None)
        all_of, any_of = schema.get("allOf") or [], schema.get("anyOf")
        if any_of is None:
            result["anyOf"] = _INT_OR_STRING
        elif any_of != _INT_OR_STRING and not (all_of and all_of[0].get("anyOf") == _INT_OR_STRING):
            result["allOf"] = [{"anyOf": _INT_OR_STRING}, *all_of]
    return _with_type_meta(result, metadata)


def _with_type_meta(schema: JSON, metadata: JSON) -> JSON:
    if not schema.get(EMBEDDED):
        return schema
    properties = {**(schema.get("properties") or {}), **_type_meta(), "metadata": metadata}
    required = [*(schema.get("required") or ())]
    required += [name for name in ("kind", "apiVersion") if name not in required]
    return {**schema, "properties": properties, "required": required}


def _to_v2(schema: Schema, metadata: JSON) -> JSON:
    """Return a schema in OpenAPI v2, without what v2 cannot express, so that clients accept every valid object."""
    result = _map_subschemas(schema, lambda subschema: _to_v2(subschema, metadata))
    for name in _ONLY_V3:
        result.pop(name, None)
    if schema.get("nullable") or schema.get(PRESERVE):
        for name in ("type", "properties", "items", "additionalProperties", "required", "enum"):
            result.pop(name, None)
        return result
    if schema.get(INT_OR_STRING):
        result.pop("type", None)
    return _with_type_meta(result, metadata)
