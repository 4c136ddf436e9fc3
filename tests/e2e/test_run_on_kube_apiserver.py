"""`kubeloop run` on a real kube-apiserver with etcd: rollouts, restarts, throttling, leader election, permissions."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from kubeloop.kube.feature_gates import gang_scheduling_text
from support.comparison import scenario
from support.comparison.audited_permissions import (
    AUDIT_POLICY,
    Permission,
    audited_permissions,
    granted_permissions,
    read_pages,
)
from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver, write_key
from support.comparison.scenario import JSON, deployment, run_scenario
from support.objects.devices import claim, device, device_class, device_slice
from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, WEB, Kubectl, Kubeloop, KubeloopProcess

ROLE = ROOT / "deploy" / "scheduler" / "kubeloop.yaml"
ACCOUNT = "system:serviceaccount:kube-system:kubeloop"
SMALL = {"resources": {"requests": {"cpu": "10m"}}}
OWN_CONTROLLERS = "deployment,replicaset,replicationcontroller,scheduler"


def wait(condition: Callable[[], object], description: str) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TIMEOUT_SECONDS, f"not within {TIMEOUT_SECONDS:g} s: {description}"
        time.sleep(0.05)


class Cluster:
    """An API server with six ready nodes, and a namespace."""

    def __init__(self, server: RealApiServer, folder: Path, namespace: str) -> None:
        self.server = server
        self.folder = folder
        self.namespace = namespace
        self.kubeloop = Kubeloop(folder)
        self.kubectl = Kubectl(str(server.kubeconfig), folder)
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def run(self, *flags: str, kubeconfig: Path | None = None) -> AbstractContextManager[KubeloopProcess]:
        return self.kubeloop.running(
            "run", f"--kubeconfig={kubeconfig or self.server.kubeconfig}", "-v", "info", *flags
        )

    @property
    def deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"

    def create(self, name: str, replicas: int, **spec: object) -> None:
        self.server.request("POST", self.deployments, deployment(name, replicas, **spec))

    def scale(self, name: str, replicas: int) -> None:
        self.server.request(
            "PATCH",
            f"{self.deployments}/{name}",
            {"spec": {"replicas": replicas}},
            content_type="application/merge-patch+json",
        )

    def pods(self) -> list[JSON]:
        return self.server.request("GET", f"/api/v1/namespaces/{self.namespace}/pods?resourceVersion=0")["items"]

    def bound(self) -> list[JSON]:
        return [pod for pod in self.pods() if pod["spec"].get("nodeName")]

    def wait_complete(self, name: str) -> None:
        def complete() -> bool:
            obj = self.server.request("GET", f"{self.deployments}/{name}")
            desired, status = obj["spec"]["replicas"], obj.get("status", {})
            return status.get("observedGeneration") == obj["metadata"]["generation"] and all(
                status.get(key, 0) == desired for key in ("replicas", "updatedReplicas", "availableReplicas")
            )

        wait(complete, f"{name} is complete")


def create_nodes(server: RealApiServer) -> None:
    for number in range(6):
        make_node(server, f"node-{number}", labels={scenario.ZONE: f"zone-{number % 3}"})


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("shared")) as server, fake_kubelet(server):
        create_nodes(server)
        yield server


@pytest.fixture
def cluster(shared_server: RealApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A namespace on the shared server; its workloads are deleted after the test."""
    namespace = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    cluster = Cluster(shared_server, tmp_path, namespace)
    yield cluster
    for path in (cluster.deployments, f"/apis/apps/v1/namespaces/{cluster.namespace}/replicasets"):
        shared_server.request("DELETE", path)
    shared_server.request("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods?gracePeriodSeconds=0")


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start a separate server, with additional flags."""
    needs_binaries()
    opened: list[AbstractContextManager[object]] = []

    def make(**flags: str) -> Cluster:
        context = real_apiserver(tmp_path / "server", {name.replace("_", "-"): value for name, value in flags.items()})
        server = context.__enter__()
        opened.append(context)
        kubelet = fake_kubelet(server)
        kubelet.__enter__()
        opened.append(kubelet)
        create_nodes(server)
        return Cluster(server, tmp_path, "shop")

    yield make
    for context in reversed(opened):
        context.__exit__(None, None, None)


def test_kubectl_rolls_out_and_back_and_scales(cluster, needs_kubectl):
    kubectl, namespace = cluster.kubectl, ("-n", cluster.namespace)
    with cluster.run() as running:
        running.wait_for("endpoint")
        kubectl("apply", *namespace, "-f", WEB)
        kubectl("rollout", "status", *namespace, "deploy/web", "--timeout=90s")
        kubectl("set", "image", *namespace, "deploy/web", "web=nginx:1.30")
        kubectl("rollout", "status", *namespace, "deploy/web", "--timeout=90s")
        history = kubectl("rollout", "history", *namespace, "deploy/web")
        assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
        kubectl("rollout", "undo", *namespace, "deploy/web")
        kubectl("rollout", "status", *namespace, "deploy/web", "--timeout=90s")
        kubectl("rollout", "pause", *namespace, "deploy/web")
        kubectl("set", "image", *namespace, "deploy/web", "web=nginx:1.31")
        kubectl("scale", *namespace, "deploy/web", "--replicas=7")
        wait(lambda: len(cluster.bound()) == 7, "seven pods while the rollout is paused")
        assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"nginx:1.29"}
        kubectl("rollout", "resume", *namespace, "deploy/web")
        kubectl("rollout", "status", *namespace, "deploy/web", "--timeout=90s")
        assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"nginx:1.31"}
        reasons = set(kubectl("events", *namespace, "-o", "jsonpath={.items[*].reason}").split())
        assert {"ScalingReplicaSet", "SuccessfulCreate", "SuccessfulDelete", "Scheduled"} <= reasons


def test_garbage_collector_and_namespace_controller_delete_objects(cluster, needs_kubectl):
    namespace = ("-n", cluster.namespace)
    with cluster.run("--controllers=*") as running:
        running.wait_for("endpoint")
        for name in ("background", "foreground", "orphaned"):
            cluster.create(name, 3)
            cluster.wait_complete(name)
        cluster.kubectl("delete", *namespace, "deploy/background", "--wait", "--cascade=background")
        cluster.kubectl("delete", *namespace, "deploy/foreground", "--wait", "--cascade=foreground")
        cluster.kubectl("delete", *namespace, "deploy/orphaned", "--wait", "--cascade=orphan")
        wait(
            lambda: {pod["metadata"]["labels"]["app"] for pod in cluster.pods()} == {"orphaned"},
            "the others are deleted",
        )
        sets = cluster.kubectl.json("get", *namespace, "replicasets")["items"]
        assert [replica_set["metadata"]["labels"]["app"] for replica_set in sets] == ["orphaned"]
        assert "ownerReferences" not in sets[0]["metadata"]
        cluster.server.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"{cluster.namespace}-2"}})
        other = f"/api/v1/namespaces/{cluster.namespace}-2"
        cluster.server.request("POST", f"{other}/configmaps", {"metadata": {"name": "left"}})
        cluster.kubectl("delete", "namespace", f"{cluster.namespace}-2", "--wait", "--timeout=90s")


def test_preemption_respects_disruption_budgets(make_cluster):
    cluster = make_cluster()
    make_node(cluster.server, "small-1", labels={"size": "small"}, size={"cpu": "1", "memory": "8Gi", "pods": "10"})
    make_node(cluster.server, "small-2", labels={"size": "small"}, size={"cpu": "1", "memory": "8Gi", "pods": "10"})
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value}
        cluster.server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    big = {"resources": {"requests": {"cpu": "800m"}}}
    small = {"nodeSelector": {"size": "small"}}
    with cluster.run() as running:
        running.wait_for("endpoint")
        for name in ("protected", "unprotected"):
            cluster.create(name, 1, container=big, pod=small | {"priorityClassName": "low"})
            cluster.wait_complete(name)
        budgets = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
        cluster.server.request("POST", budgets, {"metadata": {"name": "protected"}, "spec": spec})
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        cluster.server.request(
            "PATCH", f"{budgets}/protected/status", {"status": status}, content_type="application/merge-patch+json"
        )
        before = {pod["metadata"]["labels"]["app"]: pod["metadata"]["uid"] for pod in cluster.pods()}
        cluster.create("urgent", 1, container=big, pod=small | {"priorityClassName": "high"})
        cluster.wait_complete("urgent")
        after = {pod["metadata"]["uid"] for pod in cluster.bound()}
        assert before["protected"] in after
        assert before["unprotected"] not in after


def test_no_pod_is_lost_or_duplicated_after_sigkill(make_cluster):
    replicas = 300
    cluster = make_cluster()
    with cluster.run() as running:
        running.wait_for("endpoint")
        cluster.create("web", replicas, container=SMALL)
        wait(lambda: len(cluster.bound()) >= 30, "the first pods are bound")
        running.stop(signal.SIGKILL)
    with cluster.run() as running:
        wait(lambda: len(cluster.bound()) >= 120, "the new process continues")
        cluster.server.kill_apiserver()
        cluster.server.start_apiserver()
        cluster.wait_complete("web")
        pods = cluster.pods()
        assert len(pods) == replicas
        assert len({pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}) == replicas
        assert running.process.poll() is None
        assert not any("Traceback" in line for line in running.lines)


def test_changes_in_compacted_history_are_relisted(make_cluster):
    cluster = make_cluster()
    server = cluster.server
    with cluster.run("--controllers=*") as running:
        running.wait_for("endpoint")
        for name in ("stays", "goes"):
            cluster.create(name, 2)
            cluster.wait_complete(name)
        running.process.send_signal(signal.SIGSTOP)
        server.request("DELETE", f"{cluster.deployments}/goes", {"propagationPolicy": "Background"})
        cluster.create("comes", 2)
        cluster.scale("stays", 3)
        compact(server)
        server.kill_apiserver()  # its watch cache still holds the compacted history
        server.start_apiserver()
        running.process.send_signal(signal.SIGCONT)
        for name in ("stays", "comes"):
            cluster.wait_complete(name)
        wait(
            lambda: all(pod["metadata"]["labels"]["app"] != "goes" for pod in cluster.pods()),
            "the pods of goes are deleted",
        )


def compact(server: RealApiServer) -> None:
    """Compact the history in etcd. Source: etcd's gRPC gateway, /v3/kv."""

    def post(path: str, body: JSON) -> JSON:
        request = urllib.request.Request(server.etcd_url + path, data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    revision = post("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
    post("/v3/kv/compaction", {"revision": revision, "physical": True})


def test_throttled_requests_are_retried(make_cluster):
    cluster = make_cluster()
    server = cluster.server
    certificate, key = server.authority.sign("throttled", user="throttled", groups=["people"])
    level = {
        "metadata": {"name": "narrow"},
        "spec": {
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}},
        },
    }
    all_resources = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    schema = {
        "metadata": {"name": "narrow"},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": "narrow"},
            "rules": [
                {"subjects": [{"kind": "User", "user": {"name": "throttled"}}], "resourceRules": [all_resources]}
            ],
        },
    }
    flow = "/apis/flowcontrol.apiserver.k8s.io/v1"
    server.request("POST", f"{flow}/prioritylevelconfigurations", level)
    server.request("POST", f"{flow}/flowschemas", schema)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    with cluster.run(kubeconfig=server.kubeconfig_of("throttled", user)) as running:
        url = running.wait_for(r"endpoint (http\S+)").group(1)
        cluster.create("web", 40, container=SMALL)
        cluster.wait_complete("web")
        assert len(cluster.pods()) == 40
        with urllib.request.urlopen(f"{url}/metrics") as response:
            requests = [line for line in response.read().decode().splitlines() if 'code="429"' in line]
        assert requests, "the server throttled no request"


def test_standby_takes_over_after_the_leader_is_killed(cluster):
    # short, but long enough that a leader on a busy machine does not lose its lease
    lease_flags = ("--leader-elect", "--leader-elect-lease-duration=8", "--leader-elect-renew-deadline=7")
    lease_flags += ("--leader-elect-retry-period=0.5",)
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubeloop"

    def holder() -> str:
        try:
            return cluster.server.request("GET", lease)["spec"].get("holderIdentity") or ""
        except urllib.error.HTTPError:
            return ""

    with cluster.run(*lease_flags) as first:
        wait(holder, "the first process leads")
        leader = holder()
        with cluster.run(*lease_flags) as second:
            second.wait_for("endpoint")
            cluster.create("web", 4)
            cluster.wait_complete("web")
            assert holder() == leader
            first.stop(signal.SIGKILL)
            cluster.scale("web", 9)
            wait(lambda: holder() != leader or second.process.poll() is not None, "the second process leads")
            assert second.process.poll() is None, second.lines
            cluster.wait_complete("web")
            assert holder() not in ("", leader)
            assert second.stop() == 0
    assert not holder(), "the lease is released at shutdown"


def test_rotated_token_file_is_reloaded(make_cluster):
    cluster = make_cluster()
    server = cluster.server
    server.request("POST", "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "kubeloop"}})
    token_file = cluster.folder / "token"
    token_file.write_text(token_of(server))
    with cluster.run(kubeconfig=server.kubeconfig_of("kubeloop", {"tokenFile": str(token_file)})) as running:
        running.wait_for("endpoint")
        cluster.create("web", 2)
        cluster.wait_complete("web")
        server.kill_apiserver()
        key = cluster.folder / "another.key"
        write_key(key, ec.generate_private_key(ec.SECP256R1()))
        server.flags["service-account-key-file"] = server.flags["service-account-signing-key-file"] = str(key)
        server.start_apiserver()
        cluster.scale("web", 5)
        running.wait_for("Unauthorized")
        token_file.write_text(token_of(server))
        cluster.wait_complete("web")


def token_of(server: RealApiServer) -> str:
    path = "/api/v1/namespaces/kube-system/serviceaccounts/kubeloop/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    return server.request("POST", path, body)["status"]["token"]


@pytest.mark.parametrize(
    ("user", "messages"),
    [
        pytest.param({"token": "wrong"}, ("Unauthorized",), id="wrong token"),
        pytest.param({}, ("Unauthorized", "forbidden"), id="no credentials"),
    ],
)
def test_refused_credentials_are_reported_with_a_hint(cluster, user, messages):
    result = cluster.kubeloop.run("run", f"--kubeconfig={cluster.server.kubeconfig_of('refused', user)}")
    assert result.returncode != 0
    assert any(message in result.stderr for message in messages), result.stderr
    assert "hint" in result.stderr
    assert "Traceback" not in result.stderr


# Permissions that the scenario does not use, with the situation that needs them.
RARELY_USED: dict[Permission, str] = {
    ("", "persistentvolumeclaims", "patch"): "provisioning for the first consumer",
    ("batch", "cronjobs", "get"): "pods of CronJobs that another process creates, in traces",
    ("resource.k8s.io", "resourceclaims", "get"): "a write to a claim that conflicted",
    ("resource.k8s.io", "resourceclaims", "delete"): "the claim for extended resources of a pod that cannot be bound",
    ("resource.k8s.io", "resourceclaims/binding", "patch"): "checked by the API server in addition, not a request",
    ("resource.k8s.io", "devicetaintrules", "list"): "feature gate DRADeviceTaintRules",
    ("resource.k8s.io", "devicetaintrules", "watch"): "feature gate DRADeviceTaintRules",
    ("apps", "deployments", "patch"): "revision annotation of a Deployment that changes without a new ReplicaSet",
}


def test_cluster_role_grants_exactly_the_needed_permissions(tmp_path):
    needs_binaries("kube-controller-manager")
    policy, log = tmp_path / "policy.json", tmp_path / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = {
        "authorization-mode": "RBAC",
        "audit-policy-file": str(policy),
        "audit-log-path": str(log),
        "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
        # informers use list requests, as with servers before v1.32
        "feature-gates": f"WatchList=false,{gang_scheduling_text()}",
        "runtime-config": "scheduling.k8s.io/v1alpha2=true",
    }
    with real_apiserver(tmp_path / "server", flags) as server, fake_kubelet(server):
        granted = run_with_cluster_role(server, Kubeloop(tmp_path))
        used, refused = audited_permissions(log, ACCOUNT)
    assert refused == {("", "pods/log", "get")}  # needs deploy/components/logs
    finalizers = {
        permission for permission in granted if permission[1].endswith("/finalizers")
    }  # needed by an admission plugin
    assert sorted(granted - used - finalizers - set(RARELY_USED)) == []
    assert sorted(set(RARELY_USED) - granted) == []


def schedule_group_with_devices(server: RealApiServer) -> None:
    """Schedule a gang that shares a claim, and whose pods request an extended resource that devices provide."""
    resources, scheduling = "/apis/resource.k8s.io/v1", "/apis/scheduling.k8s.io/v1alpha2/namespaces/devices"
    gpu, pods = "example.com/gpu", "/api/v1/namespaces/devices/pods"

    def create(path: str, obj: JSON) -> None:
        server.request("POST", path, obj | {"metadata": {"name": obj["metadata"]["name"]}})

    create("/api/v1/namespaces", {"metadata": {"name": "devices"}})
    create(f"{resources}/deviceclasses", device_class(extendedResourceName=gpu))
    create(f"{resources}/resourceslices", device_slice("node-0", device("d"), device("e"), device("f")))
    create(f"{resources}/namespaces/devices/resourceclaims", claim("shared"))
    shared = {"name": "gpu", "resourceClaimName": "shared"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [shared]}
    create(f"{scheduling}/podgroups", {"metadata": {"name": "g"}, "spec": spec})
    for name in ("p", "q"):
        container = {"name": "main", "image": "app:1", "resources": {"limits": {gpu: "1"}}}
        spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [shared], "containers": [container]}
        create(pods, {"metadata": {"name": name}, "spec": spec})
    wait(lambda: all(pod["spec"].get("nodeName") for pod in server.request("GET", pods)["items"]), "the gang is bound")
    group = f"{scheduling}/podgroups/g"
    wait(lambda: server.request("GET", group).get("status", {}).get("conditions"), "the group has its condition")


def run_with_cluster_role(server: RealApiServer, kubeloop: Kubeloop) -> set[Permission]:
    """Run steps that need all permissions as kubeloop's ServiceAccount. Returns what its ClusterRole grants."""
    documents = [document for document in yaml.safe_load_all(ROLE.read_text()) if document["kind"] != "Deployment"]
    paths = {
        "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    }
    for document in documents:
        server.request("POST", paths[document["kind"]], document)
    disabled = ",".join(f"-{name}-controller" for name in ("deployment", "replicaset", "replicationcontroller"))
    server.start_component(
        "kube-controller-manager", f"--controllers=*,-node-lifecycle-controller,{disabled}", "--leader-elect=false"
    )
    kubeconfig = server.kubeconfig_of("kubeloop", {"token": token_of(server)})
    steps = (scenario.placement, scenario.unschedulable, scenario.schedulable_again, scenario.recreated)
    steps += (scenario.replication_controller, scenario.volumes, scenario.preemption)
    flags = ("--leader-elect", f"--controllers={OWN_CONTROLLERS}", f"--feature-gates={gang_scheduling_text()}")
    with kubeloop.running("run", f"--kubeconfig={kubeconfig}", *flags) as running:
        for _ in run_scenario(server, steps):
            pass
        schedule_group_with_devices(server)
        read_pages(running.wait_for(r"endpoint (http\S+)").group(1), "devices", "p", "node-0")
    return granted_permissions(next(document["rules"] for document in documents if document["kind"] == "ClusterRole"))
