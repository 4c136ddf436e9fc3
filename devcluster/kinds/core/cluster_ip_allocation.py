"""Allocation of cluster IPs for Services, with their IPAddress objects; `node_port_allocation` allocates the ports.

Source: pkg/registry/core/service/ipallocator, and the controller that repairs it.
"""

from __future__ import annotations

import ipaddress
import random
from datetime import datetime, timedelta
from functools import cache
from itertools import chain

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import IP_ADDRESSES, SERVICE_CIDRS
from kubeloop.devcluster.kinds.core.node_port_allocation import (
    NODE_PORT_RANGE,
    RANDOM_TRIES,
    NodePortOperation,
    allocate_health_check_port,
)
from kubeloop.devcluster.kinds.core.service_addresses import (
    needs_cluster_ip,
    needs_health_check,
    needs_node_ports,
    node_ports,
    prepare_addresses_for_create,
    prepare_addresses_for_update,
)
from kubeloop.devcluster.registry.server_objects import ServerObject, object_template, stamp_object
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import SERVICES
from kubeloop.kube.uids import new_uid
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.ip_addresses import allocated_ip
from kubeloop.kube.values.times import parse_time

SERVICE_CIDR = ipaddress.IPv4Network("10.0.0.0/24")
"""kube-apiserver's default of --service-cluster-ip-range."""
_MANAGED_BY, _ALLOCATOR = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"
_NOT_READY = "allocator not ready"
_LEAK_AGE = timedelta(seconds=60)


class ServiceAllocator:
    """Allocates cluster IPs and node ports; the store's Services determine which are allocated.

    Addresses come from the ranges of the ServiceCIDRs that are ready, the server's own among them. An IPAddress exists
    from the write that gives the address to a Service to the write that releases it. error_list: with the server's
    feature gates.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        rng: random.Random,
        error_list: type[ErrorList] = ErrorList,
        node_ports: range = NODE_PORT_RANGE,
    ) -> None:
        self._node_ports = node_ports
        self._store = store
        self._clock = clock
        self._rng = rng
        self._error_list = error_list
        self._owner_by_ip: dict[str, str] = {}  # uid of the Service
        self._owner_by_port: dict[int, str] = {}
        self._allocated_by_uid: dict[str, tuple[str, list[int]]] = {}  # cluster IP and ports of a Service
        store.subscribe(SERVICES, lambda change: self._track(change.now.object, deleted=change.type == "DELETED"))
        for service in store.list(SERVICES):
            self._track(service, deleted=False)

    def repair(self) -> bool:
        """Create missing IPAddresses of Services, and delete those without a Service, unless they are new.

        Returns True if there are new ones. Raises NotDurable.
        """
        table = self._store.table(IP_ADDRESSES)
        for service in self._store.list(SERVICES):
            if address := _cluster_ip(service):
                self._ensure_ip_address(address, service)
        now, has_new = self._clock.now(), False
        for stored in table.list():
            obj = stored.object
            is_ours = obj["metadata"].get("labels", {}).get(_MANAGED_BY) == _ALLOCATOR
            if is_ours and stored.key not in self._owner_by_ip:
                if _creation_time(obj) < now - _LEAK_AGE:
                    table.delete(stored)
                else:
                    has_new = True
        return has_new

    def create(self, service: JSON, *, dry_run: bool) -> None:
        """Allocate, in place, what a new Service needs. Raises StatusError if an allocation fails.

        A dry run allocates nothing: its address and ports are placeholders, as in v1.36.
        """
        spec = service["spec"]
        self._raise_if_invalid(service, prepare_addresses_for_create(spec, self._error_list))
        self._allocate_cluster_ip(service, dry_run=dry_run)
        ports = NodePortOperation(self._owner_by_port, self._rng, dry_run=dry_run, ports=self._node_ports)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._allocate_node_ports(service, ports)
        if needs_health_check(spec):
            allocate_health_check_port(spec, ports)

    def update(self, service: JSON, old: JSON, *, dry_run: bool) -> None:
        """Allocate, in place, what an updated Service needs in addition to `old`; otherwise as create()."""
        spec, before = service["spec"], old["spec"]
        self._raise_if_invalid(service, prepare_addresses_for_update(spec, before, self._error_list))
        if before.get("type") == "ExternalName" and needs_cluster_ip(spec):
            self._allocate_cluster_ip(service, dry_run=dry_run)
        ports = NodePortOperation(self._owner_by_port, self._rng, dry_run=dry_run, ports=self._node_ports)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._update_node_ports(service, old, ports)
        if needs_health_check(spec) and not needs_health_check(before):
            allocate_health_check_port(spec, ports)

    def are_taken(self, service: JSON) -> bool:
        """Return True if another object has taken an address or port since create() or update() allocated it."""
        uid, address = service["metadata"]["uid"], _cluster_ip(service)
        if address and self._owner_by_ip.get(address) != uid and self._is_taken(address):
            return True
        return any(self._owner_by_port.get(port, uid) != uid for port in _ports_of(service))

    def _raise_if_invalid(self, service: JSON, causes: list[JSON]) -> None:
        if causes:
            raise errors.invalid("", "Service", service["metadata"].get("name", ""), causes)

    def _allocate_cluster_ip(self, service: JSON, *, dry_run: bool) -> None:
        spec = service["spec"]
        addresses = spec.get("clusterIPs") or []
        if not needs_cluster_ip(spec) or addresses[:1] == ["None"]:
            return
        if addresses:
            self._claim_ip(service, addresses[0], dry_run=dry_run)
        else:
            spec["clusterIP"] = self._any_free_ip(service["metadata"].get("name", ""), dry_run=dry_run)
            spec["clusterIPs"] = [spec["clusterIP"]]

    def _allocate_node_ports(self, service: JSON, ports: NodePortOperation) -> None:
        """Allocate node ports; equal ports share one, unless the request names two. Source: initNodePorts."""
        spec = service["spec"]
        chosen: dict[int, int] = {}
        service_ports = spec.get("ports", ())
        for i, port in enumerate(service_ports):
            number, requested = port.get("port", 0), port.get("nodePort", 0)
            if not requested and not needs_node_ports(spec):
                continue
            if number not in chosen:
                requested_by_any = next(
                    (p["nodePort"] for p in service_ports if p.get("port", 0) == number and p.get("nodePort")), 0
                )
                chosen[number] = (
                    self._allocate_port(service, i, requested_by_any, ports)
                    if requested_by_any
                    else ports.allocate_any()
                )
                port["nodePort"] = chosen[number]
            elif not requested:
                port["nodePort"] = chosen[number]
            elif requested != chosen[number]:
                self._allocate_port(service, i, requested, ports)

    def _update_node_ports(self, service: JSON, old: JSON, ports: NodePortOperation) -> None:
        """Allocate the node ports that an update adds. Source: updateNodePorts."""
        spec, old_ports = service["spec"], node_ports(old["spec"])
        taken: set[int] = set()
        seen: list[tuple[str, int]] = []
        for i, port in enumerate(spec.get("ports", ())):
            number = port.get("nodePort", 0)
            if not number and not needs_node_ports(spec):
                continue
            if not number:
                port["nodePort"] = number = ports.allocate_any()
            elif number not in old_ports and number not in taken:
                taken.add(self._allocate_port(service, i, number, ports))
            protocol_and_port = (port.get("protocol", ""), number)
            if protocol_and_port in seen:
                raise errors.internal(f"duplicate nodePort: {{{protocol_and_port[0]} {number}}}")
            seen.append(protocol_and_port)

    def _allocate_port(self, service: JSON, index: int, port: int, ports: NodePortOperation) -> int:
        if problem := ports.allocate(port):
            problems = ErrorList()
            problems.invalid(f"spec.ports[{index}].nodePort", port, problem)
            self._raise_if_invalid(service, problems)
        return port

    def _track(self, service: JSON, *, deleted: bool) -> None:
        uid = service["metadata"]["uid"]
        before, ports = self._allocated_by_uid.pop(uid, ("", []))
        self._owner_by_ip.pop(before, None)
        for port in ports:
            self._owner_by_port.pop(port, None)
        address = "" if deleted else _cluster_ip(service)
        addresses = self._store.table(IP_ADDRESSES)
        if before and before != address and (ip_address := addresses.get(before)) is not None:
            addresses.delete(ip_address)
        if deleted:
            return
        ports = _ports_of(service)
        self._allocated_by_uid[uid] = (address, ports)
        if address:
            self._owner_by_ip[address] = uid
            self._ensure_ip_address(address, service)
        self._owner_by_port |= dict.fromkeys(ports, uid)

    def _ensure_ip_address(self, address: str, service: JSON) -> None:
        """Create the IPAddress of a Service's address unless it exists."""
        metadata, table = service["metadata"], self._store.table(IP_ADDRESSES)
        reference = {"resource": "services", "namespace": metadata["namespace"], "name": metadata["name"]}
        before = table.get(address)
        if before is not None:
            if before.object.get("spec", {}).get("parentRef") == reference:
                return
            table.delete(before)
        template = _ip_address_template()
        obj = {**template, "metadata": {**template["metadata"], "name": address}, "spec": {"parentRef": reference}}
        table.create(address, stamp_object(obj, new_uid(self._rng), rfc3339(self._clock.now())))

    def _networks(self) -> list[ipaddress.IPv4Network]:
        """Return the ranges for cluster IPs, that of the oldest ServiceCIDR first."""
        ready = [service_cidr for service_cidr in self._store.list(SERVICE_CIDRS) if _is_ready(service_cidr)]
        ready.sort(key=lambda service_cidr: str(service_cidr["metadata"]["creationTimestamp"]))
        cidrs = [cidr for service_cidr in ready for cidr in service_cidr["spec"].get("cidrs") or ()]
        return [ipaddress.IPv4Network(cidr) for cidr in dict.fromkeys(cidrs) if ":" not in cidr]

    def _is_taken(self, address: str) -> bool:
        return address in self._owner_by_ip or self._store.table(IP_ADDRESSES).get(address) is not None

    def _claim_ip(self, service: JSON, text: str, *, dry_run: bool) -> None:
        address, problem = allocated_ip(text), ""
        key, networks = str(address), self._networks()
        if self._owner_by_ip.get(key) == service["metadata"]["uid"]:
            return
        if dry_run:  # v1.36 asks any one range then, and does not see which addresses are taken
            if not networks:
                problem = _NOT_READY
            elif not _can_allocate(networks[0], address):
                problem = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {networks[0]}"
        elif not any(_can_allocate(network, address) for network in networks):
            problem = "the provided network does not match the current range"
        elif self._is_taken(key):
            problem = "provided IP is already allocated"
        if problem:
            problems = ErrorList()
            problems.invalid(
                "spec.clusterIPs", service["spec"]["clusterIPs"], f"failed to allocate IP {text}: {problem}"
            )
            self._raise_if_invalid(service, problems)

    def _any_free_ip(self, name: str, *, dry_run: bool) -> str:
        """Return a free address for the Service of this name. Raises StatusError 500 if none is free."""
        networks = self._networks()
        if dry_run and networks:
            return str(networks[0].network_address)
        for network in networks:
            if address := self._free_ip_in(network):
                return address
        problem = _NOT_READY if dry_run else "range is full"
        raise errors.internal_error(f"failed to allocate a serviceIP for Service {quoted(name)}: {problem}")

    def _free_ip_in(self, network: ipaddress.IPv4Network) -> str:
        """Return a free address of the upper part of the range, else of the lower part; "" if none is free.

        The lower part is for addresses that Services request. Source: KEP-3070, calculateRangeOffset.
        """
        size = network.num_addresses
        first_upper = 1 + min(max(16, size // 16), 256) if size > 16 else 1
        upper, lower = range(first_upper, size - 1), range(1, first_upper)
        tries = RANDOM_TRIES if upper else 0  # a /31 has no addresses to allocate
        for offset in chain((self._rng.choice(upper) for _ in range(tries)), upper, lower):
            candidate = str(network.network_address + offset)
            if not self._is_taken(candidate):
                return candidate
        return ""


def _cluster_ip(service: JSON) -> str:
    """Return the address in its canonical form, "" if there is none."""
    address: str = service.get("spec", {}).get("clusterIP", "")
    return "" if address in ("", "None") else str(allocated_ip(address))


def _ports_of(service: JSON) -> list[int]:
    """Return the node ports and the health check port of a Service."""
    spec = service.get("spec", {})
    ports = [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]
    return [*ports, spec["healthCheckNodePort"]] if spec.get("healthCheckNodePort") else ports


def _is_ready(service_cidr: JSON) -> bool:
    """Return True unless the range is in deletion or its condition says otherwise, which a controller manager sets."""
    if "deletionTimestamp" in service_cidr["metadata"]:
        return False
    conditions = service_cidr.get("status", {}).get("conditions") or ()
    return all(condition["status"] == "True" for condition in conditions if condition["type"] == "Ready")


def _can_allocate(network: ipaddress.IPv4Network, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address in network and address not in (network.network_address, network.broadcast_address)


def _creation_time(obj: JSON) -> datetime:
    """Return the creation time of an object."""
    return parse_time(obj["metadata"]["creationTimestamp"])


@cache
def _ip_address_template() -> JSON:
    """Return the template of a Service's IPAddress: without name, reference, uid and time."""
    labels = {"ipaddress.kubernetes.io/ip-family": "IPv4", _MANAGED_BY: _ALLOCATOR}
    reference = {"resource": "services", "namespace": "default", "name": "kubernetes"}
    return object_template(IP_ADDRESSES, ServerObject("", labels=labels, content={"spec": {"parentRef": reference}}))
