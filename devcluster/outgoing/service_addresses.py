"""Addresses at which the API server reaches Services. No pod runs, so they are processes of this machine.

In this order: --resolve, the Service's annotation, an endpoint that is an address of this machine, and the Service's
cluster IP or external name, as kube-apiserver. Source of the errors: apiserver pkg/util/proxy/proxy.go.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubeloop.kube.user_error import UserError
from kubeloop.kube.validation.field_errors import quoted

LOCAL_ADDRESS = "kubeloop.dev/local-address"
"""Annotation of a Service: HOST:PORT of the process that serves it."""

Address = tuple[str, int]


class UnresolvedService(Exception):
    """There is no address for a Service. The text is kube-apiserver's."""


def parse_addresses(entries: Iterable[str]) -> dict[str, Address]:
    """Return the addresses of entries NAME.NAMESPACE.svc[:PORT]=HOST:PORT by name. Raises UserError."""
    addresses = {}
    for entry in entries:
        name, _, text = entry.partition("=")
        address = parse_address(text)
        if not name or address is None:
            raise UserError(
                f"--resolve {entry}: not a name and an address",
                hint="it looks like NAME.NAMESPACE.svc=HOST:PORT, for example webhook.default.svc=127.0.0.1:9443",
            )
        addresses[name] = address
    return addresses


def parse_address(text: str) -> Address | None:
    """Return host and port of HOST:PORT; None if it is no address."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536
    return (host, int(port)) if host and is_port else None


class ServiceAddresses:
    """Addresses of the Services of one store. resolved: those of --resolve, by host or by host:port."""

    def __init__(self, store: ObjectStore, resolved: Mapping[str, Address]) -> None:
        self._store = store
        self._resolved = resolved

    def of_host(self, host: str, port: int) -> Address:
        """Return the address of a host in a URL: by --resolve, else its own."""
        return self._resolved.get(f"{host}:{port}") or self._resolved.get(host) or (host, port)

    def of_service(self, namespace: str, name: str, port: int) -> Address:
        """Return the address of a Service's port. Raises UnresolvedService."""
        host = f"{name}.{namespace}.svc"
        if (address := self.of_host(host, port)) != (host, port):
            return address
        service = self._store.get(SERVICES, namespace, name)
        if service is None:
            raise UnresolvedService(f"service {quoted(name)} not found")
        annotations, spec = service["metadata"].get("annotations") or {}, service["spec"]
        if (annotated := parse_address(annotations.get(LOCAL_ADDRESS, ""))) is not None:
            return annotated
        if spec.get("type") == "ExternalName":
            return spec["externalName"], port
        service_port = next((entry for entry in spec.get("ports") or () if entry["port"] == port), None)
        if service_port is None:
            raise UnresolvedService(f"no service port {port} found for service {quoted(name)}")
        for address in self._endpoints(namespace, name, service_port.get("name") or ""):
            if is_local(address[0]):
                return address
        if spec.get("clusterIP") == "None":
            raise UnresolvedService('cannot route to service with ClusterIP "None"')
        return spec["clusterIP"], port

    def _endpoints(self, namespace: str, service: str, port_name: str) -> Iterator[Address]:
        """Yield the ready endpoints of a Service's port; of Endpoints where no controller creates slices of them."""
        for endpoint_slice in self._store.list(ENDPOINT_SLICES, namespace):
            labels = endpoint_slice["metadata"].get("labels") or {}
            if labels.get("kubernetes.io/service-name") == service:
                ready = (
                    endpoint["addresses"][0]
                    for endpoint in endpoint_slice.get("endpoints") or ()
                    if (endpoint.get("conditions") or {}).get("ready") is not False
                )
                yield from _with_port(ready, endpoint_slice.get("ports") or (), port_name)
        endpoints = self._store.get(ENDPOINTS, namespace, service) or {}
        for subset in endpoints.get("subsets") or ():
            addresses = (address["ip"] for address in subset.get("addresses") or ())
            yield from _with_port(addresses, subset.get("ports") or (), port_name)


def _with_port(addresses: Iterable[str], ports: Iterable[JSON], name: str) -> Iterator[Address]:
    port = next((entry.get("port") for entry in ports if (entry.get("name") or "") == name), None)
    if port is not None:
        for address in addresses:
            yield address, port


@lru_cache(maxsize=1000)
def is_local(address: str) -> bool:
    """Return True if an IP address is one of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
