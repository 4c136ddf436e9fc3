"""`kubeloop nodes add` on a real kube-apiserver: the nodes that it simulates, their pods, and what it leaves alone."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop, wait_until

PODS = "/api/v1/namespaces/default/pods"
STAGES = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: run}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]
  next:
    statusTemplate: |
      phase: Running
      message: by a stage
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("server")) as running:
        running.request("POST", "/api/v1/nodes", {"metadata": {"name": "real"}})
        running.request("POST", PODS, pod("theirs", "real"))
        yield running


def pod(name: str, node: str) -> dict:
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "100m"}}}
    toleration = {"operator": "Exists"}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [container], "tolerations": [toleration]},
    }


def state(server: RealApiServer, path: str) -> tuple[str, dict]:
    """Return the version of an object, and its conditions by type."""
    obj = server.request("GET", path)
    conditions = {entry["type"]: entry["status"] for entry in obj["status"].get("conditions") or ()}
    return obj["metadata"]["resourceVersion"], conditions


def names(server: RealApiServer, path: str) -> set[str]:
    return {item["metadata"]["name"] for item in server.request("GET", path)["items"]}


def test_nodes_run_their_pods_and_are_removed_at_the_end(server: RealApiServer, tmp_path: Path):
    kubeloop, kubeconfig = Kubeloop(tmp_path), f"--kubeconfig={server.kubeconfig}"
    before = state(server, "/api/v1/nodes/real"), state(server, f"{PODS}/theirs")
    with kubeloop.running("nodes", "add", "--count=2", "--name-prefix=sim-", "--cpu=4", kubeconfig) as nodes:
        nodes.wait_for("simulated until Ctrl-C")
        assert any("may bind pods of this cluster" in line for line in nodes.lines)
        for number in range(2):
            node = server.request("GET", f"/api/v1/nodes/sim-{number}")
            assert node["status"]["allocatable"]["cpu"] == "4"
            server.request("POST", PODS, pod(f"web-{number}", f"sim-{number}"))
        for number in range(2):
            wait_until(lambda number=number: state(server, f"{PODS}/web-{number}")[1].get("Ready") == "True", "ready")
        wait_until(lambda: not server.request("GET", "/api/v1/nodes/sim-0")["spec"].get("taints"), "no taint")
        assert names(server, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases") == {"sim-0", "sim-1"}
        events = server.request("GET", "/api/v1/namespaces/default/events")["items"]
        assert {"Started"} <= {event["reason"] for event in events if event["involvedObject"]["name"] == "web-0"}

        server.request("DELETE", f"{PODS}/web-1")
        wait_until(lambda: "web-1" not in names(server, PODS), "web-1 has ended")

        fail = kubeloop.run("nodes", "fail", "sim-1", "--mode=not-ready", kubeconfig)
        assert fail.returncode == 0, fail.stderr
        wait_until(lambda: state(server, "/api/v1/nodes/sim-1")[1]["Ready"] == "False", "not ready")
        refused = kubeloop.run("nodes", "remove", "real", kubeconfig)
        assert refused.returncode == 2
        assert "no simulated node 'real'" in refused.stderr

        assert kubeloop.run("nodes", "cordon", "--all", kubeconfig).stdout.split() == [
            "node/sim-0", "cordoned", "node/sim-1", "cordoned",
        ]  # fmt: skip
        assert (state(server, "/api/v1/nodes/real"), state(server, f"{PODS}/theirs")) == before
        assert nodes.stop(signal.SIGINT) == 0
    assert names(server, "/api/v1/nodes") == {"real"}
    assert names(server, PODS) == {"theirs"}


def test_stages_control_the_pods(server: RealApiServer, tmp_path: Path):
    file = tmp_path / "stages.yaml"
    file.write_text(STAGES)
    with Kubeloop(tmp_path).running(
        "nodes", "add", "staged", f"--stages={file}", f"--kubeconfig={server.kubeconfig}"
    ) as nodes:
        nodes.wait_for("simulated until Ctrl-C")
        server.request("POST", PODS, pod("staged", "staged"))
        status = f"{PODS}/staged"
        wait_until(lambda: server.request("GET", status)["status"].get("message") == "by a stage", "the stage")
        assert nodes.stop() == 0
    assert names(server, PODS) == {"theirs"}


def test_other_cluster_must_be_named(server: RealApiServer, tmp_path: Path):
    result = Kubeloop(tmp_path).run("nodes", "add", KUBECONFIG=str(server.kubeconfig))
    assert result.returncode == 2
    assert re.search("is not a development cluster of kubeloop.*named by --kubeconfig", result.stderr, re.DOTALL)
    assert names(server, "/api/v1/nodes") == {"real"}
