"""The OpenAPI documents of the server: /openapi/v3 with one document per group version, and /openapi/v2 with all.

Generated from the registry (`openapi_paths`) and from kube.schema (`openapi_types`) on first use and kept as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha512
from importlib import metadata, resources

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, KEY_SET_TYPE
from kubeloop.devcluster.api.served_resources import api_groups, group_versions, of_version
from kubeloop.devcluster.openapi.paths import Paths, group_name, tag_of
from kubeloop.devcluster.openapi.protobuf import CONTENT_TYPE as PROTOBUF_TYPE
from kubeloop.devcluster.openapi.protobuf import encode
from kubeloop.devcluster.openapi.schemas import Schemas, title
from kubeloop.devcluster.serializer.negotiation import Clause, chosen
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON

_INDEX_TYPE = "text/plain; charset=utf-8"
_FORMS_V2 = (JSON_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF_TYPE)
_INFO = {"title": "Kubernetes", "version": "1.36"}
_CUSTOM_INFO = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
_TOKEN = "BearerToken"
_SECURITY = {_TOKEN: {"description": "A bearer token.", "type": "apiKey", "name": "authorization", "in": "header"}}


def v3_document(paths: Paths, schemas: Schemas, *, custom: bool = False) -> bytes:
    """A document of OpenAPI 3; `custom`: of custom resources, which another part of kube-apiserver publishes."""
    components: JSON = {"schemas": dict(sorted(schemas.schemas.items()))} if schemas.schemas else {}
    if not custom:
        components["securitySchemes"] = _SECURITY
    info = _CUSTOM_INFO if custom else _INFO
    whole = {"openapi": "3.0.0", "info": info, "paths": dict(sorted(paths.paths.items())), "components": components}
    return msgspec.json.encode(whole)


@cache
def _of_version(group: str, version: str) -> bytes:
    schemas = Schemas(v3=True, of=(group, version))
    paths = Paths(schemas, v3=True)
    for each in of_version(group, version):
        paths.add(each)
    _add_resource_list(paths, schemas, group, version)
    return v3_document(paths, schemas)


def _add_resource_list(paths: Paths, schemas: Schemas, group: str, version: str) -> None:
    """Add the path of a group version's list of resources."""
    identifier = f"get{group_name(group)}{title(version)}APIResources"
    answer = schemas.reference("meta/v1.APIResourceList")
    paths.add_document(f"/{_version_path(group, version)}/", identifier, tag_of(group, version), answer)


def _version_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


_ABOVE_RESOURCES = {
    ".well-known/openid-configuration": ("getServiceAccountIssuerOpenIDConfiguration", "WellKnown", ""),
    "api": ("getCoreAPIVersions", "core", "meta/v1.APIVersions"),
    "apis": ("getAPIVersions", "apis", "meta/v1.APIGroupList"),
    "openid/v1/jwks": ("getServiceAccountIssuerOpenIDKeyset", "openid", ""),
    "version": ("getCodeVersion", "version", "version.Info"),
}
"""Documents about one path each: the operation's name and tag, and the type of the answer, "" for one without.

Kubernetes publishes those without as texts, though they are objects; OpenAPI 3 says so here.
"""
_MEDIA_TYPES = {
    ".well-known/openid-configuration": (JSON_TYPE,),
    "openid/v1/jwks": (KEY_SET_TYPE,),
    "version": (JSON_TYPE,),
}


def _add_path_above(paths: Paths, schemas: Schemas, name: str) -> None:
    """Add a path above the resources: one of those, or a group's list of versions ("apis/apps")."""
    group = name.removeprefix("apis/")
    known = _ABOVE_RESOURCES.get(name) or (f"get{group_name(group)}APIGroup", tag_of(group), "meta/v1.APIGroup")
    identifier, tag, type_name = known
    answer = schemas.reference(type_name) if type_name else {"type": "object" if schemas.v3 else "string"}
    paths.add_document(f"/{name}/", identifier, tag, answer, _MEDIA_TYPES.get(name, errors.BODY_TYPES))


@cache
def _of_path_above(name: str) -> bytes:
    schemas = Schemas(v3=True)
    paths = Paths(schemas, v3=True)
    _add_path_above(paths, schemas, name)
    return v3_document(paths, schemas)


def _paths_above() -> tuple[str, ...]:
    return (*_ABOVE_RESOURCES, *(f"apis/{group}" for group in api_groups()))


@cache
def _v3_documents() -> dict[str, Callable[[], bytes]]:
    """Every document by its path below /openapi/v3/."""
    documents: dict[str, Callable[[], bytes]] = {name: partial(_of_path_above, name) for name in _paths_above()}
    for group, version in group_versions():
        documents[_version_path(group, version)] = partial(_of_version, group, version)
    return dict(sorted(documents.items()))


@cache
def _sources() -> bytes:
    """A hash of what documents are made of, besides the registry: types, descriptions, and this code."""
    parts = [schema.fingerprint(), metadata.version("kubernetes-asyncio").encode()]
    modules = ("documents", "paths", "schemas", "descriptions")
    parts += [resources.files(__package__).joinpath(f"{name}.py").read_bytes() for name in modules]
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


def v2_document(add_more: Callable[[Paths, Schemas], None] | None = None) -> JSON:
    """/openapi/v2 of what every server has; and of what `add_more` adds to it."""
    schemas = Schemas(v3=False)
    paths = Paths(schemas, v3=False)
    for group, version in group_versions():
        for each in of_version(group, version):
            paths.add(each)
        _add_resource_list(paths, schemas, group, version)
    for name in _paths_above():
        _add_path_above(paths, schemas, name)
    if add_more is not None:
        add_more(paths, schemas)
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
def _v2_document() -> bytes:
    return msgspec.json.encode(v2_document())


@cache
def _v2_protobuf() -> bytes:
    return encode(v2_document())


def openapi(path: str, accept: str) -> tuple[bytes, str] | None:
    """The document at a path and its content type; None where there is none or the client wants another form."""
    if path == "/openapi/v3":
        return _v3_index(), _INDEX_TYPE
    if path == "/openapi/v2":
        found = chosen(accept, _whatever, _FORMS_V2)
        if found is None:
            return None
        return (_v2_document(), JSON_TYPE) if found[0] == JSON_TYPE else (_v2_protobuf(), PROTOBUF_TYPE)
    document = _v3_documents().get(path.removeprefix("/openapi/v3/"))
    return None if document is None or not takes_json(accept) else (document(), JSON_TYPE)


def takes_json(accept: str) -> bool:
    """The one form of OpenAPI 3 here."""
    return chosen(accept, _whatever, (JSON_TYPE,)) is not None


def _whatever(media_type: str, clause: Clause) -> bool:
    """Parameters of a clause do not count here."""
    del media_type, clause
    return True
