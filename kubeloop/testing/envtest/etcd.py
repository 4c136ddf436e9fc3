"""The executable `etcd` of `kubeloop envtest`: serves health checks, and answers etcd clients that it is not etcd.

kube-apiserver of `kubeloop envtest` has its objects in its own memory, so nothing is stored here. It has no asyncio,
whose import would take as long as the rest of the start.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from kubeloop.testing.envtest.flags import FlagError, Flags, flag_table, help_text, parse_flags

_SERVER_VERSION = "3.6.7"
"""Version of etcd that Kubernetes v1.36 is tested with; clients choose features by it."""
NOT_ETCD = (
    "this is the etcd of `kubeloop envtest`, which stores nothing: the kube-apiserver of the same folder has its"
    " objects in memory. Use its API, or the real etcd."
)
_RESPONSES = {
    "/health": {"health": "true", "reason": ""},
    "/livez": "ok\n",
    "/readyz": "ok\n",
    "/version": {"etcdserver": _SERVER_VERSION, "etcdcluster": "3.6.0", "storage": "3.6.0"},
}
_HTTP2_GO_AWAY = 7


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT, and return the exit code: 2 for wrong flags, as of etcd, 1 if a port is taken."""
    table = flag_table("etcd")
    try:
        flags = parse_flags(table, arguments, single_dash=True)
        addresses = _client_addresses(flags)
    except FlagError as error:
        print(error, file=sys.stderr)
        return 2
    if flags.is_set("help"):
        print("etcd of kubeloop envtest: serves health checks; kube-apiserver stores nothing in it.\n")
        print(help_text(table), end="")
        return 0
    if flags.is_set("version"):
        print(f"etcd Version: {_SERVER_VERSION}")
        return 0
    servers: list[HealthServer] = []
    try:
        servers.extend(HealthServer(address) for address in addresses)
    except OSError as error:
        for server in servers:
            server.server_close()
        print(f"error: --listen-client-urls: cannot listen: {error}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    stopped.wait()
    return 0


def _client_addresses(flags: Flags) -> list[tuple[str, int]]:
    """Return host and port of each URL for clients. Raises FlagError."""
    addresses = []
    for url in flags.strings("listen-client-urls"):
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise FlagError(f"--listen-client-urls: {url!r} is not a URL") from None
        if parts.scheme != "http" or not parts.hostname or port is None:
            raise FlagError(
                f"--listen-client-urls: {url!r} is not http://ADDRESS:PORT; TLS and Unix sockets are not supported by"
                " the etcd of kubeloop envtest"
            )
        addresses.append((parts.hostname, port))
    return addresses


class HealthServer(ThreadingHTTPServer):
    """Serves health checks on an address, until shutdown()."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Requests)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that its client has closed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    raw_requestline: bytes

    def parse_request(self) -> bool:
        if self.raw_requestline.startswith(b"PRI * HTTP/2"):
            self.close_connection = True
            self.wfile.write(_refusal_of_http2())
            return False
        return super().parse_request()

    def _respond(self) -> None:
        body = _RESPONSES.get(urlsplit(self.path).path)
        status = 200
        if body is None or self.command != "GET":
            self.close_connection = True  # a body may follow that is not read
            status, body = 501, {"error": NOT_ETCD, "message": NOT_ETCD, "code": 12}  # gRPC's UNIMPLEMENTED
        content = body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: health checks are frequent."""


def _refusal_of_http2() -> bytes:
    """Return frames that end an HTTP/2 connection: SETTINGS, and GOAWAY with the message, which gRPC clients report."""
    data = NOT_ETCD.encode()
    settings = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    go_away = (8 + len(data)).to_bytes(3, "big") + bytes((_HTTP2_GO_AWAY, 0, 0, 0, 0, 0))
    return settings + go_away + (0).to_bytes(4, "big") + (0).to_bytes(4, "big") + data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
