"""`kubeloop explain`, against a running cluster: one answer for each state a pod can be in."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from support.cli_processes import MIXED, running_cluster

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  {more}
  containers:
    - name: main
      image: busybox
      resources: {{requests: {{cpu: {cpu}}}}}
"""


def pod(name: str, *, cpu: str = "100m", more: str = "") -> str:
    return POD.format(name=name, cpu=cpu, more=more)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    from support.cli_processes import Kubeloop

    folder = tmp_path_factory.mktemp("mixed")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", MIXED) as (up, kubectl):
        yield kubeloop, up, kubectl


def test_a_pending_pod_is_explained_per_node_and_plugin(mixed):
    kubeloop, _, _ = mixed
    told = kubeloop.json("explain", "pod/impossible", "-n", "mixed", "--json")
    assert told["pod"] == "mixed/impossible"
    assert told["message"].startswith("0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector.")
    assert len(told["nodes"]) == 5
    for node in told["nodes"]:
        assert [each["plugin"] for each in node["obstacles"]] == ["NodeAffinity"]
        assert node["preemptionHelps"] is False
    assert told["advice"][0].endswith("label a node accordingly: example.com/accelerator=quantum (on 0 of 5 nodes)")
    assert told["preemption"].startswith("preemption cannot help")
    assert told["scheduling"] is True


def test_people_read_a_table_and_what_would_help(mixed):
    kubeloop, _, _ = mixed
    done = kubeloop.run("explain", "pod/impossible", "-n", "mixed")
    assert done.returncode == 0, done.stderr
    assert "node(s) didn't match Pod's node affinity/selector" in done.stdout
    assert "NodeAffinity" in done.stdout
    assert "What would help:" in done.stdout
    assert "Preemption: cannot help" in done.stdout


def test_a_bound_pod_and_an_unknown_one_get_clear_answers(mixed):
    kubeloop, _, kubectl = mixed
    name = kubectl("get", "pods", "-n", "mixed", "-l", "app=api", "-o", "name").split()[0]
    assert "is bound to node-" in kubeloop.run("explain", name, "-n", "mixed").stdout
    done = kubeloop.run("explain", "pod/nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no pod default/nobody\n  hint: ")


@pytest.mark.usefixtures("needs_kubectl")
def test_gated_and_foreign_pods_and_those_that_preemption_would_help_are_told_apart(mixed):
    kubeloop, _, kubectl = mixed
    kubectl("apply", "-f", "-", stdin=pod("gated", more="schedulingGates: [{name: example.com/later}]"))
    kubectl("apply", "-f", "-", stdin=pod("theirs", more="schedulerName: theirs"))
    kubectl("apply", "-f", "-", stdin=pod("huge", cpu="1000"))
    kubectl(
        "wait", "--for=condition=PodScheduled=false", "pod/huge", "--timeout=90s"
    )  # the condition is set after the attempt
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


def test_a_process_that_runs_no_scheduler_says_so(mixed):
    kubeloop, up, _ = mixed
    kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
    with kubeloop.running("run", "--kubeconfig", kubeconfig, "--controllers", "deployment") as other:
        endpoint = other.wait_for(r"endpoint (http://\S+)").group(1)
        done = kubeloop.run("explain", "pod/impossible", "-n", "mixed", "--endpoint", endpoint)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this process runs no scheduler\n")


def test_the_scheduler_shows_what_it_holds_and_that_the_api_server_has_the_same(mixed):
    _, up, _ = mixed
    url = up.wait_for(r"endpoint (http://\S+)").group(1)
    with urllib.request.urlopen(f"{url}/debug/scheduler") as answer:
        held = json.load(answer)
    assert [node["name"] for node in held["nodes"]] == [f"node-{number}" for number in range(5)]
    assert sum(len(node["pods"]) for node in held["nodes"]) == 17
    assert "mixed/impossible" in [pod["name"] for pod in held["queue"]["unschedulable"]]
    assert held["differences"] == {"missedNodes": [], "redundantNodes": [], "missedPods": [], "redundantPods": []}


def test_sigusr2_writes_the_dump_to_the_log(mixed):
    _, up, _ = mixed
    up.process.send_signal(signal.SIGUSR2)
    up.wait_for("Dump of cached NodeInfo")
    up.wait_for("Node name: node-4, requested")
    up.wait_for("unschedulable: mixed/impossible attempts")
    up.wait_for("The cache agrees with the API server")
    assert up.process.poll() is None
