"""TCP ports of the operator, and its connections to servers other than the API server, as /proc shows them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from kubeloop.testing.operator_faults.process import names_in, process_tree

_ESTABLISHED, _CONNECTING, _LISTENING = "01", "02", "0A"


def ports_and_servers(pid: int, server_ports: Collection[int]) -> tuple[set[int], set[str]]:
    """Return the TCP ports on which a process and its descendants listen, and "address:port" of the servers they use.

    Connections to the API server's ports on loopback do not count, nor those that others opened to the process. Empty
    where there is no /proc.
    """
    sockets = [socket for process in process_tree(pid) for socket in _sockets(process)]
    listening = {port for state, port, _, _ in sockets if state == _LISTENING}
    servers = {
        f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        for state, local_port, address, port in sockets
        if state in (_ESTABLISHED, _CONNECTING)
        and local_port not in listening
        and not (address.is_loopback and (port in server_ports or port in listening))
    }
    return listening, servers


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _sockets(pid: int) -> Iterator[tuple[str, int, _Address, int]]:
    """Yield state, local port, remote address and remote port of each TCP socket of a process."""
    inodes = set()
    for name in names_in(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes:
                    address, port = fields[2].split(":")
                    yield fields[3], int(fields[1].split(":")[1], 16), _address(address), int(port, 16)


def _address(text: str) -> _Address:
    """Return the address of /proc/net: 32-bit words in the byte order of the machine."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address
