"""A DaemonSet on a development cluster: `kubeloop up --once`, kubectl rollout and drain."""

from __future__ import annotations

import json

import pytest

from support.processes.cli_processes import running_cluster

AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 50%}}
  template:
    metadata:
      labels: {app: agent}
    spec:
      containers: [{name: main, image: registry.example/agent:1}]
"""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "agent.yaml"
    path.write_text(AGENT)
    return path


def test_up_once_waits_for_daemon_sets(kubeloop, manifest):
    result = kubeloop.run("up", "--once", "--json", "-f", manifest)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["daemonSets"] == [{"namespace": "default", "name": "agent", "replicas": 5, "available": 5}]
    assert {pod["node"] for pod in document["pods"]} == {node["name"] for node in document["nodes"]}
    assert all(pod["ready"] and pod["traceId"] for pod in document["pods"])


@pytest.mark.usefixtures("needs_kubectl")
def test_kubectl_rollout_and_drain(kubeloop, manifest, tmp_path):
    with running_cluster(kubeloop, tmp_path, "-f", manifest) as (_, kubectl):

        def roll_out(*command: str) -> str:
            kubectl(*command)
            assert "successfully rolled out" in kubectl("rollout", "status", "ds/agent", "--timeout=90s")
            (image,) = {
                pod["spec"]["containers"][0]["image"].rpartition(":")[2]
                for pod in kubectl.json("get", "pods", "-l", "app=agent")["items"]
                if "deletionTimestamp" not in pod["metadata"]
            }
            return image

        assert roll_out("set", "image", "ds/agent", "main=registry.example/agent:2") == "2"
        assert "registry.example/agent:1" in kubectl("rollout", "history", "ds/agent", "--revision=1")
        assert roll_out("rollout", "undo", "ds/agent") == "1"
        assert roll_out("rollout", "restart", "ds/agent") == "1"
        history = kubectl("rollout", "history", "ds/agent")
        assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3", "4"]

        before = kubectl.json("get", "pods", "--field-selector=spec.nodeName=node-0")["items"]
        kubectl("drain", "node-0", "--ignore-daemonsets", "--timeout=90s")
        after = kubectl.json("get", "pods", "--field-selector=spec.nodeName=node-0")["items"]
        assert [pod["metadata"]["uid"] for pod in after] == [pod["metadata"]["uid"] for pod in before]
