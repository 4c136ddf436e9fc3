"""Subsets of Endpoints, as JSON: one per set of addresses and their readiness. Pure functions.

Source: pkg/api/v1/endpoints/util.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubeloop.controllers.runtime.revisions.name_hash import fnv1a_128
from kubeloop.kube.objects.api_types import JSONValue

LEADER = "control-plane.alpha.kubernetes.io/leader"
"""Annotation of Endpoints that are the lock of a leader election."""

AddressKey = tuple[str, str]
"""IP and UID of the Pod."""
ReadyByPort = dict[bytes, dict[AddressKey, bool]]
"""Readiness of addresses, by the JSON of a port; b"" for none."""


def repacked_subsets(subsets: Iterable[JSONValue]) -> list[JSONValue]:
    """Return subsets without addresses or ports that are listed twice, to compare them; not ready wins over ready."""
    addresses: dict[AddressKey, JSONValue] = {}
    ready_by_port: ReadyByPort = {}
    for subset in subsets:
        for name in ("addresses", "notReadyAddresses"):
            for address in subset.get(name) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid", ""))
                addresses.setdefault(key, address)
                for port in subset.get("ports") or (None,):
                    encoded = msgspec.json.encode(port, order="sorted") if port is not None else b""
                    ready = ready_by_port.setdefault(encoded, {})
                    ready[key] = ready.get(key, True) and name == "addresses"
    return pack_subsets(addresses, ready_by_port)


def pack_subsets(addresses: dict[AddressKey, JSONValue], ready_by_port: ReadyByPort) -> list[JSONValue]:
    """Return the subsets of these addresses: those with the same ports share one."""
    ports_by_addresses: dict[tuple[tuple[AddressKey, bool], ...], list[bytes]] = {}
    for port, ready in ready_by_port.items():
        ports_by_addresses.setdefault(tuple(sorted(ready.items())), []).append(port)
    subsets = []
    for members, encoded in sorted(ports_by_addresses.items(), key=lambda item: sorted(item[1])):
        subset: JSONValue = {}
        for name, is_listed in (("addresses", True), ("notReadyAddresses", False)):
            listed = [addresses[key] for key, is_ready_ in members if is_ready_ is is_listed]
            if listed:
                subset[name] = listed
        ports = [msgspec.json.decode(port) for port in encoded if port]
        if ports:
            subset["ports"] = sorted(ports, key=_port_hash)
        subsets.append(subset)
    return subsets


def _port_hash(port: JSONValue) -> int:
    """Return the hash by which kube-controller-manager sorts ports."""
    text = (
        f"(v1.EndpointPort){{Name:(string){port.get('name', '')} Port:(int32){port['port']}"
        f" Protocol:(v1.Protocol){port['protocol']} AppProtocol:(*string){port.get('appProtocol', '<nil>')}}}"
    )
    return fnv1a_128(text.encode())
