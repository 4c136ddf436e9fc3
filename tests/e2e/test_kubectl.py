"""What users do with kubectl while `kubeloop up` runs, and what a real cluster would show them."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.usefixtures("needs_kubectl")


@pytest.fixture
def kubectl(web):
    return web[2]


@pytest.fixture
def deployment(kubectl, request):
    """A Deployment of three replicas of its own for one test."""
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    kubectl("create", "deployment", name, "--image=registry.example/web:1", "--replicas=3")
    kubectl("rollout", "status", f"deploy/{name}", "--timeout=30s")
    yield name
    kubectl("delete", "deploy", name, "--ignore-not-found", "--wait=false")


def test_get_lists_deployments_replicasets_and_pods(kubectl):
    page = kubectl("get", "deploy,rs,pods", "-o", "wide")
    assert re.search(r"deployment.apps/web +(\d+)/\1 +\1 +\1 ", page)
    assert re.search(r"replicaset.apps/web-[0-9a-z]+ +(\d+) +\1 +\1 ", page)
    assert re.search(r"pod/web-[0-9a-z]+-[0-9a-z]{5} +1/1 +Running +0 .* 10\.\S+ +\S*node-?\S* ", page)


def test_scale_adds_and_removes_pods(kubectl, deployment):
    kubectl("scale", f"deploy/{deployment}", "--replicas=5")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    assert kubectl.json("get", "deploy", deployment)["status"]["availableReplicas"] == 5
    kubectl("scale", f"deploy/{deployment}", "--replicas=1")
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.replicas}=1", "--timeout=30s")
    assert kubectl.json("get", "deploy", deployment)["status"]["availableReplicas"] == 1


def test_set_image_rolls_out_and_undo_brings_the_old_one_back(kubectl, deployment):
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    assert "successfully rolled out" in kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["1", "2"]
    assert "registry.example/web:1" in kubectl("rollout", "history", f"deploy/{deployment}", "--revision=1")
    kubectl("rollout", "undo", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    pods = kubectl.json("get", "pods", "-l", f"app={deployment}")["items"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["spec"]["containers"][0]["image"] for pod in live} == {"registry.example/web:1"}
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3"]


def test_pause_holds_a_rollout_and_resume_lets_it_go(kubectl, deployment):
    kubectl("rollout", "pause", f"deploy/{deployment}")
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    kubectl("wait", f"deploy/{deployment}", "--for=condition=Progressing=Unknown", "--timeout=30s")
    assert len(kubectl("get", "rs", "-l", f"app={deployment}", "-o", "name").split()) == 1
    kubectl("rollout", "resume", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    assert len(kubectl("get", "rs", "-l", f"app={deployment}", "-o", "name").split()) == 2


def test_restart_replaces_all_pods(kubectl, deployment):
    before = set(kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split())
    kubectl("rollout", "restart", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    kubectl("wait", "--for=delete", *before, "--timeout=30s")
    after = set(kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split())
    assert len(after) == 3
    assert not before & after


def test_deleting_a_deployment_takes_its_replicasets_and_pods_along(kubectl, deployment):
    pods = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()
    assert len(pods) == 3
    kubectl("delete", "deploy", deployment)
    kubectl("wait", "--for=delete", *pods, "--timeout=30s")
    assert kubectl("get", "rs,pods", "-l", f"app={deployment}", "-o", "name") == ""


def test_deleting_with_orphan_leaves_the_replicaset(kubectl, deployment):
    kubectl("delete", "deploy", deployment, "--cascade=orphan")
    (replica_set,) = kubectl.json("get", "rs", "-l", f"app={deployment}")["items"]
    kubectl("wait", f"rs/{replica_set['metadata']['name']}", "--for=jsonpath={.status.replicas}=3", "--timeout=30s")
    kubectl("delete", "rs", "-l", f"app={deployment}")


def test_a_deleted_pod_is_replaced(kubectl, deployment):
    victim = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()[0]
    kubectl("delete", victim)
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.availableReplicas}=3", "--timeout=30s")
    assert victim not in kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()


def test_describe_pod_tells_its_story_in_events(kubectl, deployment):
    pod = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()[0]
    page = kubectl("describe", pod)
    assert re.search(r"Normal +Scheduled .* default-scheduler +Successfully assigned default/\S+ to \S+", page)
    assert re.search(r"Controlled By: +ReplicaSet/", page)
    assert re.search(r"Status: +Running", page)


def test_describe_deployment_shows_conditions_and_scaling_events(kubectl, deployment):
    page = kubectl("describe", "deploy", deployment)
    assert re.search(r"Available +True +MinimumReplicasAvailable", page)
    assert re.search(r"Progressing +True +NewReplicaSetAvailable", page)
    assert re.search(
        rf"ScalingReplicaSet .* deployment-controller +Scaled up replica set {deployment}-\S+ from 0 to 3", page
    )


def test_a_pod_that_fits_nowhere_says_why_and_is_scheduled_once_it_does(kubectl):
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: picky}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: main, image: registry.example/web:1}]
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "pod/picky", "--for=condition=PodScheduled=False", "--timeout=30s")
    assert "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector." in kubectl(
        "describe", "pod", "picky"
    )
    node = kubectl("get", "nodes", "-o", "name").split()[0]
    kubectl("label", node, "disk=ssd")
    kubectl("wait", "pod/picky", "--for=condition=Ready", "--timeout=30s")
    assert kubectl.json("get", "pod", "picky")["spec"]["nodeName"] == node.removeprefix("node/")
    kubectl("delete", "pod", "picky")
    kubectl("label", node, "disk-")


def test_a_namespace_goes_with_all_that_is_in_it(kubectl):
    kubectl("create", "namespace", "shortlived")
    kubectl("create", "deployment", "web", "--image=registry.example/web:1", "--replicas=2", "-n", "shortlived")
    kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "shortlived")
    kubectl("rollout", "status", "deploy/web", "-n", "shortlived", "--timeout=30s")
    kubectl("delete", "namespace", "shortlived", "--timeout=30s")
    assert kubectl.run("get", "namespace", "shortlived").returncode != 0


def test_drain_moves_pods_to_other_nodes(kubectl, deployment):
    node = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "jsonpath={.items[0].spec.nodeName}")
    kubectl("drain", node, "--timeout=30s")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=30s")
    nodes = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert len(nodes) == 3
    assert node not in nodes
    kubectl("uncordon", node)


def test_apply_twice_changes_nothing(web, kubectl):
    from support.driving import WEB

    outcome = kubectl("apply", "-f", WEB)
    assert "deployment.apps/web unchanged" in outcome
    assert "Warning" not in outcome
