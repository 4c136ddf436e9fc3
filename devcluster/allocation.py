"""Addresses and node ports of Services. Source: pkg/registry/core/service."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.storage import Store
from kubeloop.devcluster.validation.services import needs_health_check
from kubeloop.kube.resources import SERVICES

JSON = dict[str, Any]

_NETWORK = ipaddress.IPv4Network("10.96.0.0/12")
_NODE_PORTS = range(30000, 32768)
_TRIES = 64


class ServiceAddresses:
    """Hands out cluster IPs and node ports; what is taken is read from the store."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._ips: dict[str, str] = {}  # to the uid of the Service
        self._ports: dict[int, str] = {}
        self._held: dict[str, tuple[str, list[int]]] = {}  # of a uid: its address and its ports
        store.subscribe(SERVICES, lambda change: self._follow(change.now.object, gone=change.type == "DELETED"))
        for service in store.list(SERVICES):
            self._follow(service, gone=False)

    def allocate(self, service: JSON, *, dry_run: bool) -> None:
        """Fill in, in place, what the Service's type asks for. Raises StatusError if it is taken or out of range.

        What is not stored is not taken: a dry run gets an address and ports that nobody has, as in v1.36.
        """
        spec = service["spec"]
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                spec.pop(name, None)
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = str(_NETWORK.network_address) if dry_run else self._free_ip()
        elif spec["clusterIP"] != "None":
            self._claim_ip(service, spec["clusterIP"])
        spec["clusterIPs"] = [spec["clusterIP"]]
        if spec["clusterIP"] == "None" and not spec.get("selector") and spec.get("ipFamilyPolicy") != "SingleStack":
            # nobody's addresses are chosen by the server, so both families may be among them
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if kind in ("NodePort", "LoadBalancer") and spec.get("allocateLoadBalancerNodePorts", True):
            for index, port in enumerate(spec.get("ports", ())):
                if port.get("nodePort"):
                    self._claim_port(service, index, port["nodePort"], dry_run=dry_run)
                else:
                    port["nodePort"] = _nobodys_port(spec) if dry_run else self._free_port(spec)
        if needs_health_check(spec) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = _nobodys_port(spec) if dry_run else self._free_port(spec)

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

    def _claim_port(self, service: JSON, index: int, port: int, *, dry_run: bool) -> None:
        owner = self._ports.get(port)
        why = ""
        if port not in _NODE_PORTS and not dry_run:  # v1.36 does not look at it then
            why = (
                "provided port is not in the valid range. "
                f"The range of valid ports is {_NODE_PORTS[0]}-{_NODE_PORTS[-1]}"
            )
        elif owner is not None and owner != service["metadata"]["uid"]:
            why = "provided port is already allocated"
        if why:
            raise self._invalid(service, f"spec.ports[{index}].nodePort", f"Invalid value: {port}: {why}")

    def _claim_ip(self, service: JSON, text: str) -> None:
        owner, why = self._ips.get(text), ""
        if owner is not None and owner != service["metadata"]["uid"]:
            why = "provided IP is already allocated"
        elif owner is None and ipaddress.ip_address(text) not in _NETWORK:
            why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {_NETWORK}"
        if why:
            why = f"failed to allocate IP {text}: {why}"
            raise self._invalid(service, "spec.clusterIPs", f'Invalid value: ["{text}"]: {why}')

    def _invalid(self, service: JSON, field: str, message: str) -> errors.StatusError:
        cause = errors.cause("FieldValueInvalid", field, message)
        return errors.invalid("", "Service", service["metadata"]["name"], [cause])

    def _free_ip(self) -> str:
        for _ in range(_TRIES):
            candidate = str(_NETWORK.network_address + self._rng.randrange(2, _NETWORK.num_addresses - 1))
            if candidate not in self._ips:
                return candidate
        for offset in range(2, _NETWORK.num_addresses - 1):
            candidate = str(_NETWORK.network_address + offset)
            if candidate not in self._ips:
                return candidate
        raise errors.internal("failed to allocate a serviceIP: range is full", reason="InternalError")

    def _free_port(self, spec: JSON) -> int:
        taken = {port.get("nodePort") for port in spec.get("ports", ())}
        free = [port for port in _NODE_PORTS if port not in self._ports and port not in taken]
        if not free:
            raise errors.internal("failed to allocate a nodePort: range is full", reason="InternalError")
        return self._rng.choice(free)


def _nobodys_port(spec: JSON) -> int:
    """What a dry run says instead of a port of its own: the one after the highest there is."""
    highest = max((port.get("nodePort", 0) for port in spec.get("ports", ())), default=0)
    return (highest or _NODE_PORTS.stop) + 1
