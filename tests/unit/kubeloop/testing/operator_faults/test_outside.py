"""TCP ports of a process, and its connections to other servers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from kubeloop.testing.operator_faults.outside import ports_and_servers

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="needs /proc")
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))):
    print("connected", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_connection_to_another_server_is_listed(family: socket.AddressFamily, address: str):
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    port = server.getsockname()[1]
    command = [sys.executable, "-c", CLIENT, address, str(port)]
    with (
        server,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client,
        server.accept()[0],
    ):
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        expected = f"{address}:{port}" if family == socket.AF_INET else f"[{address}]:{port}"
        assert ports_and_servers(client.pid, []) == (set(), {expected})
        assert ports_and_servers(client.pid, [port]) == (set(), set())
        client.stdin.close()


def test_connection_within_the_process_does_not_count():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            listening, servers = ports_and_servers(os.getpid(), [])
            assert port in listening
            assert not [entry for entry in servers if entry.endswith(f":{port}")]
