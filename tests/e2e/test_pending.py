"""Pending pods of the mixed example: the reason in `kubectl describe`, and scheduling once the reason is removed."""

from __future__ import annotations

import re

import pytest

from support.processes.cli_processes import MIXED, Kubectl, Kubeloop, running_cluster

pytestmark = pytest.mark.usefixtures("needs_kubectl")

NODE = MIXED.with_name("mixed-node.yaml")
VOLUME = MIXED.with_name("mixed-volume.yaml")
TIMEOUT = "--timeout=90s"

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: mixed}}
spec:
  {storage_class}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: mixed}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{{name: main, image: busybox, volumeMounts: [{{name: data, mountPath: /data}}]}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]
"""


REASONS = {
    "reserved": "5 node(s) didn't match Pod's node affinity/selector",
    "archive": "5 node(s) didn't find available persistent volumes to bind",
    "huge": "5 Insufficient cpu",
    "impossible": "5 node(s) didn't match Pod's node affinity/selector",
}


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pending")
    with running_cluster(Kubeloop(folder), folder, "-f", MIXED) as (_, kubectl):
        for pod, reasons in REASONS.items():  # before a test changes it
            wait_for_reason(kubectl, pod, scheduling_message(reasons))
        yield kubectl


def wait_for_reason(kubectl: Kubectl, pod: str, text: str) -> None:
    """Wait until the scheduler's last attempt reports `text` and `kubectl describe` shows it."""
    path = f"jsonpath={{.status.conditions[?(@.type=='PodScheduled')].message}}={text}"
    try:
        kubectl("wait", "-n", "mixed", f"pod/{pod}", f"--for={path}", TIMEOUT)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl('describe', 'pod', pod, '-n', 'mixed')}") from None
    event = f"FailedScheduling .* default-scheduler +{re.escape(text)}"
    kubectl.wait_for_output(event, "describe", "pod", pod, "-n", "mixed")


def wait_until_scheduled(kubectl: Kubectl, pod: str) -> str:
    """Wait until the pod is scheduled and return its node."""
    kubectl("wait", "-n", "mixed", f"pod/{pod}", "--for=condition=PodScheduled", TIMEOUT)
    return kubectl.json("get", "pod", pod, "-n", "mixed")["spec"]["nodeName"]


def scheduling_message(reasons: str, preemption: str = "5 Preemption is not helpful for scheduling.") -> str:
    return (
        f"0/5 nodes are available: {reasons}. no new claims to deallocate, "
        f"preemption: 0/5 nodes are available: {preemption}"
    )


def test_pod_is_scheduled_after_a_taint_is_removed(kubectl):
    node = kubectl.json("get", "nodes")["items"][0]["metadata"]["name"]
    kubectl("taint", "node", node, "example.com/maintenance=:NoSchedule")
    kubectl("label", "node", node, "example.com/pool=reserved")
    tainted = "1 node(s) had untolerated taint(s), 4 node(s) didn't match Pod's node affinity/selector"
    wait_for_reason(kubectl, "reserved", scheduling_message(tainted))
    kubectl("taint", "node", node, "example.com/maintenance-")
    assert wait_until_scheduled(kubectl, "reserved") == node


def test_pod_is_scheduled_after_a_conflicting_pod_is_deleted(kubectl):
    reason = re.escape("0/5 nodes are available: 5 node(s) didn't match pod anti-affinity rules. no new claims")
    kubectl.wait_for_output(reason, "describe", "pod", "standby", "-n", "mixed")
    kubectl("delete", "pod", "leader", "-n", "mixed")
    wait_until_scheduled(kubectl, "standby")


def test_pod_is_scheduled_after_its_volume_is_created(kubectl):
    kubectl.wait_for_output("waiting for pod archive to be scheduled", "describe", "pvc", "archive", "-n", "mixed")
    kubectl("apply", "-f", VOLUME)
    wait_until_scheduled(kubectl, "archive")
    claim = kubectl.json("get", "pvc", "archive", "-n", "mixed")
    assert claim["spec"]["volumeName"] == "mixed-archive"
    kubectl("wait", "-n", "mixed", "pod/archive", "--for=condition=Ready", TIMEOUT)


def test_pod_is_scheduled_after_its_immediate_claim_is_bound(kubectl):
    kubectl("apply", "-f", "-", stdin=CLAIM.format(name="now", storage_class='storageClassName: ""'))
    wait_for_reason(
        kubectl,
        "now",
        "0/5 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
    )
    reason = "no persistent volumes available for this claim and no storage class is set"
    kubectl.wait_for_output(reason, "describe", "pvc", "now", "-n", "mixed")
    volume = VOLUME.read_text().replace("mixed-archive", "now").replace("mixed-by-hand", '""')
    kubectl("apply", "-f", "-", stdin=volume)
    wait_until_scheduled(kubectl, "now")


def test_default_class_provisions_and_deletes_a_volume(kubectl):
    kubectl("apply", "-f", "-", stdin=CLAIM.format(name="provided", storage_class=""))
    node = wait_until_scheduled(kubectl, "provided")
    claim = kubectl.json("get", "pvc", "provided", "-n", "mixed")
    assert claim["status"]["phase"] == "Bound"
    assert claim["spec"]["storageClassName"] == "standard"
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == node
    volume = claim["spec"]["volumeName"]
    kubectl.wait_for_output(f"Successfully provisioned volume {volume}", "describe", "pvc", "provided", "-n", "mixed")
    kubectl("delete", "pvc", "provided", "-n", "mixed", "--wait=false")
    assert "Terminating" in kubectl("get", "pvc", "provided", "-n", "mixed")  # in use
    kubectl("delete", "pod", "provided", "-n", "mixed", TIMEOUT)
    kubectl("wait", "-n", "mixed", "pvc/provided", "--for=delete", TIMEOUT)
    kubectl("wait", f"pv/{volume}", "--for=delete", TIMEOUT)


def test_pods_are_scheduled_after_a_matching_node_is_added(kubectl):
    kubectl("apply", "-f", NODE)
    for pod in ("huge", "impossible"):
        assert wait_until_scheduled(kubectl, pod) == "quantum"
        kubectl("delete", "pod", pod, "-n", "mixed", TIMEOUT)
    kubectl("delete", "-f", NODE)  # the other tests expect five nodes
