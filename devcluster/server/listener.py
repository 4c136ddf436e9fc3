"""One loopback port for TLS and plain HTTP, distinguished by a connection's first byte.

kubectl sends tokens over TLS only; kubeloop's own processes on the same machine save the CPU of encryption.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import cache

from kubeloop.devcluster.server.bootstrap.contents import Identity

log = logging.getLogger(__name__)

_TLS_HANDSHAKE = b"\x16"  # first byte of every ClientHello; no HTTP request begins with it
_FIRST_BYTE_SECONDS = 30.0
_MAX_REFUSED_BYTES = 1 << 20
_REFUSAL_OF_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class PortTaken(OSError):
    """Another process listens on the requested port, or the address is not of this machine."""


def listening_socket(port: int, address: str = "127.0.0.1") -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raises PortTaken."""
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
    except OSError as error:
        listening.close()
        problem = f"port {port} is taken" if error.errno == errno.EADDRINUSE else f"{address}:{port}: {error.strerror}"
        raise PortTaken(problem) from error
    listening.listen(1024)
    listening.setblocking(False)
    return listening


def machine_identity(port: int) -> Identity:
    """Return the identity of a server on `port`: the machine's name and the address of its default route.

    No packet is sent. The server listens on loopback only, but Endpoints cannot contain loopback addresses, and
    kube-apiserver with --bind-address=127.0.0.1 behaves the same.
    """
    default = Identity()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((default.address, port))
            address = probe.getsockname()[0]
        except OSError:  # no network at all
            address = default.address
    if address.startswith("127."):
        address = default.address
    return Identity(socket.gethostname(), address, port)


async def listen(
    listening: socket.socket,
    protocol_factory: Callable[[], asyncio.BufferedProtocol],
    tls: Callable[[], ssl.SSLContext],
    *,
    accepts_plain_http: bool = True,
) -> None:
    """Accept connections until cancelled. The protocols outlive this call; their owner closes them.

    tls: returns the context of TLS connections; called once, by the first of them.
    """
    loop = asyncio.get_running_loop()
    tls = cache(tls)
    async with asyncio.TaskGroup() as handshakes:
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors, or the peer has disconnected
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(0.1)
                continue
            handshakes.create_task(_admit(connection, protocol_factory, tls, accepts_plain_http), name="handshake")


async def _admit(
    connection: socket.socket,
    protocol_factory: Callable[[], asyncio.BufferedProtocol],
    tls: Callable[[], ssl.SSLContext],
    accepts_plain_http: bool,
) -> None:
    loop = asyncio.get_running_loop()
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(_FIRST_BYTE_SECONDS):
            first = await _peek(connection)
        if not first:
            connection.close()
            return
        context = tls() if first == _TLS_HANDSHAKE else None
        if context is None and not accepts_plain_http:
            connection.recv(_MAX_REFUSED_BYTES)  # closing with unread input would reset the connection
            await loop.sock_sendall(connection, _REFUSAL_OF_PLAIN_HTTP)
            connection.close()
            return
        await loop.connect_accepted_socket(protocol_factory, connection, ssl=context)
    except (OSError, ssl.SSLError, TimeoutError) as error:
        log.debug("connection closed before its first request: %s", error)
        connection.close()
    except asyncio.CancelledError:
        connection.close()
        raise


async def _peek(connection: socket.socket) -> bytes:
    """The first byte that the peer sends, left in the socket; b"" if it sends none and closes."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection.fileno(), lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv(1, socket.MSG_PEEK)
