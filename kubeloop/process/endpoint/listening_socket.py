"""The socket of a process' endpoint: whether its port is free is known before anything else is started."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from kubeloop.kube.errors import UserError


@contextlib.contextmanager
def listening_socket(address: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on `address` (a name or an IP address), for the length of the context; port 0 takes a free
    one. Raises UserError."""
    with contextlib.ExitStack() as opened:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = opened.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(100)
            listening.setblocking(False)
        except (OSError, UnicodeError) as error:  # a UnicodeError is of an address that cannot be a name
            raise UserError(
                f"cannot listen on {address or 'no address'} port {port}: {getattr(error, 'strerror', 'not a name')}",
                hint="choose another port with --endpoint-port, or 0 for a free one"
                if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
                else "--bind-address takes an address of this machine",
            ) from None
        yield listening


def url_of(listening: socket.socket) -> str:
    address, port = listening.getsockname()[:2]
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"
