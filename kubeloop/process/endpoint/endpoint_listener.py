"""Listener of a process' endpoint, opened first, so that a port in use is reported before anything else starts."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from kubeloop.kube.user_error import UserError


@contextlib.contextmanager
def open_listener(address: str, port: int) -> Iterator[socket.socket]:
    """Listen on `address` (a name or an IP address) for the length of the context; port 0 selects a free port.

    Raises UserError.
    """
    with contextlib.ExitStack() as stack:
        try:
            family, kind, protocol, _, sockaddr = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(sockaddr)
            listener.listen(100)
            listener.setblocking(False)
        except (OSError, UnicodeError) as error:  # UnicodeError: the address cannot be a host name
            raise UserError(
                f"cannot listen on {address or 'no address'} port {port}: {getattr(error, 'strerror', 'not a name')}",
                hint="choose another port with --endpoint-port, or 0 for a free one"
                if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
                else "--bind-address takes an address of this machine",
            ) from None
        yield listener


def listener_url(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"
