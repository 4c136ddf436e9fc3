"""Protocol of the host process on its stdin and stdout."""

import os
import subprocess
import sys

import msgspec

from kubeloop.testing.cluster_options import cluster_options
from kubeloop.testing.host import host
from kubeloop.testing.host.messages import Done, Request, Response, Start, Stop

PROGRAM = f"from {host.__name__} import main; main()"


def run_host(*requests: Request) -> list[Response]:
    """Return the responses to requests that end with the end of stdin."""
    content = b"".join(msgspec.json.encode(request) + b"\n" for request in requests)
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(os.getpid())], input=content, capture_output=True, check=True, timeout=60
    )
    return [msgspec.json.decode(line, type=Response) for line in completed.stdout.splitlines()]


def test_host_ends_with_stdin():
    assert run_host() == []


def test_stop_of_an_unknown_cluster_is_done():
    assert run_host(Stop(1, cluster=9)) == [Done(1)]


def test_invalid_options_fail_with_a_hint():
    options = msgspec.structs.replace(cluster_options({"nodes": 1}), faults="unknown=1")
    (response,) = run_host(Start(7, options, []))
    assert response.id == 7
    assert "unknown" in response.problem
    assert response.hint
