"""The kube-apiserver of envtest as a process: readiness, client certificates, stop, whole clusters."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kubeloop.kube.user_error import UserError
from kubeloop.testing.envtest.kube_apiserver import main, node_count
from support.comparison.real_apiserver import Authority, free_ports, write_key

START_SECONDS, STOP_SECONDS = 30.0, 10.0  # much less on an idle machine


class CertificateClient:
    """Requests with the certificate of a user."""

    def __init__(self, port: int, ca: Path, certificate: Path, key: Path) -> None:
        self.port = port
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(certificate, key)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._tls, timeout=30)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read().decode()
        finally:
            connection.close()
        return response.status, json.loads(content) if content.startswith("{") else content


@contextmanager
def running(folder: Path, *flags: str, **environment: str) -> Iterator[tuple[CertificateClient, subprocess.Popen[str]]]:
    """Run kube-apiserver with the flags of envtest; yield a client of a member of system:masters."""
    (port,) = free_ports(1)
    authority = Authority(folder)
    serving = authority.sign("apiserver", user="localhost", server=True)
    user = authority.sign("user", user="default", groups=["system:masters"])
    write_key(folder / "sa-signer.key", ec.generate_private_key(ec.SECP256R1()))
    url = f"https://127.0.0.1:{port}"
    arguments = [
        "--etcd-servers=http://127.0.0.1:1",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--client-ca-file={authority.certificate}",
        f"--service-account-issuer={url}/",
        f"--service-account-key-file={folder}/sa-signer.key",
        f"--service-account-signing-key-file={folder}/sa-signer.key",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        *flags,
    ]
    assert serving == (folder / "apiserver.crt", folder / "apiserver.key")
    command = [sys.executable, "-m", "kubeloop.testing.envtest.kube_apiserver", *arguments]
    with subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_listening(port, process)
            yield CertificateClient(port, authority.certificate, *user), process
        finally:
            process.kill()


def wait_until_listening(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    assert process.stderr is not None
    raise AssertionError(f"kube-apiserver does not listen: {process.poll()}")


def test_client_with_certificate_is_its_user(tmp_path):
    with running(tmp_path, "--disable-admission-plugins=ServiceAccount") as (api, process):
        assert api("GET", "/readyz") == (200, "ok")
        body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        user = api("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)[1]["status"]["userInfo"]
        assert (user["username"], "system:masters" in user["groups"]) == ("default", True)
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        assert api("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert time.monotonic() - began < STOP_SECONDS


def test_plain_http_is_refused(tmp_path):
    with running(tmp_path) as (api, _), socket.create_connection(("127.0.0.1", api.port), timeout=10) as client:
        client.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert received == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def test_whole_cluster_runs_pods_of_deployments(tmp_path):
    with running(tmp_path, KUBELOOP_ENVTEST="full", KUBELOOP_ENVTEST_NODES="2") as (api, process):
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        path = "/apis/apps/v1/namespaces/default/deployments"
        assert api("POST", path, {"metadata": {"name": "web"}, "spec": spec})[0] == 201
        assert len(api("GET", "/api/v1/nodes")[1]["items"]) == 2
        deadline = time.monotonic() + START_SECONDS
        while api("GET", f"{path}/web")[1].get("status", {}).get("availableReplicas") != 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "Error: unknown flag: --bogus"),
        (["x", "y"], 'Error: "kube-apiserver" does not take any arguments, got ["x" "y"]'),
        ([], "Error: --etcd-servers must be specified"),
        (["--oidc-issuer-url=https://x"], "Error: --oidc-issuer-url=https://x is not supported by kubeloop: OpenID"),
    ],
)
def test_wrong_command_line_exits_with_1(capsys, arguments: list[str], message: str):
    assert main(arguments) == 1
    assert capsys.readouterr().err.startswith(message)


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "--service-cluster-ip-range string" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("Kubernetes v1.36.")


@pytest.mark.parametrize(
    ("environment", "nodes"),
    [({}, None), ({"KUBELOOP_ENVTEST": "full"}, 3), ({"KUBELOOP_ENVTEST": "full", "KUBELOOP_ENVTEST_NODES": "0"}, 0)],
)
def test_mode_of_the_environment(environment: dict[str, str], nodes: int | None):
    assert node_count(environment) == nodes


@pytest.mark.parametrize(
    "environment",
    [{"KUBELOOP_ENVTEST": "all"}, {"KUBELOOP_ENVTEST": "full", "KUBELOOP_ENVTEST_NODES": "many"}],
)
def test_wrong_environment_is_refused(environment: dict[str, str]):
    with pytest.raises(UserError, match="KUBELOOP_ENVTEST"):
        node_count(environment)
