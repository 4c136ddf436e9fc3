"""kube-controller-manager and kube-scheduler on our API server, with simulated nodes: what they do for everybody works.

They are clients as no other: protobuf, watch lists, leases, a service account and token for each controller, metadata
informers and discovery of their own, server-side bookkeeping of what they have written. Skipped where they are not.
"""

from __future__ import annotations

import base64
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.cli_processes import TIMEOUT_SECONDS, Kubectl, Kubeloop
from support.real_apiserver import Authority, find_binary, free_ports, why_missing, write_key

JSON = dict[str, Any]
NODES = 5
WORKLOADS = Path(__file__).parents[1] / "support" / "go_components" / "workloads.yaml"
COMPONENTS = ("kube-controller-manager", "kube-scheduler")

# What they say of a server that they cannot talk to well. That caches are behind, and others faster, they say of any.
SERIOUS = re.compile(
    r"proto:|decod|marshal|Unauthorized|credentials|cceptable|media type|ailed to (list|watch)|could not find the req|"
    r"nable to get|is invalid|Invalid value|Internal error|panic|timed out|refused|unexpected|malformed|not supported"
)
NO_METRICS = re.compile(r"unable to (get|fetch) metrics")


class Components:
    """The two programs, logging into `folder`."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self.folder = folder
        authority = Authority(folder / "certificates")
        write_key(folder / "accounts.key", ec.generate_private_key(ec.SECP256R1()))
        signing = [f"--cluster-signing-cert-file={authority.certificate}"]
        signing += [f"--cluster-signing-key-file={authority.key}"]
        manager = [
            "--controllers=*",
            "--horizontal-pod-autoscaler-sync-period=2s",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={authority.certificate}",
        ]
        self._processes = [
            self._start(name, kubeconfig, more)
            for name, more in zip(COMPONENTS, ([*manager, *signing], []), strict=True)
        ]

    def _start(self, name: str, kubeconfig: str, more: list[str]) -> subprocess.Popen[bytes]:
        binary = find_binary(name)
        assert binary is not None
        flags = [f"--{each}kubeconfig={kubeconfig}" for each in ("", "authentication-", "authorization-")]
        flags += ["--leader-elect=true", "--authentication-skip-lookup", f"--cert-dir={self.folder / name}"]
        flags += [f"--secure-port={free_ports(1)[0]}", "--bind-address=127.0.0.1"]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([binary, *flags, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def complaints(self) -> list[str]:
        """Errors and warnings of theirs that are about the server."""
        lines = (line for name in COMPONENTS for line in (self.folder / f"{name}.log").read_text().splitlines())
        bad = (line for line in lines if re.match(r"(\?+ )?[EWF]\d{4} ", line) and SERIOUS.search(line))
        return [line for line in bad if not NO_METRICS.search(line)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[tuple[Kubectl, Components]]:
    if (reason := why_missing(*COMPONENTS)) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("go")
    kubeconfig = folder / "kubeconfig"
    with Kubeloop(folder).running("apiserver", f"--nodes={NODES}", f"--kubeconfig={kubeconfig}") as server:
        server.wait_for("export KUBECONFIG")
        components = Components(folder, str(kubeconfig))
        try:
            kubectl = Kubectl(str(kubeconfig), folder)
            kubectl("apply", "-f", WORKLOADS)
            yield kubectl, components
        finally:
            components.end()


def until(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.2)


def names(kubectl: Kubectl, *arguments: str) -> set[str]:
    return {each["metadata"]["name"] for each in kubectl.json("get", "-n", "work", *arguments)["items"]}


def test_every_workload_comes_up(cluster, needs_kubectl):
    kubectl, _ = cluster

    def field(what: str, path: str) -> str:
        return kubectl.run("get", "-n", "work", what, "-o", f"jsonpath={path}").stdout  # nothing while it is not there

    def is_so(what: str, path: str, wanted: str) -> bool:
        return field(what, path) == wanted

    for what, path, wanted in (
        ("deployment/web", "{.status.availableReplicas}", "3"),
        ("statefulset/db", "{.status.readyReplicas}", "2"),
        ("daemonset/agent", "{.status.numberAvailable}", str(NODES)),
        ("replicationcontroller/old", "{.status.availableReplicas}", "1"),
        ("job/once", "{.status.succeeded}", "2"),
        ("poddisruptionbudget/web", "{.status.disruptionsAllowed}", "1"),
        ("pvc/data-db-0", "{.status.phase}", "Bound"),
        ("pvc/data-db-1", "{.status.phase}", "Bound"),
        ("endpoints/web", "{.subsets[0].ports[0].port}", "80"),
        ("resourcequota/q", "{.status.used.services}", "1"),
        ("hpa/web", '{.status.conditions[?(@.type=="ScalingActive")].reason}', "FailedGetResourceMetric"),
        ("configmap/kube-root-ca.crt", "{.metadata.name}", "kube-root-ca.crt"),
    ):
        until(partial(is_so, what, path, wanted), f"{what} {path} {wanted}")
    (piece,) = kubectl.json("get", "endpointslices", "-n", "work", "-l", "kubernetes.io/service-name=web")["items"]
    assert len(piece["endpoints"]) == 3
    until(lambda: field("resourcequota/q", "{.status.used.pods}") == "11", "the quota counts what runs")


def test_a_rollout_replaces_every_pod(cluster, needs_kubectl):
    kubectl, _ = cluster
    before = names(kubectl, "pods", "-l", "app=web")
    kubectl("set", "image", "-n", "work", "deployment/web", "c=nginx:2")
    kubectl("rollout", "status", "-n", "work", "deployment/web", "--timeout=90s")
    until(lambda: not names(kubectl, "pods", "-l", "app=web") & before, "the old pods are gone")


def test_a_node_is_drained_as_its_budgets_allow(cluster, needs_kubectl):
    kubectl, _ = cluster
    node = kubectl.json("get", "pods", "-n", "work", "-l", "app=web")["items"][0]["spec"]["nodeName"]
    kubectl("drain", node, "--ignore-daemonsets", "--timeout=90s")
    left = kubectl.json("get", "pods", "-n", "work", "--field-selector", f"spec.nodeName={node}")["items"]
    assert {each["metadata"]["labels"]["app"] for each in left} <= {"agent"}
    kubectl("uncordon", node)
    kubectl("rollout", "status", "-n", "work", "deployment/web", "--timeout=90s")
    until(lambda: len(names(kubectl, "pods", "-l", "app=web")) == 3, "three pods run elsewhere")


@pytest.mark.parametrize("cascade", ["foreground", "background", "orphan"])
def test_what_an_owner_leaves_behind(cluster, needs_kubectl, cascade):
    kubectl, _ = cluster
    kubectl("create", "deployment", cascade, "-n", "work", "--image=x", "--replicas=0")
    until(lambda: names(kubectl, "replicasets", "-l", f"app={cascade}"), "it has a ReplicaSet")
    kubectl("delete", "deployment", cascade, "-n", "work", f"--cascade={cascade}")
    if cascade != "orphan":
        until(lambda: not names(kubectl, "replicasets", "-l", f"app={cascade}"), "its ReplicaSet is gone")
        return
    (left,) = kubectl.json("get", "replicasets", "-n", "work", "-l", f"app={cascade}")["items"]
    assert "ownerReferences" not in left["metadata"]


def test_a_claim_is_protected_while_it_is_used_and_its_volume_released(cluster, needs_kubectl):
    kubectl, _ = cluster
    volume = kubectl("get", "pvc", "data-db-1", "-n", "work", "-o", "jsonpath={.spec.volumeName}")
    kubectl("delete", "pvc", "data-db-1", "-n", "work", "--wait=false")
    assert "data-db-1" in names(kubectl, "pvc")
    kubectl("scale", "statefulset/db", "-n", "work", "--replicas=1")
    until(lambda: "data-db-1" not in names(kubectl, "pvc"), "the claim goes with its pod")
    phase = ("get", "pv", volume, "-o", "jsonpath={.status.phase}")
    until(lambda: kubectl(*phase) == "Released", "its volume is released")


def test_a_certificate_is_signed(cluster, needs_kubectl):
    kubectl, _ = cluster
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name)
    pem = asked.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    request = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    request |= {"metadata": {"name": "mine"}, "spec": spec | {"request": base64.b64encode(pem).decode()}}
    kubectl("create", "-f", "-", stdin=str(request).replace("'", '"'))
    kubectl("certificate", "approve", "mine")
    read = ("get", "csr", "mine", "-o", "jsonpath={.status.certificate}")
    until(lambda: kubectl(*read), "there is a certificate")
    signed = x509.load_pem_x509_certificate(base64.b64decode(kubectl(*read)))
    assert signed.subject == name


def test_a_cron_job_has_run(cluster, needs_kubectl):
    kubectl, _ = cluster
    until(lambda: any(name.startswith("tick-") for name in names(kubectl, "jobs")), "a minute passes", 75)
    (run, *_) = (name for name in names(kubectl, "jobs") if name.startswith("tick-"))
    kubectl("wait", "-n", "work", "--for=condition=complete", f"job/{run}", "--timeout=90s")


def test_a_namespace_goes_with_all_that_is_in_it(cluster, needs_kubectl):
    kubectl, _ = cluster
    kubectl("delete", "namespace", "work", "--timeout=55s")
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    assert kubectl("get", ",".join(kinds), "-n", "work", "-o", "name", "--ignore-not-found") == ""


def test_the_two_have_nothing_to_complain_of(cluster, needs_kubectl):
    _, components = cluster
    assert components.complaints() == []
