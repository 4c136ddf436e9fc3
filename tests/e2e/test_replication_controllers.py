"""An application of ReplicationControllers and Services, like the old guestbook example."""

from __future__ import annotations

import json

import pytest

from support.processes.cli_processes import Kubectl, running_cluster, wait_until

# Two documents, the second one a List. The selectors default to the template's labels.
GUESTBOOK = """\
apiVersion: v1
kind: ReplicationController
metadata:
  name: redis-master
  labels: {app: redis, role: master}
spec:
  replicas: 1
  template:
    metadata:
      labels: {app: redis, role: master}
    spec:
      containers:
        - name: master
          image: registry.example/redis:e2e
          resources: {requests: {cpu: 100m, memory: 100Mi}}
          ports: [{containerPort: 6379}]
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Service
    metadata: {name: redis-master, labels: {app: redis}}
    spec:
      ports: [{port: 6379}]
      selector: {app: redis, role: master}
  - apiVersion: v1
    kind: Service
    metadata: {name: frontend}
    spec:
      ports: [{port: 80}]
      selector: {app: guestbook, tier: frontend}
  - apiVersion: v1
    kind: ReplicationController
    metadata: {name: frontend}
    spec:
      replicas: 3
      selector: {app: guestbook, tier: frontend}
      template:
        metadata:
          labels: {app: guestbook, tier: frontend}
        spec:
          containers:
            - name: php-redis
              image: registry.example/gb-frontend:v4
              resources: {requests: {cpu: 100m, memory: 100Mi}}
              ports: [{containerPort: 80}]
"""


@pytest.fixture
def guestbook(tmp_path):
    path = tmp_path / "guestbook.yaml"
    path.write_text(GUESTBOOK)
    return path


def test_up_runs_replication_controllers(kubeloop, guestbook):
    result = kubeloop.run("up", "--once", "--json", "-f", guestbook)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    names = [pod["name"].rpartition("-")[0] for pod in document["pods"]]
    assert sorted(names) == ["frontend", "frontend", "frontend", "redis-master"]
    assert all(pod["ready"] and pod["node"] and pod["traceId"] for pod in document["pods"])


@pytest.mark.usefixtures("needs_kubectl")
def test_replication_controller_scales_adopts_and_releases_pods(kubeloop, guestbook, tmp_path):
    with running_cluster(kubeloop, tmp_path, "-f", guestbook) as (_, kubectl):
        pods = names(kubectl)
        assert len(pods) == 3
        kubectl("delete", f"pod/{pods[0]}")
        kubectl("wait", "rc/frontend", "--for=jsonpath={.status.availableReplicas}=3", "--timeout=90s")
        assert pods[0] not in names(kubectl)

        kubectl("scale", "rc/frontend", "--replicas=5")
        kubectl("wait", "rc/frontend", "--for=jsonpath={.status.readyReplicas}=5", "--timeout=90s")
        status = kubectl.json("get", "rc", "frontend")["status"]
        assert "terminatingReplicas" not in status, "not a field of a ReplicationController's status"
        kubectl("scale", "rc/frontend", "--replicas=2")
        kubectl("wait", "rc/frontend", "--for=jsonpath={.status.replicas}=2", "--timeout=90s")

        released = names(kubectl)[0]
        kubectl("label", f"pod/{released}", "tier=debug", "--overwrite")
        wait_until(
            lambda: "ownerReferences" not in kubectl.json("get", "pod", released)["metadata"], "the pod is released"
        )
        wait_until(lambda: len(names(kubectl)) == 2, "the pod is replaced")

        page = kubectl.wait_for_output("2 current / 2 desired", "describe", "rc", "frontend")
        assert f"Created pod: {pods[0]}" in page
        assert "replication-controller" in page
        kubectl("delete", "rc", "frontend")
        kubectl("wait", "--for=delete", "pods", "-l", "tier=frontend", "--timeout=90s")
        assert kubectl.json("get", "pod", released)["metadata"]["name"] == released


def names(kubectl: Kubectl) -> list[str]:
    pods = kubectl.json("get", "pods", "-l", "tier=frontend")["items"]
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
