"""OpenAPI documents: /openapi/v3 with one document per group version, and /openapi/v2 with everything.

Generated from the registry (`paths`) and from kube.schema (`schemas`) on first use, and cached as bytes. enums: see
Schemas. gates: see served_resources.api_gates().
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha512
from importlib import metadata, resources

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, KEY_SET_TYPE
from kubeloop.devcluster.api.served_resources import (
    NO_API_GATES,
    api_groups,
    group_versions,
    resources_of_version,
)
from kubeloop.devcluster.openapi.paths import Paths, group_name, operation_tag
from kubeloop.devcluster.openapi.protobuf import CONTENT_TYPE as PROTOBUF_TYPE
from kubeloop.devcluster.openapi.protobuf import encode
from kubeloop.devcluster.openapi.schemas import Schemas, title
from kubeloop.devcluster.serializer.negotiation import AcceptClause, negotiate_media_type
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON

_INDEX_TYPE = "text/plain; charset=utf-8"
_FORMS_V2 = (JSON_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF_TYPE)
_INFO = {"title": "Kubernetes", "version": "1.36"}
_CRD_INFO = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
_TOKEN = "BearerToken"
_SECURITY = {_TOKEN: {"description": "A bearer token.", "type": "apiKey", "name": "authorization", "in": "header"}}


def v3_document(paths: Paths, schemas: Schemas, *, for_crds: bool = False) -> bytes:
    """Return an OpenAPI 3 document; for_crds: of custom resources, published by apiextensions-apiserver."""
    components: JSON = {"schemas": dict(sorted(schemas.schemas.items()))} if schemas.schemas else {}
    if not for_crds:
        components["securitySchemes"] = _SECURITY
    info = _CRD_INFO if for_crds else _INFO
    document = {"openapi": "3.0.0", "info": info, "paths": dict(sorted(paths.paths.items())), "components": components}
    return msgspec.json.encode(document)


@cache
def _version_document(group: str, version: str, *, enums: bool, gates: frozenset[str]) -> bytes:
    schemas = Schemas(v3=True, of=(group, version), enums=enums)
    paths = Paths(schemas, v3=True)
    for served in resources_of_version(group, version, gates):
        paths.add(served)
    _add_resource_list(paths, schemas, group, version)
    return v3_document(paths, schemas)


def _add_resource_list(paths: Paths, schemas: Schemas, group: str, version: str) -> None:
    """Add the path of a group version's APIResourceList."""
    identifier = f"get{group_name(group)}{title(version)}APIResources"
    answer = schemas.reference("meta/v1.APIResourceList")
    paths.add_document(f"/{_version_path(group, version)}/", identifier, operation_tag(group, version), answer)


def _version_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


_ROOT_PATHS = {
    ".well-known/openid-configuration": ("getServiceAccountIssuerOpenIDConfiguration", "WellKnown", ""),
    "api": ("getCoreAPIVersions", "core", "meta/v1.APIVersions"),
    "apis": ("getAPIVersions", "apis", "meta/v1.APIGroupList"),
    "openid/v1/jwks": ("getServiceAccountIssuerOpenIDKeyset", "openid", ""),
    "version": ("getCodeVersion", "version", "version.Info"),
}
"""Operation name, tag and response type ("" if undeclared) of the paths outside of group versions.

Kubernetes declares responses without a type as strings, although they are objects; OpenAPI 3 declares objects here.
"""
_MEDIA_TYPES = {
    ".well-known/openid-configuration": (JSON_TYPE,),
    "openid/v1/jwks": (KEY_SET_TYPE,),
    "version": (JSON_TYPE,),
}


def _add_root_path(paths: Paths, schemas: Schemas, name: str) -> None:
    """Add a path outside of the group versions: one of _ROOT_PATHS, or a group's list of versions ("apis/apps")."""
    group = name.removeprefix("apis/")
    operation = _ROOT_PATHS.get(name) or (f"get{group_name(group)}APIGroup", operation_tag(group), "meta/v1.APIGroup")
    identifier, tag, type_name = operation
    answer = schemas.reference(type_name) if type_name else {"type": "object" if schemas.v3 else "string"}
    paths.add_document(f"/{name}/", identifier, tag, answer, _MEDIA_TYPES.get(name, errors.BODY_TYPES))


@cache
def _root_document(name: str) -> bytes:
    schemas = Schemas(v3=True)
    paths = Paths(schemas, v3=True)
    _add_root_path(paths, schemas, name)
    return v3_document(paths, schemas)


def _root_paths(gates: frozenset[str]) -> tuple[str, ...]:
    return (*_ROOT_PATHS, *(f"apis/{group}" for group in api_groups(gates)))


@cache
def _v3_documents(*, enums: bool, gates: frozenset[str]) -> dict[str, Callable[[], bytes]]:
    """Return the generator of every document by its path below /openapi/v3/."""
    documents: dict[str, Callable[[], bytes]] = {name: partial(_root_document, name) for name in _root_paths(gates)}
    for group, version in group_versions(gates):
        documents[_version_path(group, version)] = partial(_version_document, group, version, enums=enums, gates=gates)
    return dict(sorted(documents.items()))


@cache
def _source_hash() -> bytes:
    """Return a hash of everything that documents depend on besides the registry: types, descriptions, and this code."""
    parts = [schema.fingerprint(), metadata.version("kubernetes-asyncio").encode()]
    modules = ("documents", "paths", "schemas", "descriptions")
    parts += [resources.files(__package__).joinpath(f"{name}.py").read_bytes() for name in modules]
    return sha512(b"".join(parts)).digest()


def document_hash(name: str, *, enums: bool = True, gates: frozenset[str] = NO_API_GATES) -> str | None:
    """Return the hash of a document for the index, or None if there is no such document.

    It changes with the document, but does not require generating it: all documents take a quarter of a second.
    """
    if name not in _v3_documents(enums=enums, gates=gates):
        return None
    group, _, version = name.removeprefix("apis/").removeprefix("api/").rpartition("/")
    declared = [(served.resource, served.verbs) for served in resources_of_version(group, version, gates)]
    return sha512(_source_hash() + repr((name, declared, enums)).encode()).hexdigest().upper()


@cache
def _v3_index(*, enums: bool, gates: frozenset[str]) -> bytes:
    documents = _v3_documents(enums=enums, gates=gates)
    hashes = {name: document_hash(name, enums=enums, gates=gates) for name in documents}
    paths = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"} for name, digest in hashes.items()}
    return msgspec.json.encode({"paths": paths})


def v2_document(
    add_extra: Callable[[Paths, Schemas], None] | None = None,
    *,
    enums: bool = True,
    gates: frozenset[str] = NO_API_GATES,
) -> JSON:
    """Return the /openapi/v2 document of the built-in resources, with the additions of `add_extra`."""
    schemas = Schemas(v3=False, enums=enums)
    paths = Paths(schemas, v3=False)
    for group, version in group_versions(gates):
        for served in resources_of_version(group, version, gates):
            paths.add(served)
        _add_resource_list(paths, schemas, group, version)
    for name in _root_paths(gates):
        _add_root_path(paths, schemas, name)
    if add_extra is not None:
        add_extra(paths, schemas)
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": dict(sorted(paths.paths.items())),
        "definitions": dict(sorted(schemas.schemas.items())),
        "parameters": dict(sorted(paths.parameters.items())),
        "securityDefinitions": _SECURITY,
        "security": [{_TOKEN: []}],
    }


@cache
def _v2_document(*, enums: bool, gates: frozenset[str]) -> bytes:
    return msgspec.json.encode(v2_document(enums=enums, gates=gates))


@cache
def _v2_protobuf(*, enums: bool, gates: frozenset[str]) -> bytes:
    return encode(v2_document(enums=enums, gates=gates))


def get_openapi_document(
    path: str, accept: str, *, enums: bool = True, gates: frozenset[str] = NO_API_GATES
) -> tuple[bytes, str] | None:
    """Return the document at a path and its content type; None if there is none or the form is not acceptable."""
    if path == "/openapi/v3":
        return _v3_index(enums=enums, gates=gates), _INDEX_TYPE
    if path == "/openapi/v2":
        negotiated = negotiate_media_type(accept, _accept_any, _FORMS_V2)
        if negotiated is None:
            return None
        if negotiated[0] == JSON_TYPE:
            return _v2_document(enums=enums, gates=gates), JSON_TYPE
        return _v2_protobuf(enums=enums, gates=gates), PROTOBUF_TYPE
    document = _v3_documents(enums=enums, gates=gates).get(path.removeprefix("/openapi/v3/"))
    return None if document is None or not accepts_json(accept) else (document(), JSON_TYPE)


def accepts_json(accept: str) -> bool:
    """Return True if the Accept header allows JSON, the only form of OpenAPI 3 documents here."""
    return negotiate_media_type(accept, _accept_any, (JSON_TYPE,)) is not None


def _accept_any(media_type: str, clause: AcceptClause) -> bool:
    """Accept any clause; parameters are ignored."""
    del media_type, clause
    return True
