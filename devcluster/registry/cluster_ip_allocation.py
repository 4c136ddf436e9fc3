"""Addresses and node ports of Services, and the IPAddress objects of their addresses.

Source: pkg/registry/core/service and its ipallocator, with the controller that repairs.
"""

from __future__ import annotations

import ipaddress
import random
import uuid
from datetime import datetime, timedelta
from functools import cache

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.api.served_resources import IP_ADDRESSES, SERVICE_CIDRS
from kubeloop.devcluster.registry.server_objects import ServerObject, stamp_object, object_template
from kubeloop.devcluster.registry.service_fields import (
    prepare_addresses_for_create,
    prepare_addresses_for_update,
    needs_cluster_ip,
    node_ports,
    needs_node_ports,
)
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.core.service import needs_health_check
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import SERVICES

SERVICE_CIDR = ipaddress.IPv4Network("10.0.0.0/24")
"""kube-apiserver's default of --service-cluster-ip-range."""
NODE_PORT_RANGE = range(30000, 32768)
RANDOM_TRIES = 64
_INT32 = 1 << 31
_MANAGED_BY, _ALLOCATOR = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"
_LEAK_AGE = timedelta(seconds=60)


class ServiceAllocator:
    """Hands out cluster IPs and node ports; what is taken is read from the store.

    An address has an IPAddress from the write that gives it to a Service to the one that takes it back. network: the
    server's own range; the ServiceCIDRs that somebody adds and declares ready are others.
    """

    def __init__(self, store: Store, clock: Clock, rng: random.Random, network: ipaddress.IPv4Network) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._network = network
        self._ips: dict[str, str] = {}  # to the uid of the Service
        self._ports: dict[int, str] = {}
        self._held: dict[str, tuple[str, list[int]]] = {}  # of a uid: its address and its ports
        store.subscribe(SERVICES, lambda change: self._follow(change.now.object, gone=change.type == "DELETED"))
        for service in store.list(SERVICES):
            self._follow(service, gone=False)

    def repair(self) -> None:
        """Make IPAddresses that Services have not, and remove those that no Service has. Raises NotDurable."""
        table = self._store.table(IP_ADDRESSES)
        for service in self._store.list(SERVICES):
            if address := _cluster_ip(service):
                self._hold(address, service)
        now = self._clock.now()
        for stored in table.list():
            obj = stored.object
            is_ours = obj["metadata"].get("labels", {}).get(_MANAGED_BY) == _ALLOCATOR
            if is_ours and stored.key not in self._ips and _creation_time(obj) < now - _LEAK_AGE:
                table.delete(stored)

    def create(self, service: JSON, *, dry_run: bool) -> None:
        """Fill in, in place, what a new Service's type asks for. Raises StatusError where that cannot be had.

        What is not stored is not taken: a dry run gets an address and ports that nobody has, as in v1.36.
        """
        spec = service["spec"]
        self._refuse(service, prepare_addresses_for_create(spec))
        self._address(service, dry_run=dry_run)
        ports = NodePortOperation(self._ports, self._rng, dry_run=dry_run)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._new_ports(service, ports)
        if needs_health_check(spec):
            _allocate_health_check_port(spec, ports)

    def update(self, service: JSON, old: JSON, *, dry_run: bool) -> None:
        """As create(), for the next version of `old`."""
        spec, before = service["spec"], old["spec"]
        self._refuse(service, prepare_addresses_for_update(spec, before))
        if before.get("type") == "ExternalName" and needs_cluster_ip(spec):
            self._address(service, dry_run=dry_run)
        ports = NodePortOperation(self._ports, self._rng, dry_run=dry_run)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._changed_ports(service, old, ports)
        if needs_health_check(spec) and not needs_health_check(before):
            _allocate_health_check_port(spec, ports)

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

    def _new_ports(self, service: JSON, ports: NodePortOperation) -> None:
        """Ports of one number share a node port, unless they ask for two. Source: initNodePorts."""
        spec = service["spec"]
        chosen: dict[int, int] = {}
        several = spec.get("ports", ())
        for i, each in enumerate(several):
            number, asked = each.get("port", 0), each.get("nodePort", 0)
            if not asked and not needs_node_ports(spec):
                continue
            if number not in chosen:
                wanted = next((p["nodePort"] for p in several if p.get("port", 0) == number and p.get("nodePort")), 0)
                chosen[number] = self._take(service, i, wanted, ports) if wanted else ports.free()
                each["nodePort"] = chosen[number]
            elif not asked:
                each["nodePort"] = chosen[number]
            elif asked != chosen[number]:
                self._take(service, i, asked, ports)

    def _changed_ports(self, service: JSON, old: JSON, ports: NodePortOperation) -> None:
        """Source: updateNodePorts."""
        spec, had = service["spec"], node_ports(old["spec"])
        taken: set[int] = set()
        seen: list[tuple[str, int]] = []
        for i, port in enumerate(spec.get("ports", ())):
            number = port.get("nodePort", 0)
            if not number and not needs_node_ports(spec):
                continue
            if not number:
                port["nodePort"] = number = ports.free()
            elif number not in had and number not in taken:
                taken.add(self._take(service, i, number, ports))
            one = (port.get("protocol", ""), number)
            if one in seen:
                raise errors.internal(f"duplicate nodePort: {{{one[0]} {number}}}")
            seen.append(one)

    def _take(self, service: JSON, index: int, port: int, ports: NodePortOperation) -> int:
        if why := ports.take(port):
            problems = ErrorList()
            problems.invalid(f"spec.ports[{index}].nodePort", port, why)
            self._refuse(service, problems)
        return port

    def _follow(self, service: JSON, *, gone: bool) -> None:
        uid, spec = service["metadata"]["uid"], service.get("spec", {})
        before, ports = self._held.pop(uid, ("", []))
        self._ips.pop(before, None)
        for port in ports:
            self._ports.pop(port, None)
        address = "" if gone else _cluster_ip(service)
        addresses = self._store.table(IP_ADDRESSES)
        if before and before != address and (held := addresses.get(before)) is not None:
            addresses.delete(held)
        if gone:
            return
        ports = [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]
        if spec.get("healthCheckNodePort"):
            ports.append(spec["healthCheckNodePort"])
        self._held[uid] = (address, ports)
        if address:
            self._ips[address] = uid
            self._hold(address, service)
        self._ports |= dict.fromkeys(ports, uid)

    def _hold(self, address: str, service: JSON) -> None:
        """See to it that there is the IPAddress of a Service's address."""
        metadata, table = service["metadata"], self._store.table(IP_ADDRESSES)
        reference = {"resource": "services", "namespace": metadata["namespace"], "name": metadata["name"]}
        before = table.get(address)
        if before is not None:
            if before.object.get("spec", {}).get("parentRef") == reference:
                return
            table.delete(before)
        shape = _ip_address_template()
        named = {**shape, "metadata": {**shape["metadata"], "name": address}, "spec": {"parentRef": reference}}
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        table.create(address, stamp_object(named, uid, rfc3339(self._clock.now())))

    def _networks(self) -> list[ipaddress.IPv4Network]:
        """Where addresses come from, the server's own range first."""
        added = [
            ipaddress.IPv4Network(cidr)
            for each in self._store.list(SERVICE_CIDRS)
            if _is_ready(each)
            for cidr in each["spec"].get("cidrs") or ()
            if ":" not in cidr
        ]
        return [self._network, *(each for each in added if each != self._network)]

    def _is_taken(self, address: str) -> bool:
        return address in self._ips or self._store.table(IP_ADDRESSES).get(address) is not None

    def _claim_ip(self, service: JSON, text: str, *, dry_run: bool) -> None:
        owner, why = self._ips.get(text), ""
        address = ipaddress.ip_address(text)
        network = next((each for each in self._networks() if address in each), None)
        if owner != service["metadata"]["uid"] and self._is_taken(text):
            why = "provided IP is already allocated"
        elif owner is None and not dry_run and network is None:
            why = "the provided network does not match the current range"
        elif owner is None and (network is None or address in (network.network_address, network.broadcast_address)):
            within = network or self._network
            why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {within}"
        if why:
            problems = ErrorList()
            problems.invalid("spec.clusterIPs", service["spec"]["clusterIPs"], f"failed to allocate IP {text}: {why}")
            self._refuse(service, problems)

    def _free_ip(self, name: str) -> str:
        """Any address for the Service of this name. Raises StatusError 500 where none is left."""
        for network in self._networks():
            if address := self._free_ip_of(network):
                return address
        raise errors.internal_error(f"failed to allocate a serviceIP for Service {errors.quoted(name)}: range is full")

    def _free_ip_of(self, network: ipaddress.IPv4Network) -> str:
        """Any of the upper part of the range; of the lower one, for those who name their address, when that is full.

        "" if there is none. Source: KEP-3070, calculateRangeOffset.
        """
        size = network.num_addresses
        lower = min(max(16, size // 16), 256)
        for offset in (
            *(self._rng.randrange(lower, size - 1) for _ in range(RANDOM_TRIES if lower < size - 1 else 0)),
            *range(lower, size - 1),
            *range(1, min(lower, size - 1)),
        ):
            candidate = str(network.network_address + offset)
            if not self._is_taken(candidate):
                return candidate
        return ""


def _cluster_ip(service: JSON) -> str:
    address: str = service.get("spec", {}).get("clusterIP", "")
    return "" if address == "None" else address


def _is_ready(service_cidr: JSON) -> bool:
    return "deletionTimestamp" not in service_cidr["metadata"] and is_true(service_cidr, "Ready")


def _creation_time(obj: JSON) -> datetime:
    """When it was created."""
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"])


@cache
def _ip_address_template() -> JSON:
    """An IPAddress of a Service without name, reference, uid and time."""
    labels = {"ipaddress.kubernetes.io/ip-family": "IPv4", _MANAGED_BY: _ALLOCATOR}
    reference = {"resource": "services", "namespace": "default", "name": "kubernetes"}
    return object_template(IP_ADDRESSES, ServerObject("", labels=labels, content={"spec": {"parentRef": reference}}))


class NodePortOperation:
    """The node ports of one write; a dry run asks whether a port is taken and nothing else.

    Source: pkg/registry/core/service/portallocator/operation.go.
    """

    def __init__(self, owners: dict[int, str], rng: random.Random, *, dry_run: bool) -> None:
        self._owners, self._rng, self._dry_run = owners, rng, dry_run
        self._mine: list[int] = []

    def take(self, port: int) -> str:
        """Take this port, or say why that cannot be."""
        if port not in NODE_PORT_RANGE and not self._dry_run:
            first, last = NODE_PORT_RANGE[0], NODE_PORT_RANGE[-1]
            return f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        if port in self._owners or port in self._mine:
            return "provided port is already allocated"
        self._mine.append(port)
        return ""

    def free(self, what: str = "a nodePort") -> int:
        """Take any. Raises StatusError where all are taken, and `what` is not to be had."""
        port = max(self._mine, default=NODE_PORT_RANGE.stop) + 1 if self._dry_run else self._any(what)
        self._mine.append(port)
        return (port + _INT32) % (2 * _INT32) - _INT32  # a dry run may count beyond what a Service can hold

    def _any(self, what: str) -> int:
        for _ in range(RANDOM_TRIES):
            port = self._rng.choice(NODE_PORT_RANGE)
            if port not in self._owners and port not in self._mine:
                return port
        left = [port for port in NODE_PORT_RANGE if port not in self._owners and port not in self._mine]
        if not left:
            raise errors.internal_error(f"failed to allocate {what}: range is full")
        return self._rng.choice(left)


def _allocate_health_check_port(spec: JSON, ports: NodePortOperation) -> None:
    asked = spec.get("healthCheckNodePort", 0)
    if not asked:
        spec["healthCheckNodePort"] = ports.free("a HealthCheck NodePort 0")
    elif why := ports.take(asked):
        raise errors.internal_error(f"failed to allocate requested HealthCheck NodePort {asked}: {why}")
