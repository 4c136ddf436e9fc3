"""OpenAPI of aggregated API servers, joined with the documents of this one.

Source: kube-aggregator pkg/controllers/openapi and openapiv3, kube-openapi pkg/aggregator and pkg/openapiconv of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha512
from itertools import count
from typing import Any, NamedTuple

import msgspec

from kubeloop.devcluster.aggregation.documents import GroupVersion
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.openapi.protobuf import encode
from kubeloop.kube.json_object import JSON

_KINDS = "x-kubernetes-group-version-kind"
_SECTIONS = ("definitions", "parameters")
_FRAME: JSON = {"swagger": "2.0", "info": {"title": "", "version": ""}, "security": [], "securityDefinitions": {}}


class ServerDocuments(NamedTuple):
    """OpenAPI of one group version's API server.

    urls: of its OpenAPI v3 documents, by name. spec: OpenAPI v2 of the group version, None if there is none. etag: of
    `spec`. converted: OpenAPI v3 made from `spec`, if the server has none itself.
    """

    urls: Mapping[str, str] = {}
    spec: JSON | None = None
    etag: str = ""
    converted: bytes = b""


class AggregatedOpenApi:
    """OpenAPI documents of all aggregated API servers."""

    def __init__(self) -> None:
        self._servers: dict[GroupVersion, ServerDocuments] = {}
        self._cache: dict[str, bytes] = {}  # /openapi/v2 by content type
        self._cached_own = b""

    def get(self, key: GroupVersion) -> ServerDocuments:
        return self._servers.get(key, ServerDocuments())

    def set(self, key: GroupVersion, documents: ServerDocuments | None) -> None:
        """Store the documents of a server; None to remove them."""
        self._cache.clear()
        self._servers.pop(key, None)
        if documents is not None:
            self._servers[key] = documents

    def index(self, own: bytes) -> bytes:
        """Return /openapi/v3 with the documents of all servers; this server's own come first."""
        index: JSON = msgspec.json.decode(own)
        paths = {name: {"serverRelativeURL": url} for name, (_, url) in sorted(self._urls().items())}
        return msgspec.json.encode({**index, "paths": dict(sorted((paths | index["paths"]).items()))})

    def server_of(self, name: str) -> GroupVersion | None:
        """Return the group version whose server has an OpenAPI v3 document."""
        key, _ = self._urls().get(name, (None, ""))
        return None if key is None or self._servers[key].converted else key

    def converted(self, name: str) -> bytes | None:
        """Return the OpenAPI v3 document of a server that has OpenAPI v2 only."""
        key, _ = self._urls().get(name, (None, ""))
        return None if key is None else self._servers[key].converted or None

    def v2(self, own: bytes, content_type: str, services: Callable[[], Iterable[JSON]]) -> bytes:
        """Return /openapi/v2. own: that of this server in JSON. services: all APIServices, for the order of groups."""
        if own is not self._cached_own:
            self._cache.clear()
            self._cached_own = own
        if content_type not in self._cache:
            document: JSON = msgspec.json.decode(own)
            for key in _by_priority(services()):
                if (spec := self.get(key).spec) is not None:
                    document = merged(document, spec)
            encoded = msgspec.json.encode(document) if content_type == JSON_TYPE else encode(document)
            self._cache[content_type] = encoded
        return self._cache[content_type]

    def _urls(self) -> dict[str, tuple[GroupVersion, str]]:
        """Return group version and URL of every OpenAPI v3 document by its name."""
        urls: dict[str, tuple[GroupVersion, str]] = {}
        for key, documents in sorted(self._servers.items()):
            for name, url in documents.urls.items():
                urls.setdefault(name, (key, url))
        return urls


def _by_priority(services: Iterable[JSON]) -> list[GroupVersion]:
    """Return the group versions of APIServices, the groups with the highest priority first, then by name."""
    specs = [service["spec"] for service in services]
    priorities: dict[str, int] = {}
    for spec in specs:
        group = spec.get("group", "")
        priorities[group] = max(priorities.get(group, 0), spec["groupPriorityMinimum"])
    keys = [(spec.get("group", ""), spec["version"]) for spec in specs]
    return sorted(keys, key=lambda key: (-priorities[key[0]], f"{key[1]}.{key[0]}"))


# --- documents of a server --------------------------------------------------------------------------------------------


class _Url(msgspec.Struct, rename={"url": "serverRelativeURL"}):
    url: str


class _Index(msgspec.Struct):
    paths: dict[str, _Url]


def read_index(body: bytes) -> dict[str, str]:
    """Return the URLs of /openapi/v3 by name. Raises ValueError."""
    return {name: entry.url for name, entry in msgspec.json.decode(body, type=_Index).paths.items()}


def read_spec(body: bytes, key: GroupVersion) -> JSON:
    """Return OpenAPI v2 of a group version: its paths, and what they use. Raises ValueError."""
    spec = msgspec.json.decode(body, type=dict[str, Any])
    spec |= {name: msgspec.convert(spec.get(name) or {}, dict[str, JSON]) for name in ("paths", *_SECTIONS)}
    for definition in spec["definitions"].values():
        msgspec.convert(definition.get(_KINDS) or [], list[dict[str, str]])
    prefix = f"/apis/{'/'.join(key)}/"
    spec = _with_paths(spec, {path: item for path, item in spec["paths"].items() if path.startswith(prefix)})
    try:
        encode({**spec, **_FRAME})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"/openapi/v2 has content that is not supported: {error!r}") from None
    return spec


def _with_paths(spec: JSON, paths: Mapping[str, JSON]) -> JSON:
    """Return a document with some of its paths, without the definitions that only the others use."""
    reduced = {**spec, "paths": paths}
    unused = _used_definitions(spec) - _used_definitions(reduced)
    definitions = {name: value for name, value in spec["definitions"].items() if name not in unused}
    return {**reduced, "definitions": definitions}


def _used_definitions(spec: JSON) -> set[str]:
    """Return the names of the definitions that paths refer to, directly or not."""
    used: set[str] = set()
    pending: list[Any] = [spec["paths"]]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            reference = value.get("$ref")
            if isinstance(reference, str) and reference not in used:
                used.add(reference)
                _, section, name = (*reference.split("/", 2), "", "")[:3]
                pending.append(spec[section].get(name) if section in _SECTIONS else None)
    return {reference.removeprefix("#/definitions/") for reference in used}


# --- merging ----------------------------------------------------------------------------------------------------------


def merged(document: JSON, spec: JSON) -> JSON:
    """Return an OpenAPI v2 document with the paths of another that it lacks, and what these use.

    A definition or parameter that differs from one of the same name gets a name of its own (NAME_v2). Differences of
    descriptions do not count: those of this server are not those of Kubernetes.
    """
    paths = {path: item for path, item in spec["paths"].items() if path not in document["paths"]}
    if not paths:
        return document
    if len(paths) < len(spec["paths"]):
        spec = _with_paths(spec, paths)
    names = {section: dict(_new_names(document[section], spec[section])) for section in _SECTIONS}
    renamed = {
        f"#/{section}/{old}": f"#/{section}/{new}" for section in _SECTIONS for old, new in names[section].items()
    }
    if renamed:
        spec = _with_references(spec, lambda reference: renamed.get(reference, reference))
    result = {**document, "paths": document["paths"] | spec["paths"]}
    for section in _SECTIONS:
        values = result[section] = dict(document[section])
        for old, value in spec[section].items():
            name = names[section].get(old, old)
            values[name] = _with_kinds(values[name], value) if name in values else value
    return result


def _new_names(present: Mapping[str, JSON], added: Mapping[str, JSON]) -> Iterator[tuple[str, str]]:
    """Yield the names in `added` that `present` has with another value, and their new names."""
    taken: set[str] = set()
    for name, value in added.items():
        if name in present and not _is_same(present[name], value):
            candidates = (f"{name}_v{number}" for number in count(2))
            new = next(
                it
                for it in candidates
                if (_is_same(present[it], value) if it in present else it not in added and it not in taken)
            )
            taken.add(new)
            yield name, new


def _is_same(first: JSON, second: JSON) -> bool:
    def comparable(value: Any) -> Any:
        if isinstance(value, list):
            return [comparable(item) for item in value]
        if not isinstance(value, dict):
            return value
        is_text = isinstance(value.get("description"), str)
        return {
            name: comparable(item)
            for name, item in value.items()
            if name != _KINDS and not (is_text and name == "description")
        }

    return bool(comparable(first) == comparable(second))


def _with_kinds(present: JSON, added: JSON) -> JSON:
    """Return a definition with the group version kinds of another."""
    kinds = present.get(_KINDS, [])
    more = [kind for kind in added.get(_KINDS, ()) if kind not in kinds]
    if not more:
        return present
    return {**present, _KINDS: sorted([*kinds, *more], key=_kind_text)}


def _kind_text(kind: JSON) -> str:
    return f"{kind.get('group', '')}/{kind.get('version', '')}.{kind.get('kind', '')}"


def _with_references(value: Any, rename: Callable[[str], str]) -> Any:
    """Return JSON with renamed references."""
    if isinstance(value, list):
        return [_with_references(item, rename) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: rename(item) if name == "$ref" and isinstance(item, str) else _with_references(item, rename)
        for name, item in value.items()
    }


# --- OpenAPI v3 of servers that have OpenAPI v2 only ------------------------------------------------------------------


def converted_documents(spec: JSON, etag: str, key: GroupVersion) -> ServerDocuments:
    """Return the documents of a server without OpenAPI v3, which is converted from OpenAPI v2."""
    name = f"apis/{'/'.join(key)}"
    document = msgspec.json.encode(to_v3(spec))
    digest = sha512(document).hexdigest().upper()
    return ServerDocuments({name: f"/openapi/v3/{name}?hash={digest}"}, spec, etag, document)


def to_v3(spec: JSON) -> JSON:
    """Return an OpenAPI v2 document as OpenAPI v3."""
    components: JSON = {"schemas": _v3_schema(spec["definitions"])}
    if schemes := spec.get("securityDefinitions"):
        components["securitySchemes"] = schemes
    paths = {path: {name: _v3_operation(item) for name, item in entry.items()} for path, entry in spec["paths"].items()}
    return {"openapi": "3.0.0", "info": spec.get("info") or {}, "paths": paths, "components": components}


def _v3_operation(operation: Any) -> Any:
    """Return an operation of a path as OpenAPI v3; the parameters of all operations if it is a list."""
    if isinstance(operation, list):
        return [_v3_parameter(parameter) for parameter in operation]
    if not isinstance(operation, dict):
        return operation
    kept = {name: value for name, value in operation.items() if name not in ("consumes", "produces", "schemes")}
    parameters = operation.get("parameters") or []
    body = next((it["schema"] for it in parameters if it.get("name") == "body" and "schema" in it), None)
    kept["parameters"] = [_v3_parameter(it) for it in parameters if it.get("name") != "body" or "schema" not in it]
    if not kept["parameters"]:
        del kept["parameters"]
    if body is not None:
        kept["requestBody"] = {"content": _content(body, operation.get("consumes"))}
    kept["responses"] = {
        code: {
            "description": response.get("description", ""),
            **({"content": _content(response["schema"], operation.get("produces"))} if "schema" in response else {}),
        }
        for code, response in (operation.get("responses") or {}).items()
    }
    return kept


def _v3_parameter(parameter: JSON) -> JSON:
    if "$ref" in parameter:
        return {"$ref": parameter["$ref"].replace("#/parameters/", "#/components/parameters/", 1)}
    simple = ("type", "format", "uniqueItems", "schema", "collectionFormat", "items", "default")
    schema = parameter.get("schema") or {name: parameter[name] for name in simple[:3] if name in parameter}
    return {name: value for name, value in parameter.items() if name not in simple} | {"schema": _v3_schema(schema)}


def _content(schema: JSON, media_types: Iterable[str] | None) -> JSON:
    return {media_type: {"schema": _v3_schema(schema)} for media_type in media_types or ()}


def _v3_schema(value: Any) -> Any:
    """Return a schema, or schemas by name, as OpenAPI v3; a reference with other fields is wrapped in allOf."""
    if isinstance(value, list):
        return [_v3_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: _v3_schema(item) for name, item in value.items()}
    if not isinstance(reference := result.get("$ref"), str):
        return result
    reference = reference.replace("#/definitions/", "#/components/schemas/", 1)
    del result["$ref"]
    return {**result, "allOf": [{"$ref": reference}]} if result else {"$ref": reference}
