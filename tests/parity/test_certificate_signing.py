"""Certificates of CertificateSigningRequests beside kube-controller-manager: conditions, contents, and their use."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kubeloop.kube.auth.certificate_authority import CertificateAuthority, private_key_pem
from support.apiserver.http_api import HttpApi
from support.apiserver.tls_api import TlsApi
from support.comparison.controller_runs import kubeloop_up
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.objects.certificate_requests import signing_request
from support.objects.client_certificates import ClientCertificate
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
CONTROLLERS = "certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller"
PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED = {"type": "Approved", "status": "True", "reason": "a", "message": "b"}
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
DNS, IP = x509.DNSName("a.example"), x509.IPAddress(ip_address("10.0.0.1"))
USER: JSON = {"signer": CLIENT, "common_name": "alice", "organizations": ["dev", "ops"], "usages": ["client auth"]}

CASES: dict[str, tuple[JSON, JSON]] = {
    "user": (USER, {}),
    "all-usages": ({**USER, "usages": ["client auth", "key encipherment", "digital signature"]}, {}),
    "names": ({**USER, "names": [DNS, IP, x509.RFC822Name("a@example.com")]}, {}),
    "short": (USER, {"expirationSeconds": 600}),
    "hour": (USER, {"expirationSeconds": 3600}),
    "day": (USER, {"expirationSeconds": 86400}),
    "long": (USER, {"expirationSeconds": 2**31 - 1}),
    "server": ({**USER, "usages": ["server auth"]}, {}),
    "no-client-auth": ({**USER, "usages": ["digital signature"]}, {}),
    "signer-of-another": ({**USER, "signer": "example.com/own"}, {}),
    "kubelet-client": ({"signer": KUBELET}, {}),
    "kubelet-client-of-a-user": ({**USER, "signer": KUBELET}, {}),
    "kubelet-serving": (
        {"signer": SERVING, "names": [DNS, IP], "usages": ["digital signature", "server auth"]},
        {},
    ),
    "kubelet-serving-no-name": ({"signer": SERVING, "usages": ["digital signature", "server auth"]}, {}),
    "kubelet-serving-usages": ({"signer": SERVING, "names": [DNS], "usages": ["server auth"]}, {}),
    "kubelet-serving-name": (
        {"signer": SERVING, "names": [DNS], "usages": ["digital signature", "server auth"], "common_name": "a"},
        {},
    ),
}
KEY = ec.generate_private_key(ec.SECP256R1())


def create(api: HttpApi, name: str) -> None:
    request, spec = CASES[name]
    body = signing_request(**request, key=KEY)
    body = {**body, "metadata": {"name": name}, "spec": {**body["spec"], **spec}}
    created = api.request("POST", PATH, body)
    assert created.status == 201, created.content
    approved = {**created.content, "status": {"conditions": [APPROVED]}}
    while api.request("PUT", f"{PATH}/{name}/approval", approved).status == 409:  # approved by the controller
        approved = api.request("GET", f"{PATH}/{name}").content


def contents(status: JSON) -> JSON | None:
    """Return what an issued certificate says, without its serial number and with its duration in seconds."""
    if not status.get("certificate"):
        return None
    certificate = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    extensions = sorted((str(extension.value), extension.critical) for extension in certificate.extensions)
    age = datetime.now(UTC) - certificate.not_valid_before_utc
    return {
        "subject": certificate.subject.rfc4514_string(),
        "seconds": (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds(),
        "age in minutes": round(age.total_seconds() / 60),
        "extensions": [extension for extension in extensions if "AuthorityKeyIdentifier" not in extension[0]],
    }


def observations(start: Callable[[Path], AbstractContextManager[Path]], folder: Path) -> JSON:
    """Return the status of every case, and whether the certificate of "user" authenticates."""
    with start(folder) as kubeconfig, closing(HttpApi.from_kubeconfig(kubeconfig)) as api:
        for name in CASES:
            create(api, name)

        def statuses() -> dict[str, JSON]:
            return {it["metadata"]["name"]: it["status"] for it in api.request("GET", PATH).content["items"]}

        def is_done() -> bool:
            done = {
                name
                for name, status in statuses().items()
                if status.get("certificate") or any(it["type"] == "Failed" for it in status["conditions"])
            }
            return done == CASES.keys() - {"signer-of-another"}

        wait_until(is_done, "the signer")
        issued = statuses()
        user = base64.b64decode(issued["user"]["certificate"])
        client = ClientCertificate(x509.load_pem_x509_certificate(user), user + private_key_pem(KEY))
        return {
            "groups": TlsApi.from_kubeconfig(kubeconfig).who_am_i(client=client)["groups"],
            "issued": {
                name: {
                    "certificate": contents(status),
                    "conditions": [(it["type"], it["reason"], it["message"]) for it in status["conditions"]],
                }
                for name, status in issued.items()
            },
        }


def new_authority(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "signing-ca.pem"
    path.write_bytes(CertificateAuthority.create(datetime.now(UTC)).pem())
    return path


@contextmanager
def kubernetes(folder: Path) -> Iterator[Path]:
    path = new_authority(folder)
    with real_apiserver(folder, {"client-ca-file": str(path)}) as server:
        server.start_component(
            "kube-controller-manager",
            f"--controllers={CONTROLLERS}",
            "--leader-elect=false",
            f"--cluster-signing-cert-file={path}",
            f"--cluster-signing-key-file={path}",
        )
        yield server.kubeconfig


@contextmanager
def kubeloop_run(folder: Path) -> Iterator[Path]:
    path = new_authority(folder)
    with (
        real_apiserver(folder, {"client-ca-file": str(path)}) as server,
        Kubeloop(folder).running(
            "run",
            f"--kubeconfig={server.kubeconfig}",
            f"--controllers={CONTROLLERS}",
            f"--cluster-signing-cert-file={path}",
            f"--cluster-signing-key-file={path}",
            "--trace-journal=",
        ),
    ):
        yield server.kubeconfig


def test_certificates_and_conditions_match_kubernetes(tmp_path: Path):
    needs_binaries("kube-controller-manager")
    starts = (kubernetes, kubeloop_run, kubeloop_up)
    with ThreadPoolExecutor(3) as executor:
        real, ours, development = executor.map(lambda start: observations(start, tmp_path / start.__name__), starts)
    assert ours == real
    assert development == real
