"""The etcd of envtest: health checks, and its answer to clients of etcd."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import h2.connection
import h2.events
import pytest

from kubeloop.testing.envtest.etcd import NOT_ETCD, HealthServer, main


@pytest.fixture
def port() -> Iterator[int]:
    server = HealthServer(("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def request(port: int, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/health", '{"health":"true","reason":""}'),
        ("/readyz", "ok\n"),
        ("/version", '{"etcdserver":"3.6.7","etcdcluster":"3.6.0","storage":"3.6.0"}'),
    ],
)
def test_health_checks_succeed(port: int, path: str, body: str):
    assert request(port, "GET", path) == (200, body)


def test_other_requests_are_refused_with_the_reason(port: int):
    status, body = request(port, "POST", "/v3/kv/range", "{}")
    assert (status, json.loads(body)["message"]) == (501, NOT_ETCD)
    assert request(port, "GET", "/metrics")[0] == 501


def test_client_of_etcd_is_disconnected_with_the_reason(port: int):
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(connection.data_to_send())
        received = b"".join(iter(lambda: client.recv(4096), b""))
    events = connection.receive_data(received)
    (ended,) = (event for event in events if isinstance(event, h2.events.ConnectionTerminated))
    assert (ended.additional_data or b"").decode() == NOT_ETCD


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("--listen-client-urls=https://127.0.0.1:1", "'https://127.0.0.1:1' is not http://ADDRESS:PORT"),
        ("--listen-client-urls=http://127.0.0.1:x", "'http://127.0.0.1:x' is not a URL"),
        ("--cert-file=x", "--cert-file=x is not supported by kubeloop: the etcd of kubeloop envtest serves plain HTTP"),
        ("--bogus", "flag provided but not defined: -bogus"),
    ],
)
def test_wrong_flags_exit_with_2(capsys, argument: str, problem: str):
    assert main([argument]) == 2
    assert problem in capsys.readouterr().err


def test_taken_port_exits_with_1(capsys, port: int):
    assert main([f"--listen-client-urls=http://127.0.0.1:{port}"]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_process_ends_with_0_at_sigterm():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kubeloop.testing.envtest.etcd", f"--listen-client-urls=http://127.0.0.1:{port}"]
    with subprocess.Popen(command, env=os.environ) as process:
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                try:
                    if request(port, "GET", "/health")[0] == 200:
                        break
                except ConnectionError:
                    time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "--data-dir string" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "etcd Version: 3.6.7\n"
