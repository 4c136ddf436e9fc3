"""`kubeloop observe` as a process: restarts of it and of the API server, permissions, and its manifest."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.comparison.audited_permissions import (
    AUDIT_POLICY,
    audited_permissions,
    granted_permissions,
    read_pages,
)
from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.comparison.scenario import deployment
from support.processes.cli_processes import (
    ROOT,
    TIMEOUT_SECONDS,
    Kubectl,
    Kubeloop,
    KubeloopProcess,
    reserved_port,
    wait_until,
)
from support.traces.otlp import Collector, ReceivedSpan

MANIFEST = ROOT / "deploy" / "observe" / "observe.yaml"
DOCUMENTS = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}
ACCOUNT = "system:serviceaccount:kubeloop-observe:kubeloop-observe"


def roots(collector: Collector) -> list[ReceivedSpan]:
    """Return the root span of each trace. Its parent is the context in the pod's annotation, if there is one."""
    return [span for span in collector.spans() if "kubeloop.observed" in span.attributes]


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=TIMEOUT_SECONDS) as response:
            return response.status == 200
    except urllib.error.HTTPError:
        return False


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().running() as running:
        yield running


class Cluster:
    """An API server with a fixed port and persistent data, and its controllers and scheduler."""

    def __init__(self, folder: Path, port: int) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.kubeloop = Kubeloop(folder)
        self.kubectl = Kubectl(str(self.kubeconfig), folder)
        self._server_arguments = [f"--port={port}", f"--data-dir={folder / 'data'}", f"--kubeconfig={self.kubeconfig}"]

    @contextmanager
    def api_server(self) -> Iterator[KubeloopProcess]:
        slow_starts = ("--start-delay=1", "--start-spread=0.8")
        with self.kubeloop.running("apiserver", "--nodes=5", *slow_starts, *self._server_arguments) as server:
            server.wait_for("export KUBECONFIG")
            yield server

    @contextmanager
    def control_plane(self) -> Iterator[None]:
        with self.kubeloop.running("run", f"--kubeconfig={self.kubeconfig}", "--trace-journal=") as running:
            running.wait_for("endpoint")
            yield

    @contextmanager
    def observer(self, collector: Collector, *arguments: str) -> Iterator[KubeloopProcess]:
        """Run kubeloop observe, and yield it when it has listed the pods."""
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with self.kubeloop.running("observe", f"--kubeconfig={self.kubeconfig}", *arguments, **environment) as running:
            url = running.wait_for(r"endpoint (\S+)").group(1)
            wait_until(lambda: is_ready(url), "the pods are listed")
            yield running

    def lease_holder(self) -> str:
        leases = self.kubectl.json("get", "-n", "kube-system", "leases")["items"]
        holders = [
            lease["spec"].get("holderIdentity", "") for lease in leases if "observe" in lease["metadata"]["name"]
        ]
        return "".join(holders)

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "deploy/web", f"--replicas={replicas}")

    def pods(self) -> dict[str, bool]:
        """Return whether each pod is Ready, by UID."""
        return {
            pod["metadata"]["uid"]: any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in pod["status"].get("conditions", ())
            )
            for pod in self.kubectl.json("get", "pods")["items"]
        }


def test_each_pod_has_one_trace_over_restarts(tmp_path, collector, needs_kubectl):
    with reserved_port() as port, ExitStack() as stack:
        cluster = Cluster(tmp_path, port)
        server = stack.enter_context(cluster.api_server())
        stack.enter_context(cluster.control_plane())
        cluster.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=0")
        killed = stack.enter_context(cluster.observer(collector))

        cluster.scale(30)
        wait_until(lambda: roots(collector), "the first traces are exported")
        killed.stop(signal.SIGKILL)
        stack.enter_context(cluster.observer(collector))
        wait_until(lambda: len(cluster.pods()) == 30 and all(cluster.pods().values()), "30 pods are ready")

        cluster.scale(60)
        wait_until(lambda: len(cluster.pods()) == 60, "60 pods exist")
        server.stop(signal.SIGKILL)
        stack.enter_context(cluster.api_server())
        cluster.scale(70)
        wait_until(lambda: len(cluster.pods()) == 70 and all(cluster.pods().values()), "70 pods are ready")
        uids = set(cluster.pods())
        wait_until(lambda: {span.attributes["k8s.pod.uid"] for span in roots(collector)} >= uids, "all are exported")
    # a trace that was sent, but not confirmed before the kill, is sent again with the same IDs
    traces = {(span.attributes["k8s.pod.uid"], span.trace_id, span.span_id) for span in roots(collector)}
    assert Counter(uid for uid, _, _ in traces) == Counter(uids)
    assert {span.attributes["kubeloop.outcome"] for span in roots(collector)} == {"ready"}
    assert all(span.attributes["kubeloop.observed"] for span in roots(collector))
    assert all(span.end >= span.start for span in collector.spans())


def test_replicas_export_one_trace_per_pod_when_the_leader_is_killed(tmp_path, needs_kubectl):
    election = ("--leader-elect", "--leader-elect-lease-duration=8", "--leader-elect-renew-deadline=7")
    election += ("--leader-elect-retry-period=0.5",)
    with reserved_port() as port, ExitStack() as stack:
        cluster = Cluster(tmp_path, port)
        stack.enter_context(cluster.api_server())
        stack.enter_context(cluster.control_plane())
        cluster.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=0")
        first, second = (stack.enter_context(Collector().running()) for _ in range(2))
        leader = stack.enter_context(cluster.observer(first, *election))
        wait_until(cluster.lease_holder, "the first replica leads")
        stack.enter_context(cluster.observer(second, *election))

        cluster.scale(10)
        wait_until(lambda: roots(first), "the leader exports")
        assert not roots(second)
        cluster.scale(20)
        wait_until(lambda: len(cluster.pods()) == 20, "20 pods exist")
        holder = cluster.lease_holder()
        leader.stop(signal.SIGKILL)
        cluster.scale(25)
        wait_until(lambda: len(cluster.pods()) == 25 and all(cluster.pods().values()), "25 pods are ready")
        uids = set(cluster.pods())
        wait_until(
            lambda: {span.attributes["k8s.pod.uid"] for span in (*roots(first), *roots(second))} >= uids,
            "all are exported",
        )
        assert cluster.lease_holder() != holder
    exported = [*roots(first), *roots(second)]  # what ended shortly before is exported again, with the same IDs
    traces = {(span.attributes["k8s.pod.uid"], span.trace_id, span.span_id) for span in exported}
    assert Counter(uid for uid, _, _ in traces) == Counter(uids)
    assert {span.attributes["kubeloop.outcome"] for span in exported} == {"ready"}


def test_manifests_run_restricted_pods_with_few_permissions(web, needs_kubectl):
    _, _, kubectl = web
    kubectl("apply", "-k", MANIFEST.parent)
    kubectl("rollout", "status", "-n", "kubeloop-observe", "deploy/kubeloop-observe", "--timeout=90s")
    verbs = {verb for _, _, verb in granted_permissions(DOCUMENTS["ClusterRole"]["rules"])}
    assert verbs == {"get", "list", "watch"}
    template = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["runAsNonRoot"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)

    kubectl("apply", "-k", ROOT / "deploy" / "observe-replicas")
    kubectl("rollout", "status", "-n", "kubeloop-observe", "deploy/kubeloop-observe", "--timeout=90s")
    spec = kubectl.json("get", "-n", "kubeloop-observe", "deploy/kubeloop-observe")["spec"]
    (changed,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 2
    assert changed["args"][: len(container["args"])] == container["args"]
    assert changed["securityContext"] == container["securityContext"]
    namespace = next(flag for flag in changed["args"] if "namespace" in flag).partition("=")[2]
    role = kubectl.json("get", "-n", namespace, "role/kubeloop-observe")
    (subject,) = kubectl.json("get", "-n", namespace, "rolebinding/kubeloop-observe")["subjects"]
    assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == ACCOUNT
    assert granted_permissions(role["rules"]) == {
        ("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "patch")
    }


# --- permissions on a kube-apiserver with RBAC -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[tuple[RealApiServer, Path]]:
    """A kube-apiserver with RBAC and the audit log of its requests, with nodes, kubelets and controllers."""
    needs_binaries("kube-controller-manager", "kube-scheduler")
    folder = tmp_path_factory.mktemp("secured")
    policy, log = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = {"authorization-mode": "RBAC", "audit-policy-file": str(policy), "audit-log-path": str(log)}
    with real_apiserver(folder / "server", flags) as server, fake_kubelet(server):
        for number in range(3):
            make_node(server, f"node-{number}")
        server.start_component(
            "kube-controller-manager", "--controllers=*,-node-lifecycle-controller", "--leader-elect=false"
        )
        server.start_component("kube-scheduler", "--leader-elect=false")
        for kind, path in (
            ("Namespace", "/api/v1/namespaces"),
            ("ServiceAccount", "/api/v1/namespaces/kubeloop-observe/serviceaccounts"),
            ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
            ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ):
            server.request("POST", path, DOCUMENTS[kind])
        yield server, log


def account_kubeconfig(server: RealApiServer, name: str, rules: list[Mapping[str, Any]] | None = None) -> Path:
    """Return the kubeconfig of a service account: that of the manifest, or a new one with these rules."""
    namespace = "kubeloop-observe"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if rules is not None:
        server.request("POST", accounts, {"metadata": {"name": name}})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        server.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        server.request("POST", f"{rbac}/clusterrolebindings", body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token = server.request("POST", f"{accounts}/{name}/token", request)["status"]["token"]
    return server.kubeconfig_of(name, {"token": token})


def test_cluster_role_suffices_and_nothing_is_written(secured, tmp_path, collector):
    server, log = secured
    kubeconfig = account_kubeconfig(server, "kubeloop-observe")
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    with Kubeloop(tmp_path).running("observe", f"--kubeconfig={kubeconfig}", **environment) as running:
        running.wait_for("endpoint")
        server.request("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("web", 3))
        job = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}}}
        cron_job = {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": job}}
        path = "/apis/batch/v1/namespaces/default"
        owner = server.request("POST", f"{path}/cronjobs", {"metadata": {"name": "tick"}, "spec": cron_job})
        reference = {name: owner[name] for name in ("apiVersion", "kind")}
        reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
        metadata = {"name": "tick-1", "ownerReferences": [{**reference, "controller": True}]}
        server.request("POST", f"{path}/jobs", {"metadata": metadata, "spec": job})
        wait_until(lambda: len(roots(collector)) == 4, "all pods are traced")
        pod = next(span.attributes["k8s.pod.name"] for span in roots(collector))
        read_pages(running.wait_for(r"endpoint (http\S+)").group(1), "default", pod, "node-0")
    top_owners = Counter(
        (span.attributes["kubeloop.owner.kind"], span.attributes["kubeloop.owner.name"]) for span in roots(collector)
    )
    assert top_owners == {("Deployment", "web"): 3, ("CronJob", "tick"): 1}
    used, refused = audited_permissions(log, ACCOUNT)
    assert refused == {("", "pods/log", "get")}  # needs deploy/components/logs
    assert {verb for _, _, verb in used} == {"get", "list", "watch"}
    assert used <= granted_permissions(DOCUMENTS["ClusterRole"]["rules"])


def test_missing_permissions_reduce_detail_and_are_reported_in_one_line(secured, tmp_path, collector):
    server, _ = secured
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    kubeconfig = account_kubeconfig(server, "only-pods", rules)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    with Kubeloop(tmp_path).running("observe", f"--kubeconfig={kubeconfig}", **environment) as running:
        running.wait_for("endpoint")
        body = {"metadata": {"name": "single"}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
        server.request("POST", "/api/v1/namespaces/default/pods", body)
        wait_until(lambda: roots(collector), "the pod is traced")
        (warning,) = [line for line in running.lines if "permissions are missing" in line]
    assert "events: " in warning
    assert "nodes: " in warning
    assert [span.attributes["k8s.pod.name"] for span in roots(collector)] == ["single"]


def test_missing_permission_for_pods_is_an_error_with_the_rule(secured, tmp_path):
    server, _ = secured
    kubeconfig = account_kubeconfig(server, "no-pods", [])
    result = Kubeloop(tmp_path).run("observe", f"--kubeconfig={kubeconfig}")
    assert result.returncode == 2
    assert "does not permit to list and watch pods in all namespaces" in result.stderr
    assert 'the rule apiGroups: [""], resources: [pods], verbs: [list, watch]' in result.stderr
    assert "Traceback" not in result.stderr
