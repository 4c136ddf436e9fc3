"""`kubeloop explain` with a running cluster: a response for each state of a pod."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from support.processes.cli_processes import MIXED, running_cluster

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  {spec}
  containers:
    - name: main
      image: busybox
      resources: {{requests: {{cpu: {cpu}}}}}
"""


def pod(name: str, *, cpu: str = "100m", spec: str = "") -> str:
    return POD.format(name=name, cpu=cpu, spec=spec)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    from support.processes.cli_processes import Kubeloop

    folder = tmp_path_factory.mktemp("mixed")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", MIXED) as (up, kubectl):
        yield kubeloop, up, kubectl


def test_pending_pod_is_explained_per_node_and_plugin(mixed):
    kubeloop, _, _ = mixed
    explanation = kubeloop.json("explain", "pod/impossible", "-n", "mixed", "--json")
    assert explanation["pod"] == "mixed/impossible"
    assert explanation["message"].startswith(
        "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector."
    )
    assert len(explanation["nodes"]) == 5
    for node in explanation["nodes"]:
        assert [obstacle["plugin"] for obstacle in node["obstacles"]] == ["NodeAffinity"]
        assert node["preemptionHelps"] is False
    assert explanation["advice"][0].endswith(
        "label a node accordingly: example.com/accelerator=quantum (on 0 of 5 nodes)"
    )
    assert explanation["preemption"].startswith("preemption cannot help")
    assert explanation["scheduling"] is True


def test_text_output_has_a_table_and_advice(mixed):
    kubeloop, _, _ = mixed
    result = kubeloop.run("explain", "pod/impossible", "-n", "mixed")
    assert result.returncode == 0, result.stderr
    assert "node(s) didn't match Pod's node affinity/selector" in result.stdout
    assert "NodeAffinity" in result.stdout
    assert "What would help:" in result.stdout
    assert "Preemption: cannot help" in result.stdout


def test_bound_and_missing_pods_are_reported(mixed):
    kubeloop, _, kubectl = mixed
    name = kubectl("get", "pods", "-n", "mixed", "-l", "app=api", "-o", "name").split()[0]
    assert "is bound to node-" in kubeloop.run("explain", name, "-n", "mixed").stdout
    result = kubeloop.run("explain", "pod/missing")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: no pod missing in any namespace\n  hint: list all with kubectl get pods -A\n"
    cut = name.removeprefix("pod/")[:-1]
    assert f"did you mean {name.removeprefix('pod/')}" in kubeloop.run("explain", "pod", cut).stderr


HUGE_CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: huge}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: "app:1", resources: {requests: {cpu: 1k}}}]
"""


@pytest.mark.usefixtures("needs_kubectl")
def test_pods_of_owners_are_explained(mixed):
    kubeloop, _, kubectl = mixed
    result = kubeloop.run("explain", "deploy/api", "-n", "mixed")
    assert result.stdout.startswith("deployment mixed/api: none of its pods (")
    assert kubeloop.run("explain", "deploy", "api").stdout == result.stdout  # the only namespace that has it
    assert kubeloop.run("explain", "deploy", "apis").stderr.endswith("hint: did you mean api?\n")
    kubectl("apply", "-f", "-", stdin=HUGE_CRON_JOB)
    kubectl("create", "job", "huge-now", "--from=cronjob/huge")
    kubectl("wait", "job/huge-now", "--for=jsonpath={.status.active}=1", "--timeout=90s")
    kubectl("wait", "pods", "-l", "job-name=huge-now", "--for=condition=PodScheduled=false", "--timeout=90s")
    for owner in ("job/huge-now", "cronjob/huge"):
        explanation = kubeloop.json("explain", owner, "--json")
        assert explanation["owner"] == {"name": owner.replace("/", " default/"), "pods": 1, "pending": 1}
        assert explanation["pod"].startswith("default/huge-now-")
        assert explanation["message"] == "0/5 nodes are available: 5 Insufficient cpu."
    result = kubeloop.run("explain", "sts/none")
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, "error: no statefulset none in any namespace")


@pytest.mark.usefixtures("needs_kubectl")
def test_reasons_of_gated_foreign_and_oversized_pods(mixed):
    kubeloop, _, kubectl = mixed
    kubectl("apply", "-f", "-", stdin=pod("gated", spec="schedulingGates: [{name: example.com/later}]"))
    kubectl("apply", "-f", "-", stdin=pod("theirs", spec="schedulerName: theirs"))
    kubectl("apply", "-f", "-", stdin=pod("huge", cpu="1000"))
    # the condition is set after the attempt
    kubectl("wait", "--for=condition=PodScheduled=false", "pod/huge", "--timeout=90s")
    gated = kubeloop.json("explain", "pod/gated", "--json")
    assert gated["queue"] == "gated"
    assert gated["message"] == "waiting for scheduling gates: [example.com/later]"
    theirs = kubeloop.run("explain", "pod/theirs").stdout
    assert 'the pod waits for another scheduler, "theirs"' in theirs
    huge = kubeloop.json("explain", "pod/huge", "--json")
    assert huge["queue"] in ("unschedulable", "backoff")
    assert huge["attempts"] >= 1
    assert huge["rejectedBy"] == ["NodeResourcesFit"]
    assert huge["shortages"]["cpu"] > 900_000
    assert huge["preemption"].startswith("preemption cannot help")
    json.dumps(huge)


def test_process_without_scheduler_reports_an_error(mixed):
    kubeloop, up, _ = mixed
    kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
    with kubeloop.running("run", "--kubeconfig", kubeconfig, "--controllers", "deployment") as other:
        endpoint = other.wait_for(r"endpoint (http://\S+)").group(1)
        result = kubeloop.run("explain", "pod/impossible", "-n", "mixed", "--endpoint", endpoint)
    assert result.returncode == 2
    assert result.stderr.startswith("error: this process runs no scheduler\n")


def test_scheduler_dump_agrees_with_the_api_server(mixed):
    _, up, _ = mixed
    url = up.wait_for(r"endpoint (http://\S+)").group(1)
    with urllib.request.urlopen(f"{url}/debug/scheduler") as response:
        dump = json.load(response)
    assert [node["name"] for node in dump["nodes"]] == [f"node-{number}" for number in range(5)]
    assert sum(len(node["pods"]) for node in dump["nodes"]) == 17
    assert "mixed/impossible" in [pod["name"] for pod in dump["queue"]["unschedulable"]]
    assert dump["differences"] == {"missedNodes": [], "redundantNodes": [], "missedPods": [], "redundantPods": []}


def test_sigusr2_writes_the_dump_to_the_log(mixed):
    _, up, _ = mixed
    up.process.send_signal(signal.SIGUSR2)
    up.wait_for("Dump of cached NodeInfo")
    up.wait_for("Node name: node-4, requested")
    up.wait_for("unschedulable: mixed/impossible attempts")
    up.wait_for("The cache agrees with the API server")
    assert up.process.poll() is None
