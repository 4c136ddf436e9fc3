"""Addresses and node ports of Services. Source: pkg/registry/core/service."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.service_fields import (
    begin_create,
    begin_update,
    needs_cluster_ip,
    node_ports,
    takes_node_ports,
)
from kubeloop.devcluster.storage import Store
from kubeloop.devcluster.validation.field import Errors
from kubeloop.devcluster.validation.services import needs_health_check
from kubeloop.kube.resources import SERVICES

JSON = dict[str, Any]

SERVICE_RANGE = ipaddress.IPv4Network("10.0.0.0/24")
"""kube-apiserver's default of --service-cluster-ip-range."""
NODE_PORTS = range(30000, 32768)
_TRIES = 64
_INT32 = 1 << 31


class ServiceAddresses:
    """Hands out cluster IPs and node ports; what is taken is read from the store."""

    def __init__(self, store: Store, rng: random.Random, network: ipaddress.IPv4Network) -> None:
        self._store = store
        self._rng = rng
        self._network = network
        self._nobodys = (str(network.network_address), str(network.broadcast_address))
        self._ips: dict[str, str] = {}  # to the uid of the Service
        self._ports: dict[int, str] = {}
        self._held: dict[str, tuple[str, list[int]]] = {}  # of a uid: its address and its ports
        store.subscribe(SERVICES, lambda change: self._follow(change.now.object, gone=change.type == "DELETED"))
        for service in store.list(SERVICES):
            self._follow(service, gone=False)

    def create(self, service: JSON, *, dry_run: bool) -> None:
        """Fill in, in place, what a new Service's type asks for. Raises StatusError where that cannot be had.

        What is not stored is not taken: a dry run gets an address and ports that nobody has, as in v1.36.
        """
        spec = service["spec"]
        self._refuse(service, begin_create(spec))
        self._address(service, dry_run=dry_run)
        ports = _Ports(self._ports, self._rng, dry_run=dry_run)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._new_ports(service, ports)
        if needs_health_check(spec):
            _health_check(spec, ports)

    def update(self, service: JSON, old: JSON, *, dry_run: bool) -> None:
        """As create(), for the next version of `old`."""
        spec, before = service["spec"], old["spec"]
        self._refuse(service, begin_update(spec, before))
        if before.get("type") == "ExternalName" and needs_cluster_ip(spec):
            self._address(service, dry_run=dry_run)
        ports = _Ports(self._ports, self._rng, dry_run=dry_run)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._changed_ports(service, old, ports)
        if needs_health_check(spec) and not needs_health_check(before):
            _health_check(spec, ports)

    def _refuse(self, service: JSON, causes: list[JSON]) -> None:
        if causes:
            raise errors.invalid("", "Service", service["metadata"].get("name", ""), causes)

    def _address(self, service: JSON, *, dry_run: bool) -> None:
        spec = service["spec"]
        addresses = spec.get("clusterIPs") or []
        if not needs_cluster_ip(spec) or addresses[:1] == ["None"]:
            return
        if addresses:
            self._claim_ip(service, addresses[0], dry_run=dry_run)
        else:
            name = service["metadata"].get("name", "")
            spec["clusterIP"] = str(self._network.network_address) if dry_run else self._free_ip(name)
            spec["clusterIPs"] = [spec["clusterIP"]]

    def _new_ports(self, service: JSON, ports: _Ports) -> None:
        """Ports of one number share a node port, unless they ask for two. Source: initNodePorts."""
        spec = service["spec"]
        chosen: dict[int, int] = {}
        several = spec.get("ports", ())
        for i, each in enumerate(several):
            number, asked = each.get("port", 0), each.get("nodePort", 0)
            if not asked and not takes_node_ports(spec):
                continue
            if number not in chosen:
                wanted = next((p["nodePort"] for p in several if p.get("port", 0) == number and p.get("nodePort")), 0)
                chosen[number] = self._take(service, i, wanted, ports) if wanted else ports.free()
                each["nodePort"] = chosen[number]
            elif not asked:
                each["nodePort"] = chosen[number]
            elif asked != chosen[number]:
                self._take(service, i, asked, ports)

    def _changed_ports(self, service: JSON, old: JSON, ports: _Ports) -> None:
        """Source: updateNodePorts."""
        spec, had = service["spec"], node_ports(old["spec"])
        taken: set[int] = set()
        seen: list[tuple[str, int]] = []
        for i, each in enumerate(spec.get("ports", ())):
            number = each.get("nodePort", 0)
            if not number and not takes_node_ports(spec):
                continue
            if not number:
                each["nodePort"] = number = ports.free()
            elif number not in had and number not in taken:
                taken.add(self._take(service, i, number, ports))
            one = (each.get("protocol", ""), number)
            if one in seen:
                raise errors.internal(f"duplicate nodePort: {{{one[0]} {number}}}")
            seen.append(one)

    def _take(self, service: JSON, index: int, port: int, ports: _Ports) -> int:
        if why := ports.take(port):
            wrong = Errors()
            wrong.invalid(f"spec.ports[{index}].nodePort", port, why)
            self._refuse(service, wrong)
        return port

    def _follow(self, service: JSON, *, gone: bool) -> None:
        uid, spec = service["metadata"]["uid"], service.get("spec", {})
        address, ports = self._held.pop(uid, ("", []))
        self._ips.pop(address, None)
        for port in ports:
            self._ports.pop(port, None)
        if gone:
            return
        address = "" if spec.get("clusterIP") == "None" else spec.get("clusterIP", "")
        ports = [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]
        if spec.get("healthCheckNodePort"):
            ports.append(spec["healthCheckNodePort"])
        self._held[uid] = (address, ports)
        if address:
            self._ips[address] = uid
        self._ports |= dict.fromkeys(ports, uid)

    def _claim_ip(self, service: JSON, text: str, *, dry_run: bool) -> None:
        owner, why = self._ips.get(text), ""
        if owner is not None and owner != service["metadata"]["uid"]:
            why = "provided IP is already allocated"
        elif owner is None and not dry_run and ipaddress.ip_address(text) not in self._network:
            why = "the provided network does not match the current range"
        elif owner is None and (ipaddress.ip_address(text) not in self._network or text in self._nobodys):
            why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {self._network}"
        if why:
            wrong = Errors()
            wrong.invalid("spec.clusterIPs", service["spec"]["clusterIPs"], f"failed to allocate IP {text}: {why}")
            self._refuse(service, wrong)

    def _free_ip(self, name: str) -> str:
        """Any address for the Service of this name.

        Of the upper part of the range; of the lower one, for those who name their address, when that is full.

        Source: KEP-3070, calculateRangeOffset.
        """
        size = self._network.num_addresses
        lower = min(max(16, size // 16), 256)
        for offset in (
            *(self._rng.randrange(lower, size - 1) for _ in range(_TRIES if lower < size - 1 else 0)),
            *range(lower, size - 1),
            *range(1, min(lower, size - 1)),
        ):
            candidate = str(self._network.network_address + offset)
            if candidate not in self._ips:
                return candidate
        raise errors.internal_error(f"failed to allocate a serviceIP for Service {errors.quoted(name)}: range is full")


class _Ports:
    """The node ports of one write; a dry run asks whether a port is taken and nothing else.

    Source: pkg/registry/core/service/portallocator/operation.go.
    """

    def __init__(self, owners: dict[int, str], rng: random.Random, *, dry_run: bool) -> None:
        self._owners, self._rng, self._dry_run = owners, rng, dry_run
        self._mine: list[int] = []

    def take(self, port: int) -> str:
        """Take this port, or say why that cannot be."""
        if port not in NODE_PORTS and not self._dry_run:
            first, last = NODE_PORTS[0], NODE_PORTS[-1]
            return f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        if port in self._owners or port in self._mine:
            return "provided port is already allocated"
        self._mine.append(port)
        return ""

    def free(self, what: str = "a nodePort") -> int:
        """Take any. Raises StatusError where all are taken, and `what` is not to be had."""
        port = max(self._mine, default=NODE_PORTS.stop) + 1 if self._dry_run else self._any(what)
        self._mine.append(port)
        return (port + _INT32) % (2 * _INT32) - _INT32  # a dry run may count beyond what a Service can hold

    def _any(self, what: str) -> int:
        for _ in range(_TRIES):
            port = self._rng.choice(NODE_PORTS)
            if port not in self._owners and port not in self._mine:
                return port
        left = [port for port in NODE_PORTS if port not in self._owners and port not in self._mine]
        if not left:
            raise errors.internal_error(f"failed to allocate {what}: range is full")
        return self._rng.choice(left)


def _health_check(spec: JSON, ports: _Ports) -> None:
    asked = spec.get("healthCheckNodePort", 0)
    if not asked:
        spec["healthCheckNodePort"] = ports.free("a HealthCheck NodePort 0")
    elif why := ports.take(asked):
        raise errors.internal_error(f"failed to allocate requested HealthCheck NodePort {asked}: {why}")
