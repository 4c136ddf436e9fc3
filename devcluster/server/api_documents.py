"""Responses with discovery and OpenAPI documents: content negotiation, ETags, redirects by hash.

Source: apiserver endpoints/discovery (aggregated/etag.go), kube-openapi pkg/handler and pkg/handler3.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from hashlib import sha512
from typing import TYPE_CHECKING

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, PROTOBUF_TYPE, ApiRequest, Response
from kubeloop.devcluster.api.served_resources import group_versions
from kubeloop.devcluster.api.slow_work import Handling
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.openapi.discovery import get_discovery_document, is_aggregated
from kubeloop.devcluster.serializer.negotiation import matches_content_type
from kubeloop.devcluster.serializer.responses import encode_protobuf, encode_yaml
from kubeloop.devcluster.server.health_paths import indented, not_found
from kubeloop.devcluster.server.metrics_api import metrics_discovery
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.aggregation.aggregator import Aggregator
    from kubeloop.devcluster.apiextensions.openapi_documents import CustomResourceDocuments

_V3 = "/openapi/v3/"


class ApiDocuments:
    """The documents of one server.

    api_gates: see served_resources.api_gates(). Documents of custom resources, and OpenAPI, are imported on first use:
    controllers read neither.
    """

    def __init__(
        self,
        definitions: Definitions,
        gates: FeatureGates,
        api_gates: frozenset[str],
        *,
        serves_metrics: bool,
        aggregator: Aggregator | None = None,
    ) -> None:
        self._definitions = definitions
        self._aggregator = aggregator
        self._serves_metrics = serves_metrics
        self._publishes_enums = gates.enabled("OpenAPIEnums")
        self._hides_storage_hashes = not gates.enabled("StorageVersionHash")
        self._api_gates = api_gates

    def response(self, request: ApiRequest) -> Response | Handling[Response] | None:
        """Return the document at a path, None for other paths. Raises StatusError 405, 406, 415."""
        path = request.path.rstrip("/")
        accept, content_type = request.headers.get("accept", ""), request.headers.get("content-type", "")
        if path.startswith("/openapi/"):
            return self._openapi(request, path, accept)
        if path == "/version" and request.method == "GET" and not matches_content_type(content_type, (JSON_TYPE,)):
            raise errors.unsupported_media_type()
        document = self._discovery(request.path, accept)
        if document is None:
            return None
        behind_restful = path.count("/") > 2 or not path.startswith("/apis")
        if request.method != "GET" and behind_restful:
            raise errors.method_not_allowed()
        if behind_restful and not matches_content_type(content_type):
            raise errors.unsupported_media_type()
        content, form = document
        if path == "/version":
            return indented(200, content)
        if content["kind"] == "APIVersions" and (host := request.headers.get("host")):
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": host}  # the address that the client used
            content = {**content, "serverAddressByClientCIDRs": [address]}
        elif self._hides_storage_hashes and content["kind"] == "APIResourceList" and self._is_built_in(content):
            content = {**content, "resources": [_without_storage_hash(entry) for entry in content["resources"]]}
        body = msgspec.json.encode(content) + b"\n"
        digest = _digest(body) if is_aggregated(form) else ""  # of the JSON, whatever the response's encoding
        if form.startswith("application/yaml"):
            body = encode_yaml(content)
        elif form.startswith(PROTOBUF_TYPE):
            body = encode_protobuf(content) or body
        response = Response(200, body, form)
        return _cached(request, response, digest, caching="public") if digest else response

    def _discovery(self, path: str, accept: str) -> tuple[JSON, str] | None:
        document = (
            self._documents.discovery(path, accept)
            if self._definitions.serves_custom_resources
            else get_discovery_document(path, accept, self._api_gates)
        )
        if self._serves_metrics and path.startswith("/apis"):
            document = metrics_discovery(path, accept, document)
        if self._aggregator is not None and self._aggregator.backends and path.startswith("/apis"):
            return self._aggregator.discovery(path, accept, document)
        return document

    @cached_property
    def _documents(self) -> CustomResourceDocuments:
        from kubeloop.devcluster.apiextensions.openapi_documents import CustomResourceDocuments

        return CustomResourceDocuments(self._definitions, enums=self._publishes_enums, gates=self._api_gates)

    def _is_built_in(self, resource_list: JSON) -> bool:
        group, _, version = resource_list["groupVersion"].rpartition("/")
        return (group, version) in group_versions(self._api_gates)

    def _openapi(self, request: ApiRequest, path: str, accept: str) -> Response | Handling[Response]:
        own = document = self._documents.openapi(path, accept)
        if self._aggregator is not None and self._aggregator.backends:
            if document is None and (response := self._aggregator.handle_openapi(request)) is not None:
                return response
            document = self._aggregator.openapi(path, document, self._own_v2)
        if document is None:
            if self._documents.openapi(path, "") is not None:
                return Response(406, b"", "", [("Vary", "Accept")])
            return Response(404, b"", "") if path.startswith(_V3) else not_found()
        response = Response(200, *document)
        if path == "/openapi/v3":
            return response
        is_own_v3 = own is not None and path.startswith(_V3)
        digest = self._documents.digest(path.removeprefix(_V3)) if is_own_v3 else _digest(document[0])
        requested_hash = request.option("hash")
        if requested_hash and requested_hash != digest:
            headers = [("Location", f"{path}?hash={digest}"), ("Vary", "Accept"), ("Etag", f'"{digest}"')]
            return Response(301, b"", headers=headers)
        return _cached(request, response, digest, caching="public, immutable" if requested_hash else "")

    def _own_v2(self) -> bytes:
        """Return /openapi/v2 in JSON without aggregated API servers."""
        document = self._documents.openapi("/openapi/v2", JSON_TYPE)
        assert document is not None
        return document[0]


def _without_storage_hash(resource: JSON) -> JSON:
    return {name: value for name, value in resource.items() if name != "storageVersionHash"}


def _cached(request: ApiRequest, response: Response, digest: str, *, caching: str) -> Response:
    """Add the ETag to a response, or return 304 if the client has this version."""
    etag = f'"{digest}"'
    response.headers += [("Etag", etag), ("Vary", "Accept")]
    response.caching = caching
    if etag in request.headers.get("if-none-match", ""):
        return Response(304, b"", "", response.headers, caching=caching)
    return response


@lru_cache(maxsize=64)
def _digest(content: bytes) -> str:
    return sha512(content).hexdigest().upper()
