"""APIServices: which requests are passed on to other API servers, and whether these are available.

Source: kube-aggregator pkg/apiserver, pkg/controllers/status of v1.36.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from kubeloop.devcluster.aggregation.backend import Backend
from kubeloop.devcluster.aggregation.documents import (
    GroupVersion,
    sorted_versions,
    stale_version,
    version_from_list,
    with_aggregated,
    with_groups,
)
from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.request import Request, Response, text_response
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

_RESYNC_SECONDS = 30.0
_CHECK_SECONDS = 5.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.1, 30.0
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Aggregator:
    """Passes requests on to the API servers of APIServices with a Service, and maintains the condition Available."""

    def __init__(
        self, store: ObjectStore, clock: Clock, addresses: ServiceAddresses, front_proxy: FrontProxy | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._addresses = addresses
        self._front_proxy = front_proxy
        self.backends: dict[GroupVersion, Backend] = {}
        self._discovered: dict[GroupVersion, JSON] = {}
        self._abandoned: list[Backend] = []
        self._changed = asyncio.Event()
        for service in store.list(API_SERVICES) if store.data_directory is not None else ():
            self._follow(service)
        store.follow(API_SERVICES, self._note_service)
        for resource in (SERVICES, ENDPOINT_SLICES):
            store.follow(resource, self._note_endpoints)

    async def run(self) -> None:
        """Check the API servers until cancelled: after changes, every 30 s, and more often while one fails."""
        retry_seconds = _FIRST_RETRY_SECONDS
        try:
            while True:
                try:
                    async with asyncio.timeout(retry_seconds if self.backends else None):
                        await self._changed.wait()
                    retry_seconds = _FIRST_RETRY_SECONDS
                except TimeoutError:
                    retry_seconds = min(2 * retry_seconds, _LAST_RETRY_SECONDS)
                self._changed.clear()
                await self._close_abandoned()
                results = [await self._check(version) for version in tuple(self.backends)]
                if all(results):
                    retry_seconds = _RESYNC_SECONDS
        finally:
            self._abandoned += self.backends.values()
            await self._close_abandoned()

    async def _close_abandoned(self) -> None:
        while self._abandoned:
            await self._abandoned.pop().close()

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Response | Handling[Response] | None:
        """Return the response to a request for an aggregated group version; None for other requests."""
        parts = request.path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis":
            return None
        backend = self.backends.get((parts[2], parts[3]))
        if backend is None:
            return None
        service = self._service(parts[2], parts[3])
        condition = None if service is None else condition_of(service, "Available")
        if condition is None or condition["status"] != "True":
            return text_response(503, "service unavailable\n")
        return _pass_on(backend, request)

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
            self.backends[key] = Backend(spec, self._addresses, self._front_proxy)
            self._changed.set()

    def _forget(self, key: GroupVersion) -> None:
        self._discovered.pop(key, None)
        if (backend := self.backends.pop(key, None)) is not None:
            self._abandoned.append(backend)
            self._changed.set()

    def _note_endpoints(self, _change: Change) -> None:
        if self.backends:
            self._changed.set()

    # --- availability -------------------------------------------------------------------------------------------------

    async def _check(self, key: GroupVersion) -> bool:
        """Write the condition Available of an APIService; return it."""
        backend = self.backends.get(key)
        if backend is None:
            return True
        failure = self._service_failure(backend) or await self._discovery_failure(key, backend)
        status, reason, message = ("False", *failure) if failure else ("True", "Passed", "all checks passed")
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
            if (it["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
        ]
        if not slices:
            return "EndpointsNotFound", f"cannot find endpointslices for {where}"
        if not any(_has_endpoint(it, port_name) for it in slices):
            detail = f"have no addresses with port name {quoted(port_name)}"
            return "MissingEndpoints", f"endpointslices for {where} {detail}"
        return None

    async def _discovery_failure(self, key: GroupVersion, backend: Backend) -> tuple[str, str] | None:
        """Return reason and message if the API server does not respond; else store its discovery document."""
        path = "/apis/{}/{}".format(*key)
        try:
            host, port = backend.address()
        except UnresolvedService as error:
            return "FailedDiscoveryCheck", str(error)
        url = f"https://{host}:{port}{path}"
        try:
            response = await backend.get(path, "application/json", _CHECK_SECONDS)
            if not 200 <= response.status < 300:
                problem = f"bad status from {url}: {response.status}"
            else:
                self._discovered[key] = await _discovered(key, backend, response.body)
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


async def _pass_on(backend: Backend, request: Request) -> Response:
    response: Response = await SlowWork(partial(backend.pass_on, request))
    return response


async def _discovered(key: GroupVersion, backend: Backend, resource_list: bytes) -> JSON:
    """Return the entry of a group version in aggregated discovery. Raises ValueError for invalid JSON."""
    group, version = key
    response = await backend.get("/apis", _AGGREGATED, _CHECK_SECONDS)
    content: Any = msgspec.json.decode(response.body) if response.status == 200 else {}
    for item in content.get("items") or ():
        if content.get("kind") == "APIGroupDiscoveryList" and item["metadata"].get("name") == group:
            for entry in item.get("versions") or ():
                if entry["version"] == version:
                    return {**entry, "freshness": "Current"}
    return version_from_list(version, msgspec.json.decode(resource_list))


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
