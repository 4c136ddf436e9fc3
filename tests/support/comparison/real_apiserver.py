"""A real kube-apiserver with etcd, for tests and benchmarks.

The binaries are found like those of controller-runtime's envtest: TEST_ASSET_ETCD, TEST_ASSET_KUBE_APISERVER, ... name
files, KUBEBUILDER_ASSETS names a folder, which may also contain kube-controller-manager and kube-scheduler. Tests
without binaries are skipped with a reason, see `needs_binaries`. Each server has its own certificate authority, keys
and tokens; everything is on loopback, on free ports, in one folder.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMIN_TOKEN = "admin-token-of-this-test"
READY_SECONDS = 60.0  # usually 3 s
_STOP_SECONDS = 10.0
# Linux: SIGKILL when the parent thread ends, so that no process outlives a crashed test process.
_KILLED_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def find_binary(name: str) -> Path | None:
    """Return the binary `name` ("kube-apiserver"), or None. Does not search the PATH, like envtest."""
    file = os.environ.get(f"TEST_ASSET_{name.upper().replace('-', '_')}")
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    for path in ([Path(file)] if file else []) + ([Path(folder) / name] if folder else []):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def why_missing(*names: str) -> str | None:
    """Return the reason why the binaries `names` cannot be started; None if all are installed."""
    missing = [name for name in names if find_binary(name) is None]
    if not missing:
        return None
    return f"no {' and no '.join(missing)}: KUBEBUILDER_ASSETS names no folder with them (setup-envtest downloads some)"


def needs_binaries(*more: str) -> None:
    """Skip the test unless etcd, kube-apiserver and `more` are installed."""
    reason = why_missing("etcd", "kube-apiserver", *more)
    if reason is not None:
        pytest.skip(reason)


def free_ports(count: int) -> list[int]:
    """Return ports that are currently unused."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


class Authority:
    """A certificate authority in a folder: `ca.crt`, `ca.key` and the certificates that it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        certificate = (
            _certificate(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.key = folder / "ca.key"
        write_key(self.key, self._key)

    def sign(
        self, file: str, *, user: str, groups: Sequence[str] = (), server: bool = False, seconds: float = 86_400.0
    ) -> tuple[Path, Path]:
        """Sign a certificate of `user` in `groups`, or of a server on loopback. Returns its path and its key's."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _certificate(subject, self._name, key.public_key(), seconds).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if server:
            host_names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(host_names), critical=False)
        certificate, key_file = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_key(key_file, key)
        return certificate, key_file


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, seconds: float = 86_400.0
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(seconds=seconds))
    )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


@dataclass
class RealApiServer:
    """A running kube-apiserver and its etcd. kubeconfig: the cluster administrator's."""

    folder: Path
    port: int
    etcd_ports: tuple[int, int]
    flags: dict[str, str]
    authority: Authority
    start_seconds: float = 0.0  # of the last start of kube-apiserver, until /readyz succeeds
    etcd: subprocess.Popen[bytes] | None = None
    apiserver: subprocess.Popen[bytes] | None = None
    _components: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_ports[0]}"

    @property
    def token(self) -> str:
        return ADMIN_TOKEN

    @property
    def ca(self) -> Path:
        return self.authority.certificate

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def kubeconfig_of(self, name: str, user: Mapping[str, object]) -> Path:
        """A kubeconfig file for another user: {"token": ...}, {"tokenFile": ...}, {"client-certificate": ...}."""
        path = self.folder / f"kubeconfig-{name}"
        path.write_text(json.dumps(kubeconfig(self.url, self.ca, user)))
        return path

    def request(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Any:
        """Send a request as administrator and return the decoded body. Raises urllib.error.HTTPError if refused."""
        content = self._send(method, path, body, content_type)
        return json.loads(content) if content.startswith((b"{", b"[")) else content.decode()

    def changes(self, path: str, since: str, *, seconds: int = 2) -> list[dict[str, Any]]:
        """Return the watch events of a collection since a resourceVersion, as far as they arrive within `seconds`."""
        query = f"?watch=1&timeoutSeconds={seconds}&resourceVersion={since}"
        return [json.loads(line) for line in self._send("GET", path + query).splitlines()]

    def _send(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> bytes:
        with self._open(method, path, body, content_type) as response:
            content: bytes = response.read()
        return content

    def _open(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        timeout: float | None = 30.0,
    ) -> http.client.HTTPResponse:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": content_type,
                "Accept": "application/json",
            },
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=context)
        return response

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self.etcd_ports)
        self.etcd = self._spawn(
            "etcd",
            [
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
        )

    def start_apiserver(self, *, wait: bool = True) -> None:
        """Start kube-apiserver, always on the same port. Raises RuntimeError with its log if it is not ready."""
        began = time.monotonic()
        self.apiserver = self._spawn("kube-apiserver", [f"--{name}={value}" for name, value in self.flags.items()])
        if not wait:
            return
        while time.monotonic() - began < READY_SECONDS:
            if self.apiserver.poll() is not None:
                break
            try:
                if self.request("GET", "/readyz") == "ok":
                    self.start_seconds = time.monotonic() - began
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass  # not listening yet, or not ready (500)
            time.sleep(0.05)
        raise RuntimeError(f"kube-apiserver did not get ready:\n{self.log('kube-apiserver')[-3000:]}")

    def create_accounts(self) -> None:
        """Create the ServiceAccount "default" in present and new namespaces until the server is stopped.

        In the role of kube-controller-manager, which is not started for most tests.
        """
        namespaces = self.request("GET", "/api/v1/namespaces")
        for namespace in namespaces["items"]:
            self._create_account(namespace["metadata"]["name"])
        version = namespaces["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow_namespaces, args=(version,), daemon=True).start()

    def _create_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts?fieldManager=accounts-of-tests"
        try:
            self.request("POST", path, {"metadata": {"name": "default"}})
        except urllib.error.HTTPError as error:
            if error.code not in (403, 404, 409):  # the namespace is being deleted, or has the account
                raise

    def _follow_namespaces(self, version: str) -> None:
        while not self._stopped.is_set():
            query = f"?watch=1&resourceVersion={version}"
            try:
                with self._open("GET", f"/api/v1/namespaces{query}", timeout=None) as response:
                    for line in response:
                        event = json.loads(line)
                        version = event["object"]["metadata"].get("resourceVersion", "")  # none in an error
                        if event["type"] == "ADDED":
                            self._create_account(event["object"]["metadata"]["name"])
            except (OSError, http.client.HTTPException):
                self._stopped.wait(0.1)  # a test restarts the server

    def kill_apiserver(self) -> None:
        """Send SIGKILL: watches are cut off."""
        _kill(self.apiserver)
        self.apiserver = None

    def pids(self) -> list[int]:
        """Return the processes of kube-apiserver and etcd."""
        return [process.pid for process in (self.apiserver, self.etcd) if process is not None]

    def start_component(self, name: str, *flags: str, kubeconfig: Path | None = None) -> subprocess.Popen[bytes]:
        """Start kube-controller-manager or kube-scheduler for this server. It is stopped with the server."""
        defaults = [
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--secure-port={free_ports(1)[0]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / name}",
        ]
        process = self._spawn(name, [*defaults, *flags])
        self._components.append(process)
        return process

    def stop_component(self, process: subprocess.Popen[bytes]) -> None:
        _kill(process)
        self._components.remove(process)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """Kill all processes. An orderly shutdown is not needed."""
        self._stopped.set()
        for process in (*self._components, self.apiserver, self.etcd):
            _kill(process)
        self._components.clear()
        self.apiserver = self.etcd = None

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        binary = find_binary(name)
        assert binary is not None, why_missing(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [*_KILLED_WITH_PARENT, str(binary), *arguments]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(_STOP_SECONDS)


def kubeconfig(url: str, ca: Path, user: Mapping[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        "current-context": "real",
    }


@contextmanager
def real_apiserver(
    folder: Path, flags: Mapping[str, str] | None = None, *, accounts: bool = True
) -> Iterator[RealApiServer]:
    """Run etcd and kube-apiserver in `folder` until ready. flags: names without dashes; override the defaults.

    All requests are authorized (`authorization-mode`: AlwaysAllow). Each namespace gets the ServiceAccount "default",
    which pods need; accounts: False if a controller under test creates it.
    The address is https://127.0.0.1 with a free port. Users authenticate with ADMIN_TOKEN (system:masters) or with
    certificates of the server's Authority.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder / "certificates")
    certificate, key = authority.sign("server", user="kube-apiserver", server=True)
    service_account_key = folder / "certificates" / "service-accounts.key"
    write_key(service_account_key, ec.generate_private_key(ec.SECP256R1()))
    (folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    port, etcd_client, etcd_peer = free_ports(3)
    server = RealApiServer(
        folder=folder,
        port=port,
        etcd_ports=(etcd_client, etcd_peer),
        authority=authority,
        flags={
            "etcd-servers": f"http://127.0.0.1:{etcd_client}",
            "secure-port": str(port),
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "cert-dir": str(folder / "certificates"),
            "tls-cert-file": str(certificate),
            "tls-private-key-file": str(key),
            "client-ca-file": str(authority.certificate),
            "token-auth-file": str(folder / "tokens.csv"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(service_account_key),
            "service-account-signing-key-file": str(service_account_key),
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "AlwaysAllow",
            "allow-privileged": "true",
            "endpoint-reconciler-type": "none",  # a loopback address is invalid for the service "kubernetes"
            **(flags or {}),
        },
    )
    server.kubeconfig.write_text(json.dumps(kubeconfig(server.url, server.ca, {"token": ADMIN_TOKEN})))
    try:
        server.start_etcd()
        server.start_apiserver()
        if accounts:
            server.create_accounts()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder / "etcd", ignore_errors=True)  # contains over 100 MB of preallocated log
