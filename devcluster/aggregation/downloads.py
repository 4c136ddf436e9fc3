"""Documents that this server fetches from an aggregated API server: discovery and OpenAPI.

Source: kube-aggregator pkg/apiserver/handler_discovery.go, pkg/controllers/openapi/aggregator/downloader.go and
pkg/controllers/openapiv3/aggregator/downloader.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.devcluster.aggregation.backend import Backend
from kubeloop.devcluster.aggregation.documents import GroupVersion, stale_version, version_from_list
from kubeloop.devcluster.aggregation.openapi import ServerDocuments, converted_documents, read_index, read_spec
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.kube.client.transport import HttpResponse
from kubeloop.kube.json_object import JSON

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_USER = {"username": "system:aggregator"}
_SECONDS = 10.0


class _Group(msgspec.Struct):
    metadata: dict[str, Any]
    versions: list[dict[str, Any]] = []


class _Discovery(msgspec.Struct):
    kind: str = ""
    items: list[_Group] = []


async def fetch_discovery(backend: Backend, key: GroupVersion, resource_list: bytes, seconds: float) -> JSON:
    """Return the entry of a group version in aggregated discovery, stale if the server has no valid one.

    resource_list: the server's response to a request for the group version. Raises TimeoutError, TransportError,
    UnresolvedService.
    """
    group, version = key
    response = await backend.get("/apis", {"accept": _AGGREGATED}, seconds)
    try:
        discovery = msgspec.json.decode(response.body, type=_Discovery) if response.status == 200 else _Discovery()
        if discovery.kind == "APIGroupDiscoveryList":
            for item in discovery.items:
                for entry in item.versions:
                    if item.metadata.get("name") == group and entry.get("version") == version:
                        return {**entry, "freshness": "Current"}
        return version_from_list(version, msgspec.json.decode(resource_list))
    except (ValueError, LookupError, TypeError, AttributeError):  # not the JSON of discovery
        return stale_version(version)


async def fetch_openapi(backend: Backend, key: GroupVersion, present: ServerDocuments) -> ServerDocuments:
    """Return the OpenAPI of an API server. present: the last documents.

    Raises TimeoutError, TransportError, UnresolvedService, and ValueError for invalid documents.
    """
    index = await _get(backend, "/openapi/v3", {})
    caching = {"if-none-match": present.etag} if present.etag else {}
    response = await _get(backend, "/openapi/v2", caching)
    if response.status == 304:
        spec, etag = present.spec, present.etag
    else:
        spec = None if response.status == 404 else read_spec(response.body, key)
        etag = response.headers.get("etag", "")
    if index.status == 404 and spec is not None:
        return converted_documents(spec, etag, key)
    return ServerDocuments({} if index.status == 404 else read_index(index.body), spec, etag)


async def _get(backend: Backend, path: str, headers: Mapping[str, str]) -> HttpResponse:
    response = await backend.get(path, {"accept": JSON_TYPE, **headers}, _SECONDS, _USER)
    if response.status not in (200, 304, 404):
        raise ValueError(f"{path}: http error: {response.status}")
    return response
