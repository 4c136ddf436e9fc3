"""Feature gates of the scheduler beside kube-scheduler: the same pods get the same nodes and the same messages.

Both run on the development API server with simulated nodes. Skipped if kube-scheduler is not installed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.comparison.real_apiserver import find_binary, free_ports, why_missing
from support.processes.cli_processes import Kubectl, Kubeloop, wait_until

pytestmark = pytest.mark.skipif(
    why_missing("kube-scheduler") is not None, reason=why_missing("kube-scheduler") or "installed"
)

JSON = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
# Selectors are merged on create otherwise, and the scheduler's gate would have no effect.
SERVER_GATES = "TaintTolerationComparisonOperators=true,MatchLabelKeysInPodTopologySpreadSelectorMerge=false"
ON = "TaintTolerationComparisonOperators=true,SchedulerPopFromBackoffQ=false,SchedulerAsyncAPICalls=true"
OFF = (
    "MatchLabelKeysInPodTopologySpread=false,MatchLabelKeysInPodTopologySpreadSelectorMerge=false,"
    "PodLevelResources=false,InPlacePodLevelResourcesVerticalScaling=false,SchedulerAsyncPreemption=false"
)


def pod(name: str, node: str, labels: dict[str, str] | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "nodeSelector": {HOSTNAME: node}, "priority": 0} | spec,
    }


def pods(low: str, high: str, free: str) -> list[JSON]:
    """Return the pods of a run. low, high: nodes with the taints sla=100 and sla=900. free: a node without taints."""
    more, less = ({"key": "sla", "operator": operator, "value": "500"} for operator in ("Gt", "Lt"))
    web = {"app": "web"}
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    constraint |= {
        "labelSelector": {"matchLabels": web},
        "matchLabelKeys": ["revision"],
        "nodeAffinityPolicy": "Ignore",
    }
    return [
        pod("more-on-high", high, tolerations=[more]),
        pod("more-on-low", low, tolerations=[more]),
        pod("less-on-low", low, tolerations=[less]),
        pod("old-1", free, web | {"revision": "1"}, nodeName=free),
        pod("old-2", free, web | {"revision": "1"}, nodeName=free),
        pod("new-revision", free, web | {"revision": "2"}, topologySpreadConstraints=[constraint]),
        pod("large", free, resources={"requests": {"cpu": "1000"}}),
    ]


@contextmanager
def running_scheduler(name: str, kubeloop: Kubeloop, kubeconfig: Path, gates: str) -> Iterator[None]:
    if name == "kubeloop":
        options = ("--controllers=scheduler", f"--kubeconfig={kubeconfig}", "--endpoint-port=0")
        with kubeloop.running("run", *options, f"--feature-gates={gates}"):
            yield
        return
    binary = find_binary(name)
    assert binary is not None
    flags = [f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")]
    flags += ["--leader-elect=false", "--authentication-skip-lookup", f"--cert-dir={kubeconfig.parent / name}"]
    flags += [f"--secure-port={free_ports(1)[0]}", "--bind-address=127.0.0.1", f"--feature-gates={gates}"]
    with (kubeconfig.parent / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([binary, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def outcome(body: JSON) -> str:
    """Return the node of a pod, or the message of PodScheduled; "" while neither is known."""
    if "nodeName" in body["spec"]:
        return str(body["spec"]["nodeName"])
    conditions = body["status"].get("conditions", ())
    return next((condition["message"] for condition in conditions if condition["type"] == "PodScheduled"), "")


@pytest.mark.parametrize(
    ("gates", "bound"),
    [
        pytest.param(ON, {"more-on-high", "less-on-low", "new-revision"}, id="comparison operators on"),
        pytest.param(OFF, {"large"}, id="label keys and pod-level resources off"),
    ],
)
def test_pods_get_the_same_nodes_and_messages(gates, bound, tmp_path, needs_kubectl):
    kubeloop, kubeconfig = Kubeloop(tmp_path), tmp_path / "kubeconfig"
    server_options = ("--nodes=3", f"--kubeconfig={kubeconfig}", f"--feature-gates={SERVER_GATES}")
    with kubeloop.running("apiserver", *server_options) as server:
        server.wait_for("export KUBECONFIG")
        kubectl = Kubectl(str(kubeconfig), tmp_path)
        nodes = sorted(node["metadata"]["name"] for node in kubectl.json("get", "nodes")["items"])
        for node, value in zip(nodes, ("100", "900"), strict=False):
            kubectl("taint", "node", node, f"sla={value}:NoSchedule")
        outcomes: dict[str, dict[str, str]] = {}
        for name in ("kube-scheduler", "kubeloop"):
            manifest = {"apiVersion": "v1", "kind": "List", "items": pods(*nodes)}

            def read(name: str = name) -> bool:
                items = kubectl.json("get", "pods")["items"]
                outcomes[name] = {item["metadata"]["name"]: outcome(item) for item in items}
                return all(outcomes[name].values())

            kubectl("create", "-f", "-", stdin=json.dumps(manifest))
            with running_scheduler(name, kubeloop, kubeconfig, gates):
                wait_until(read, f"{name} has tried to schedule all pods")
            kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        assert outcomes["kubeloop"] == outcomes["kube-scheduler"]
        scheduled = {name for name, text in outcomes["kubeloop"].items() if text in nodes}
        assert scheduled == bound | {"old-1", "old-2"}
