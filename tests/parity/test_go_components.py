"""kube-controller-manager and kube-scheduler on the development API server with simulated nodes.

They use protobuf, watch lists, leases, a service account token for each controller, metadata informers, discovery and
managed fields. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import base64
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

from support.comparison.go_components import COMPONENTS, GoComponents
from support.comparison.real_apiserver import why_missing
from support.processes.cli_processes import TIMEOUT_SECONDS, Kubectl, Kubeloop

JSON = dict[str, Any]
NODES = 5
WORKLOADS = Path(__file__).parents[1] / "support" / "go_components" / "workloads.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[tuple[Kubectl, GoComponents]]:
    if (reason := why_missing(*COMPONENTS)) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("go")
    kubeconfig = folder / "kubeconfig"
    with Kubeloop(folder).running("apiserver", f"--nodes={NODES}", f"--kubeconfig={kubeconfig}") as server:
        server.wait_for("export KUBECONFIG")
        components = GoComponents(folder, str(kubeconfig))
        try:
            kubectl = Kubectl(str(kubeconfig), folder)
            kubectl("apply", "-f", WORKLOADS)
            yield kubectl, components
        finally:
            components.kill()


def wait_until(condition: Callable[[], object], description: str, seconds: float = TIMEOUT_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{description}: not within {seconds} s"
        time.sleep(0.2)


def names(kubectl: Kubectl, *arguments: str) -> set[str]:
    return {item["metadata"]["name"] for item in kubectl.json("get", "-n", "work", *arguments)["items"]}


def test_all_workloads_become_available(cluster, needs_kubectl):
    kubectl, _ = cluster

    def field(name: str, path: str) -> str:
        return kubectl.run("get", "-n", "work", name, "-o", f"jsonpath={path}").stdout  # "" while it does not exist

    def field_equals(name: str, path: str, expected: str) -> bool:
        return field(name, path) == expected

    for name, path, expected in (
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
        wait_until(partial(field_equals, name, path, expected), f"{name} {path} {expected}")
    (endpoint_slice,) = kubectl.json("get", "endpointslices", "-n", "work", "-l", "kubernetes.io/service-name=web")[
        "items"
    ]
    assert len(endpoint_slice["endpoints"]) == 3
    wait_until(lambda: field("resourcequota/q", "{.status.used.pods}") == "11", "the quota counts all pods")


def test_rollout_replaces_all_pods(cluster, needs_kubectl):
    kubectl, _ = cluster
    before = names(kubectl, "pods", "-l", "app=web")
    kubectl("set", "image", "-n", "work", "deployment/web", "c=nginx:2")
    kubectl("rollout", "status", "-n", "work", "deployment/web", "--timeout=90s")
    wait_until(lambda: not names(kubectl, "pods", "-l", "app=web") & before, "the old pods are deleted")


def test_drain_respects_disruption_budgets(cluster, needs_kubectl):
    kubectl, _ = cluster
    node = kubectl.json("get", "pods", "-n", "work", "-l", "app=web")["items"][0]["spec"]["nodeName"]
    kubectl("drain", node, "--ignore-daemonsets", "--timeout=90s")
    remaining = kubectl.json("get", "pods", "-n", "work", "--field-selector", f"spec.nodeName={node}")["items"]
    assert {pod["metadata"]["labels"]["app"] for pod in remaining} <= {"agent"}
    kubectl("uncordon", node)
    kubectl("rollout", "status", "-n", "work", "deployment/web", "--timeout=90s")
    wait_until(lambda: len(names(kubectl, "pods", "-l", "app=web")) == 3, "three pods run on other nodes")


@pytest.mark.parametrize("cascade", ["foreground", "background", "orphan"])
def test_cascading_deletion(cluster, needs_kubectl, cascade):
    kubectl, _ = cluster
    kubectl("create", "deployment", cascade, "-n", "work", "--image=x", "--replicas=0")
    wait_until(lambda: names(kubectl, "replicasets", "-l", f"app={cascade}"), "the Deployment has a ReplicaSet")
    kubectl("delete", "deployment", cascade, "-n", "work", f"--cascade={cascade}")
    if cascade != "orphan":
        wait_until(lambda: not names(kubectl, "replicasets", "-l", f"app={cascade}"), "its ReplicaSet is deleted")
        return
    (orphan,) = kubectl.json("get", "replicasets", "-n", "work", "-l", f"app={cascade}")["items"]
    assert "ownerReferences" not in orphan["metadata"]


def test_claim_in_use_is_protected_and_its_volume_released(cluster, needs_kubectl):
    kubectl, _ = cluster
    volume = kubectl("get", "pvc", "data-db-1", "-n", "work", "-o", "jsonpath={.spec.volumeName}")
    kubectl("delete", "pvc", "data-db-1", "-n", "work", "--wait=false")
    assert "data-db-1" in names(kubectl, "pvc")
    kubectl("scale", "statefulset/db", "-n", "work", "--replicas=1")
    wait_until(lambda: "data-db-1" not in names(kubectl, "pvc"), "the claim is deleted after its pod")
    phase = ("get", "pv", volume, "-o", "jsonpath={.status.phase}")
    wait_until(lambda: kubectl(*phase) == "Released", "its volume is released")


def test_certificate_signing_request_is_signed(cluster, needs_kubectl):
    kubectl, _ = cluster
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "user")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    spec = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    request = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    request |= {"metadata": {"name": "mine"}, "spec": spec | {"request": base64.b64encode(pem).decode()}}
    kubectl("create", "-f", "-", stdin=str(request).replace("'", '"'))
    kubectl("certificate", "approve", "mine")
    read = ("get", "csr", "mine", "-o", "jsonpath={.status.certificate}")
    wait_until(lambda: kubectl(*read), "the certificate is issued")
    signed = x509.load_pem_x509_certificate(base64.b64decode(kubectl(*read)))
    assert signed.subject == name


def test_cron_job_creates_a_job(cluster, needs_kubectl):
    kubectl, _ = cluster
    wait_until(lambda: any(name.startswith("tick-") for name in names(kubectl, "jobs")), "the cron job has run", 75)
    (job, *_) = (name for name in names(kubectl, "jobs") if name.startswith("tick-"))
    kubectl("wait", "-n", "work", "--for=condition=complete", f"job/{job}", "--timeout=90s")


def test_namespace_deletion_deletes_its_contents(cluster, needs_kubectl):
    kubectl, _ = cluster
    kubectl("delete", "namespace", "work", "--timeout=55s")
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    assert kubectl("get", ",".join(kinds), "-n", "work", "-o", "name", "--ignore-not-found") == ""


def test_components_log_no_server_errors(cluster, needs_kubectl):
    _, components = cluster
    assert components.server_errors() == []
