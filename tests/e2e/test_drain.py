"""`kubectl drain` of a simulated node waits for a PodDisruptionBudget."""

from __future__ import annotations

import pytest

from support.processes.cli_processes import WEB, running_cluster

LABEL = "app.kubernetes.io/name=web"
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 100%
  selector: {matchLabels: {app.kubernetes.io/name: web}}
"""


@pytest.mark.usefixtures("needs_kubectl")
def test_drain_waits_until_the_budget_allows_disruptions(kubeloop, tmp_path):
    with running_cluster(kubeloop, tmp_path, "-f", WEB) as (_, kubectl):
        pods = kubectl.json("get", "pods", "-l", LABEL)["items"]
        node = pods[0]["spec"]["nodeName"]
        kubectl("apply", "-f", "-", stdin=BUDGET)
        all_healthy = "--for=jsonpath={.status.currentHealthy}=" + str(len(pods))
        kubectl("wait", "pdb/web", all_healthy, "--timeout=90s")
        for seconds in (1, 10, 60):  # a slow machine needs a longer timeout to respond at all
            drain = kubectl.run("drain", node, "--ignore-daemonsets", f"--timeout={seconds}s")
            assert drain.returncode != 0
            if "Cannot evict" in drain.stderr:
                break
        assert "Cannot evict pod as it would violate the pod's disruption budget." in drain.stderr
        kubectl("patch", "pdb", "web", "--type=merge", "-p", '{"spec":{"minAvailable":1}}')
        kubectl("wait", "pdb/web", f"--for=jsonpath={{.status.disruptionsAllowed}}={len(pods) - 1}", "--timeout=90s")
        kubectl("drain", node, "--ignore-daemonsets", "--timeout=90s")
        kubectl("rollout", "status", "deployment/web", "--timeout=90s")
        assert node not in {pod["spec"]["nodeName"] for pod in kubectl.json("get", "pods", "-l", LABEL)["items"]}
