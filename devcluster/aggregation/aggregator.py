"""APIServices: which requests are passed on to other API servers, and whether these are available.

Source: kube-aggregator pkg/apiserver, pkg/controllers/status of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kubeloop.devcluster.aggregation.documents import (
    GroupVersion,
    sorted_versions,
    stale_version,
    with_aggregated,
    with_groups,
)
from kubeloop.devcluster.aggregation.proxy_settings import DEFAULT_SETTINGS, ProxySettings
from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.request import JSON_TYPE, ApiRequest, Response, text_response
from kubeloop.devcluster.api.served_resources import API_SERVICES, get_served_resource
from kubeloop.devcluster.api.slow_work import Handling, SlowWork
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.authentication.front_proxy import FrontProxy
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.openapi import discovery
from kubeloop.devcluster.outgoing.service_addresses import LOCAL_ADDRESS, ServiceAddresses, UnresolvedService
from kubeloop.devcluster.outgoing.webhook_client import go_message
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, SERVICES
from kubeloop.kube.validation.field_errors import quoted

if TYPE_CHECKING:
    from kubeloop.devcluster.aggregation.backend import Backend
    from kubeloop.devcluster.aggregation.openapi import AggregatedOpenApi

log = logging.getLogger(__name__)

_RESYNC_SECONDS = 30.0
_CHECK_SECONDS = 5.0
_DOWNLOAD_SECONDS = 60.0  # between downloads of OpenAPI
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.1, 30.0
_SERVICE_NAME = "kubernetes.io/service-name"  # label of an EndpointSlice
_V3_PATH = "/openapi/v3/"


class Aggregator:
    """Passes requests on to the API servers of APIServices with a Service, and maintains the condition Available."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        addresses: ServiceAddresses,
        front_proxy: FrontProxy | None,
        settings: ProxySettings = DEFAULT_SETTINGS,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._addresses = addresses
        self._front_proxy = front_proxy
        self.backends: dict[GroupVersion, Backend] = {}
        self._discovered: dict[GroupVersion, JSON] = {}
        self._abandoned: list[Backend] = []
        self._changed, self._available = asyncio.Event(), asyncio.Event()
        for service in store.list(API_SERVICES) if store.data_directory is not None else ():
            self._follow(service)
        store.follow(API_SERVICES, self._note_service)
        for resource in (SERVICES, ENDPOINT_SLICES):
            store.follow(resource, self._note_endpoints)

    @cached_property
    def _openapi(self) -> AggregatedOpenApi:
        from kubeloop.devcluster.aggregation.openapi import AggregatedOpenApi  # few clusters have aggregated servers

        return AggregatedOpenApi()

    async def run(self) -> None:
        """Check the API servers and download their OpenAPI until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check_servers(), name="availability of API servers")
                group.create_task(self._download_documents(), name="OpenAPI of API servers")
        finally:
            self._abandoned += self.backends.values()
            await self._close_abandoned()

    async def _check_servers(self) -> None:
        """Check availability after changes, every 30 s, and more often while a server fails."""
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            try:
                async with asyncio.timeout(retry_seconds if self.backends else None):
                    await self._changed.wait()
                retry_seconds = _FIRST_RETRY_SECONDS
            except TimeoutError:
                retry_seconds = min(2 * retry_seconds, _LAST_RETRY_SECONDS)
            self._changed.clear()
            await self._close_abandoned()
            async with asyncio.TaskGroup() as group:
                checks = [group.create_task(self._check(key)) for key in self.backends]
            if all(check.result() for check in checks):
                retry_seconds = _RESYNC_SECONDS

    async def _download_documents(self) -> None:
        """Download the OpenAPI of servers after they become available, and every minute."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DOWNLOAD_SECONDS if self.backends else None):
                    await self._available.wait()
            self._available.clear()
            async with asyncio.TaskGroup() as group:
                for key, backend in self.backends.items():
                    if backend.is_available:
                        group.create_task(self._download(key, backend))

    async def _download(self, key: GroupVersion, backend: Backend) -> None:
        """Download the OpenAPI of a server; if that fails, the last documents remain."""
        from kubeloop.devcluster.aggregation.downloads import fetch_openapi

        present = self._openapi.get(key)
        try:
            documents = await fetch_openapi(backend, key, present)
        except (TimeoutError, TransportError, UnresolvedService, ValueError) as error:
            log.warning("no OpenAPI from the API server of %s.%s: %s", key[1], key[0], error)
            return
        if documents != present and self.backends.get(key) is backend:
            self._openapi.set(key, documents)

    async def _close_abandoned(self) -> None:
        while self._abandoned:
            await self._abandoned.pop().close()

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, request: ApiRequest) -> Response | Handling[Response] | None:
        """Return the response to a request for an aggregated group version; None for other requests."""
        parts = request.path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis":
            return None
        key = parts[2], parts[3]
        return self._respond(key, request) if key in self.backends else None

    def _respond(self, key: GroupVersion, request: ApiRequest) -> Response | Handling[Response]:
        service = self._service(*key)
        condition = None if service is None else condition_of(service, "Available")
        if condition is None or condition["status"] != "True":
            return text_response(503, "service unavailable\n")
        return _pass_on(self.backends[key], request)

    def discovery(self, path: str, accept: str, document: tuple[JSON, str] | None) -> tuple[JSON, str] | None:
        """Return the discovery document at a path and its content type, with the groups of aggregated API servers.

        document: what the server has at the path without them. Raises StatusError 406.
        """
        services = self._store.list(API_SERVICES)
        groups = {group: sorted_versions(services, group) for group, _ in self.backends}
        name = path.strip("/").removeprefix("apis").removeprefix("/")
        if name in groups:
            content = {"kind": "APIGroup", "apiVersion": "v1", **discovery.api_group(name, groups[name])}
            return content, discovery.discovery_content_type(path, accept)
        if name or document is None:
            return document
        content, form = document
        if not discovery.is_aggregated(form):
            return with_groups(content, groups), form
        remote = {key: self._discovered.get(key) or stale_version(key[1]) for key in self.backends}
        return with_aggregated(content, groups, remote), form

    def openapi(
        self, path: str, document: tuple[bytes, str] | None, own_v2: Callable[[], bytes]
    ) -> tuple[bytes, str] | None:
        """Return the OpenAPI document at a path and its content type, with those of aggregated API servers.

        document: what the server has at the path without them. own_v2: returns its /openapi/v2 in JSON.
        """
        if document is None:
            converted = self._openapi.converted(path.removeprefix(_V3_PATH))
            return None if converted is None else (converted, JSON_TYPE)
        content, form = document
        if path == "/openapi/v3":
            return self._openapi.index(content), form
        if path == "/openapi/v2":
            return self._openapi.v2(own_v2(), form, partial(self._store.list, API_SERVICES)), form
        return document

    def handle_openapi(self, request: ApiRequest) -> Response | Handling[Response] | None:
        """Return the OpenAPI v3 document of an aggregated API server; None for other requests."""
        key = self._openapi.server_of(request.path.rstrip("/").removeprefix(_V3_PATH))
        return None if key is None else self._respond(key, request)

    # --- APIServices --------------------------------------------------------------------------------------------------

    def _service(self, group: str, version: str) -> JSON | None:
        return self._store.get(API_SERVICES, "", f"{version}.{group}")

    def _note_service(self, change: Change) -> None:
        service = change.now.object
        if change.type == "DELETED":
            self._forget(_group_version(service))
        else:
            self._follow(service)

    def _follow(self, service: JSON) -> None:
        key, spec = _group_version(service), service["spec"]
        present = self.backends.get(key)
        if present is not None and present.spec == spec:
            return
        self._forget(key)
        if spec.get("service"):
            from kubeloop.devcluster.aggregation.backend import Backend

            self.backends[key] = Backend(spec, self._addresses, self._front_proxy, self._settings)
            self._changed.set()

    def _forget(self, key: GroupVersion) -> None:
        if (backend := self.backends.pop(key, None)) is not None:
            self._discovered.pop(key, None)
            self._openapi.set(key, None)
            self._abandoned.append(backend)
            self._changed.set()

    def _note_endpoints(self, change: Change) -> None:
        metadata = change.now.object["metadata"]
        names = metadata["name"], (metadata.get("labels") or {}).get(_SERVICE_NAME)
        services = [backend.spec["service"] for backend in self.backends.values()]
        if any(it["namespace"] == metadata["namespace"] and it["name"] in names for it in services):
            self._changed.set()

    # --- availability -------------------------------------------------------------------------------------------------

    async def _check(self, key: GroupVersion) -> bool:
        """Write the condition Available of an APIService; return it."""
        backend = self.backends.get(key)
        if backend is None:
            return True
        failure = self._service_failure(backend) or await self._discovery_failure(key, backend)
        status, reason, message = ("False", *failure) if failure else ("True", "Passed", "all checks passed")
        if not failure and not backend.is_available:
            self._available.set()
        backend.is_available = not failure
        if self.backends.get(key) is backend:
            self._write_condition(key, {"type": "Available", "status": status, "reason": reason, "message": message})
        return not failure

    def _service_failure(self, backend: Backend) -> tuple[str, str] | None:
        """Return reason and message if the Service has no endpoint that could be called."""
        reference = backend.spec["service"]
        namespace, name, port = reference["namespace"], reference["name"], reference["port"]
        if self._addresses.of_host(backend.host, port) != (backend.host, port):
            return None  # by --resolve, whether or not there is a Service
        where = f"service/{name} in {quoted(namespace)}"
        service = self._store.get(SERVICES, namespace, name)
        if service is None:
            return "ServiceNotFound", f"{where} is not present"
        spec, annotations = service["spec"], service["metadata"].get("annotations") or {}
        if spec.get("type", "ClusterIP") != "ClusterIP" or LOCAL_ADDRESS in annotations:
            return None
        port_name = next((it.get("name", "") for it in spec.get("ports") or () if it["port"] == port), None)
        if port_name is None:
            return "ServicePortError", f"{where} is not listening on port {port}"
        slices = [
            it
            for it in self._store.list(ENDPOINT_SLICES, namespace)
            if (it["metadata"].get("labels") or {}).get(_SERVICE_NAME) == name
        ]
        if not slices:
            return "EndpointsNotFound", f"cannot find endpointslices for {where}"
        if not any(_has_endpoint(it, port_name) for it in slices):
            detail = f"have no addresses with port name {quoted(port_name)}"
            return "MissingEndpoints", f"endpointslices for {where} {detail}"
        return None

    async def _discovery_failure(self, key: GroupVersion, backend: Backend) -> tuple[str, str] | None:
        """Return reason and message if the API server does not respond; else store its discovery document."""
        from kubeloop.devcluster.aggregation.downloads import fetch_discovery

        path = "/apis/{}/{}".format(*key)
        try:
            host, port = backend.address()
        except UnresolvedService as error:
            return "FailedDiscoveryCheck", str(error)
        url = f"https://{host}:{port}{path}"
        try:
            response = await backend.get(path, {"accept": JSON_TYPE}, _CHECK_SECONDS)
            if not 200 <= response.status < 300:
                problem = f"bad status from {url}: {response.status}"
            else:
                self._discovered[key] = await fetch_discovery(backend, key, response.body, _CHECK_SECONDS)
                return None
        except TimeoutError:
            problem = f"Get {quoted(url)}: context deadline exceeded"
        except TransportError as error:
            problem = f"Get {quoted(url)}: {go_message(error, (host, port))}"
        except (UnresolvedService, ValueError) as error:
            problem = str(error)
        self._discovered.pop(key, None)
        return "FailedDiscoveryCheck", f"failing or missing response from {url}: {problem}"

    def _write_condition(self, key: GroupVersion, condition: JSON) -> None:
        service = self._service(*key)
        if service is None:
            return
        present = condition_of(service, "Available") or {}
        if all(present.get(name) == value for name, value in condition.items()):
            return
        now = rfc3339(self._clock.now())
        same = present.get("status") == condition["status"]
        condition = {**condition, "lastTransitionTime": present["lastTransitionTime"] if same else now}
        others = [it for it in (service.get("status") or {}).get("conditions") or () if it["type"] != "Available"]
        updated = {**service, "metadata": dict(service["metadata"]), "status": {"conditions": [*others, condition]}}
        served = get_served_resource(API_SERVICES)
        track_update(served, updated, service, Writer("kube-apiserver"), lambda: now, subresource="status")
        self._store.update(API_SERVICES, updated)


async def _pass_on(backend: Backend, request: ApiRequest) -> Response:
    response: Response = await SlowWork(partial(backend.pass_on, request))
    return response


def _group_version(service: JSON) -> GroupVersion:
    return service["spec"].get("group", ""), service["spec"]["version"]


def _has_endpoint(endpoint_slice: JSON, port_name: str) -> bool:
    """Return True if a slice has a ready endpoint and the port."""
    is_ready = any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for endpoint in endpoint_slice.get("endpoints") or ()
    )
    ports = endpoint_slice.get("ports") or ()
    return is_ready and any(it.get("name", "") == port_name and it.get("port") is not None for it in ports)
