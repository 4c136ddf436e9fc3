"""kubectl commands with `kubeloop up`: rollouts, scaling, deletion, events."""

from __future__ import annotations

import json
import re

import pytest

from support.objects.stateful_sets import stateful_set
from support.processes.cli_processes import running_cluster

pytestmark = pytest.mark.usefixtures("needs_kubectl")

OLD_AND_NEW = ("OldReplicaSets", "NewReplicaSet")


@pytest.fixture
def kubectl(web):
    return web[2]


@pytest.fixture
def deployment(kubectl, request):
    """A Deployment of three replicas for one test."""
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    kubectl("create", "deployment", name, "--image=registry.example/web:1", "--replicas=3")
    kubectl("rollout", "status", f"deploy/{name}", "--timeout=90s")
    yield name
    kubectl("delete", "deploy", name, "--ignore-not-found", "--wait=false")


def test_get_lists_deployments_replicasets_and_pods(kubectl):
    page = kubectl.wait_for_output(
        r"deployment.apps/web +(\d+)/\1 +\1 +\1 (.|\n)*replicaset.apps/web-[0-9a-z]+ +(\d+) +\3 +\3 ",
        *("get", "deploy,rs,pods", "-o", "wide"),
    )
    assert re.search(r"pod/web-[0-9a-z]+-[0-9a-z]{5} +1/1 +Running +0 .* 10\.\S+ +\S*node-?\S* ", page)


def test_scale_adds_and_removes_pods(kubectl, deployment):
    kubectl("scale", f"deploy/{deployment}", "--replicas=5")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    assert kubectl.json("get", "deploy", deployment)["status"]["availableReplicas"] == 5
    kubectl("scale", f"deploy/{deployment}", "--replicas=1")
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.replicas}=1", "--timeout=90s")
    assert kubectl.json("get", "deploy", deployment)["status"]["availableReplicas"] == 1


def test_set_image_rolls_out_and_undo_restores_the_old_image(kubectl, deployment):
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    assert "successfully rolled out" in kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["1", "2"]
    assert "registry.example/web:1" in kubectl("rollout", "history", f"deploy/{deployment}", "--revision=1")
    kubectl("rollout", "undo", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    pods = kubectl.json("get", "pods", "-l", f"app={deployment}")["items"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["spec"]["containers"][0]["image"] for pod in live} == {"registry.example/web:1"}
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3"]


def test_stateful_set_rolls_out_and_scales_with_bound_volumes(kubectl, tmp_path):
    manifest = tmp_path / "db.json"
    manifest.write_text(json.dumps(stateful_set("db", 2, image="registry.example/db:1", claims=("data",))))
    kubectl("create", "-f", str(manifest))
    status = ("rollout", "status", "sts/db", "--timeout=90s")
    kubectl(*status)
    kubectl("set", "image", "sts/db", "*=registry.example/db:2")
    assert "roll out complete: 2 new pods have been updated" in kubectl(*status)
    kubectl("rollout", "undo", "sts/db")
    kubectl(*status)
    history = kubectl("rollout", "history", "sts/db")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3"]
    kubectl("rollout", "restart", "sts/db")
    kubectl(*status)
    kubectl("scale", "sts/db", "--replicas=3")
    kubectl(*status)
    pods = kubectl.json("get", "pods", "-l", "app=db")["items"]
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["db-0", "db-1", "db-2"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"registry.example/db:1"}
    claims = kubectl.json("get", "pvc", "-l", "app=db")["items"]
    assert {claim["metadata"]["name"]: claim["status"]["phase"] for claim in claims} == {
        f"data-db-{ordinal}": "Bound" for ordinal in range(3)
    }
    kubectl("delete", "sts", "db")


def test_pause_stops_a_rollout_and_resume_continues_it(kubectl, deployment):
    kubectl("rollout", "pause", f"deploy/{deployment}")
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    kubectl("wait", f"deploy/{deployment}", "--for=condition=Progressing=Unknown", "--timeout=90s")
    assert len(kubectl("get", "rs", "-l", f"app={deployment}", "-o", "name").split()) == 1
    kubectl("rollout", "resume", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    assert len(kubectl("get", "rs", "-l", f"app={deployment}", "-o", "name").split()) == 2


def test_restart_replaces_all_pods(kubectl, deployment):
    before = set(kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split())
    kubectl("rollout", "restart", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    kubectl("wait", "--for=delete", *before, "--timeout=90s")
    after = set(kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split())
    assert len(after) == 3
    assert not before & after


def test_deleting_a_deployment_deletes_its_replicasets_and_pods(kubectl, deployment):
    pods = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()
    assert len(pods) == 3
    kubectl("delete", "deploy", deployment)
    kubectl("wait", "--for=delete", *pods, "--timeout=90s")
    assert kubectl("get", "rs,pods", "-l", f"app={deployment}", "-o", "name") == ""


def test_orphan_deletion_keeps_the_replicaset(kubectl, deployment):
    kubectl("delete", "deploy", deployment, "--cascade=orphan")
    (replica_set,) = kubectl.json("get", "rs", "-l", f"app={deployment}")["items"]
    kubectl("wait", f"rs/{replica_set['metadata']['name']}", "--for=jsonpath={.status.replicas}=3", "--timeout=90s")
    kubectl("delete", "rs", "-l", f"app={deployment}")


def test_deleted_pod_is_replaced(kubectl, deployment):
    victim = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()[0]
    kubectl("delete", victim)
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.availableReplicas}=3", "--timeout=90s")
    assert victim not in kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()


def test_describe_pod_shows_scheduling_events(kubectl, deployment):
    pod = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "name").split()[0]
    scheduled = r"Normal +Scheduled .* default-scheduler +Successfully assigned default/\S+ to \S+"
    page = kubectl.wait_for_output(scheduled, "describe", pod)
    assert re.search(r"Controlled By: +ReplicaSet/", page)
    assert re.search(r"Status: +Running", page)


def test_describe_deployment_shows_conditions_and_scaling_events(kubectl, deployment):
    scaled = rf"ScalingReplicaSet .* deployment-controller +Scaled up replica set {deployment}-\S+ from 0 to 3"
    page = kubectl.wait_for_output(scaled, "describe", "deploy", deployment)
    assert re.search(r"Available +True +MinimumReplicasAvailable", page)
    assert re.search(r"Progressing +True +NewReplicaSetAvailable", page)


def test_describe_deployment_shows_rollout_events(kubectl, deployment):
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    page = kubectl.wait_for_output(r"Scaled down .* from 1 to 0", "describe", "deploy", deployment)
    old, new = (re.search(rf"{which}: +({deployment}-[0-9a-z]+) ", page).group(1) for which in OLD_AND_NEW)
    assert f"{old} (0/0 replicas created)" in page
    assert f"{new} (3/3 replicas created)" in page
    assert re.search(r"Replicas: +3 desired \| 3 updated \| 3 total \| 3 available \| 0 unavailable", page)
    assert re.search(r"deployment.kubernetes.io/revision: 2", page)
    steps = re.findall(r"Normal +ScalingReplicaSet .* deployment-controller +(Scaled .*)", page)
    # maxSurge 1, maxUnavailable 0: three steps, each one up and then one down
    expected = [f"Scaled up replica set {old} from 0 to 3"]
    for size in range(3):
        expected.append(f"Scaled up replica set {new} from {size} to {size + 1}")
        expected.append(f"Scaled down replica set {old} from {3 - size} to {2 - size}")
    assert steps == expected


def test_undo_to_revision_works_during_a_rollout(kubectl, deployment):
    for number in (2, 3):
        kubectl("set", "image", f"deploy/{deployment}", f"*=registry.example/web:{number}")
        kubectl("annotate", f"deploy/{deployment}", f"kubernetes.io/change-cause=version {number}", "--overwrite")
        kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    assert re.findall(r"^(\d+) +(.*\S)", history, re.MULTILINE) == [
        ("1", "<none>"),
        ("2", "version 2"),
        ("3", "version 3"),
    ]
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:4")
    kubectl("rollout", "undo", f"deploy/{deployment}", "--to-revision=2")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    history = kubectl("rollout", "history", f"deploy/{deployment}")
    revisions = [revision for revision, _ in re.findall(r"^(\d+) +(.*\S)", history, re.MULTILINE)]
    assert "2" not in revisions, "the restored revision becomes the newest"
    shown = kubectl("rollout", "history", f"deploy/{deployment}", f"--revision={revisions[-1]}")
    assert "registry.example/web:2" in shown
    refused = kubectl.run("rollout", "undo", f"deploy/{deployment}", "--to-revision=77")
    assert refused.returncode != 0
    assert "unable to find specified revision 77 in history" in refused.stderr


def test_paused_deployment_can_be_scaled_but_not_undone(kubectl, deployment):
    kubectl("set", "image", f"deploy/{deployment}", "*=registry.example/web:2")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    kubectl("rollout", "pause", f"deploy/{deployment}")
    for command, message in (
        ("pause", "is already paused"),
        ("undo", "cannot rollback a paused deployment"),
        ("restart", "can't restart paused deployment"),
    ):
        refused = kubectl.run("rollout", command, f"deploy/{deployment}")
        assert refused.returncode != 0
        assert message in refused.stderr
    kubectl("scale", f"deploy/{deployment}", "--replicas=4")
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.availableReplicas}=4", "--timeout=90s")
    assert re.search(r"Progressing +Unknown +DeploymentPaused", kubectl("describe", "deploy", deployment))
    kubectl("rollout", "resume", f"deploy/{deployment}")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    kubectl("wait", f"deploy/{deployment}", "--for=condition=Progressing=True", "--timeout=90s")


def test_stuck_rollout_exceeds_its_progress_deadline(kubectl, deployment):
    change = '{"spec": {"progressDeadlineSeconds": 2, "template": {"spec": {"nodeSelector": {"no": "where"}}}}}'
    kubectl("patch", "deploy", deployment, "-p", change)
    stuck = kubectl.run("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    assert stuck.returncode != 0
    assert f'deployment "{deployment}" exceeded its progress deadline' in stuck.stderr
    page = kubectl("describe", "deploy", deployment)
    assert re.search(r"Available +True +MinimumReplicasAvailable", page)
    assert re.search(r"Progressing +False +ProgressDeadlineExceeded", page)
    kubectl("rollout", "undo", f"deploy/{deployment}")
    assert "successfully rolled out" in kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")


def test_scale_subresource_changes_the_replicas(kubectl, deployment):
    path = f"/apis/apps/v1/namespaces/default/deployments/{deployment}/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert (scale["kind"], scale["spec"], scale["status"]["replicas"]) == ("Scale", {"replicas": 3}, 3)
    assert scale["status"]["selector"] == f"app={deployment}"
    scale["spec"]["replicas"] = 6
    kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(scale))
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.availableReplicas}=6", "--timeout=90s")
    kubectl("patch", "deploy", deployment, "--subresource=scale", "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    kubectl("wait", f"deploy/{deployment}", "--for=jsonpath={.status.replicas}=2", "--timeout=90s")
    conflict = kubectl.run("replace", "--raw", path, "-f", "-", stdin=json.dumps(scale))
    assert conflict.returncode != 0
    assert "the object has been modified" in conflict.stderr


def test_horizontal_pod_autoscaler_is_stored_and_listed(kubectl, deployment):
    manifest = f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {deployment}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {deployment}}}
  minReplicas: 2
  maxReplicas: 8
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}]
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    assert re.search(rf"{deployment} +Deployment/{deployment} +.*50% +2 +8 ", kubectl("get", "hpa", deployment))
    kubectl("delete", "hpa", deployment)


def test_unschedulable_pod_is_scheduled_after_a_node_matches(kubectl):
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: selective}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: main, image: registry.example/web:1}]
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "pod/selective", "--for=condition=PodScheduled=False", "--timeout=90s")
    reason = r"0/5 nodes are available: 5 node\(s\) didn't match Pod's node affinity/selector\."
    kubectl.wait_for_output(reason, "describe", "pod", "selective")
    node = kubectl("get", "nodes", "-o", "name").split()[0]
    kubectl("label", node, "disk=ssd")
    kubectl("wait", "pod/selective", "--for=condition=Ready", "--timeout=90s")
    assert kubectl.json("get", "pod", "selective")["spec"]["nodeName"] == node.removeprefix("node/")
    kubectl("delete", "pod", "selective")
    kubectl("label", node, "disk-")


def test_wait_sees_a_deleted_pod_that_is_not_ready(kubeloop, tmp_path):
    # The delay is longer than the default, since a loaded machine may need more than a second to start kubectl.
    with running_cluster(kubeloop, tmp_path, "--nodes=1", "--stop-delay=25s") as (_, kubectl):
        kubectl("run", "web", "--image=registry.example/web:1")
        kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=90s")
        kubectl("delete", "pod", "web", "--wait=false")
        kubectl("wait", "pod/web", "--for=condition=Ready=False", "--timeout=90s")
        kubectl("delete", "pod", "web", "--force", "--grace-period=0", "--timeout=90s")


def test_namespace_deletion_deletes_its_contents(kubectl):
    kubectl("create", "namespace", "shortlived")
    kubectl("create", "deployment", "web", "--image=registry.example/web:1", "--replicas=2", "-n", "shortlived")
    kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "shortlived")
    kubectl("rollout", "status", "deploy/web", "-n", "shortlived", "--timeout=90s")
    kubectl("delete", "namespace", "shortlived", "--timeout=90s")
    assert kubectl.run("get", "namespace", "shortlived").returncode != 0


def test_drain_moves_pods_to_other_nodes(kubectl, deployment):
    node = kubectl("get", "pods", "-l", f"app={deployment}", "-o", "jsonpath={.items[0].spec.nodeName}")
    kubectl("drain", node, "--timeout=90s")
    kubectl("rollout", "status", f"deploy/{deployment}", "--timeout=90s")
    node_names = ("get", "pods", "-l", f"app={deployment}", "-o", "jsonpath={.items[*].spec.nodeName}")
    nodes = kubectl.wait_for_output(r"^\S+ \S+ \S+$", *node_names).split()
    assert node not in nodes
    kubectl("uncordon", node)


def test_applying_twice_changes_nothing(web, kubectl):
    from support.processes.cli_processes import WEB

    output = kubectl("apply", "-f", WEB)
    assert "deployment.apps/web unchanged" in output
    assert "Warning" not in output
