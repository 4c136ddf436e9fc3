"""docs/nodes.md: the test writes its files, runs its commands in order and checks the documented results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kubeloop.devcluster.languages import jq
from kubeloop.devcluster.languages.gotemplate import functions
from kubeloop.devcluster.simulation.node_objects import FAILURE_MODES
from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, running_cluster, wait_until

PAGE = (ROOT / "docs" / "nodes.md").read_text()


def section(title: str) -> str:
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


class PageCommands:
    """Runs the commands of a section of the page in `folder`: first `kubeloop up`, then the others."""

    def __init__(self, kubeloop, folder: Path, stack: contextlib.ExitStack) -> None:
        self._kubeloop = kubeloop
        self._folder = folder
        self._stack = stack
        self.outputs: dict[str, str] = {}

    def run(self, title: str, *, until: str = "") -> None:
        """Run the commands of the section that have not run yet, up to the first that begins with `until`."""
        for block in re.findall(r"^```sh\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                if line in self.outputs:
                    continue
                if until and line.startswith(until):
                    return
                self._run(line)

    def _run(self, line: str) -> None:
        words = shlex.split(line)
        self.outputs[line] = ""
        if words[:2] == ["kubeloop", "up"]:
            arguments = [str(path) if (path := self._folder / word).exists() else word for word in words[2:]]
            _, self.kubectl = self._stack.enter_context(running_cluster(self._kubeloop, self._folder, *arguments))
        elif words[0] == "kubectl":
            self.outputs[line] = self.kubectl(*words[1:])
        else:
            result = subprocess.run(
                [sys.executable, "-m", *words],
                env=self._kubeloop.environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert result.returncode == 0, f"{line}: {result.stderr}"
            self.outputs[line] = result.stdout


@pytest.fixture
def page_commands(kubeloop, tmp_path, needs_kubectl):
    for name, text in re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    with contextlib.ExitStack() as stack:
        yield PageCommands(kubeloop, tmp_path, stack)


def test_nodes_are_added_and_removed(page_commands):
    page_commands.run("Manage nodes", until="kubeloop nodes remove")
    added = next(output for line, output in page_commands.outputs.items() if "--count 2" in line)
    assert added.splitlines() == ["node/node-3 created", "node/node-4 created"]
    nodes = {node["metadata"]["name"]: node for node in page_commands.kubectl.json("get", "nodes")["items"]}
    assert nodes["node-3"]["status"]["allocatable"]["cpu"] == "16"
    assert nodes["node-4"]["spec"]["taints"] == [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    assert nodes["big"]["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"
    assert not nodes["node-0"]["spec"].get("unschedulable")
    page_commands.run("Manage nodes")
    remaining = [node["metadata"]["name"] for node in page_commands.kubectl.json("get", "nodes")["items"]]
    assert remaining == ["big", "node-0", "node-1", "node-2"]


def test_usage_of_pods_is_shown_and_scales_their_deployment(page_commands):
    page_commands.run("Resource usage")
    outputs = page_commands.outputs
    assert "180m" in outputs["kubectl top pods"]
    assert "64Mi" in outputs["kubectl top pods"]
    assert "180m" in outputs["kubectl top nodes"]
    assert "180%/60%" in outputs["kubectl get hpa"]


def test_pods_of_a_failed_node_are_evicted_until_it_recovers(page_commands):
    page_commands.run("Node failures", until="kubeloop nodes recover")
    taints = page_commands.kubectl.json("get", "node", "node-1")["spec"]["taints"]
    assert {(taint["key"], taint["effect"]) for taint in taints} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }
    pods = page_commands.kubectl.json("get", "pods", "-l", "app=failover")["items"]
    lost = [pod for pod in pods if pod["spec"]["nodeName"] == "node-1"]
    assert lost
    assert all("deletionTimestamp" in pod["metadata"] for pod in lost)  # no kubelet confirms their end
    on_other_nodes = ("get", "pods", "-l", "app=failover", "--field-selector", "spec.nodeName!=node-1", "-o", "name")
    page_commands.kubectl.wait_for_output(r"^(\S+\s){6}$", *on_other_nodes)
    evictions = ("get", "events", "--field-selector", "reason=TaintManagerEviction")
    page_commands.kubectl.wait_for_output("Marking for deletion Pod default/failover-", *evictions)
    assert "NotReady" in page_commands.kubectl("get", "node", "node-1")
    page_commands.run("Node failures")
    page_commands.kubectl("wait", "--for=delete", *(f"pod/{pod['metadata']['name']}" for pod in lost), "--timeout=90s")
    wait_until(
        lambda: "taints" not in page_commands.kubectl.json("get", "node", "node-1")["spec"],
        "the node is schedulable again",
    )
    assert len(page_commands.kubectl.json("get", "pods", "-l", "app=failover")["items"]) == 6


def test_pod_annotations_control_simulated_pods(page_commands):
    page_commands.run("Pod behaviour")
    page_commands.kubectl.wait_for_output(
        "BackOff", "get", "events", "--field-selector", "involvedObject.name=crashes-twice"
    )


def test_stages_of_a_file_are_applied(page_commands):
    page_commands.run("Stages", until="kubeloop up -f database.yaml")
    page_commands.kubectl.wait_for_output(
        r"(started by a stage(.|\n)*){3}", "get", "events", "--field-selector", "reason=Staged"
    )
    page_commands.kubectl.wait_for_output(
        "node.kubernetes.io/disk-pressure", "get", "node", "node-0", "-o", "jsonpath={.spec.taints}"
    )


def test_stages_of_custom_resources_apply_other_objects(page_commands):
    first = section("Stages").partition("kubeloop up -f deploy/examples/web.yaml")[2].partition("```")[0]
    page_commands.outputs.update(dict.fromkeys(first.splitlines(), ""))  # covered by another test
    page_commands.outputs["kubeloop up -f deploy/examples/web.yaml --stages stages.yaml"] = ""
    page_commands.run("Stages")
    page_commands.kubectl.wait_for_output("the database is up", "get", "events", "--field-selector", "reason=Started")
    secret = page_commands.kubectl.json("get", "secret", "orders-credentials")
    assert secret["data"] == {"engine": "cG9zdGdyZXM=", "user": "YWRtaW4="}
    refused = page_commands.kubectl.run(
        "patch", "database", "orders", "--type=merge", "-p", '{"spec":{"engine":"mysql"}}'
    )
    assert "the engine of a database is immutable" in refused.stderr


def test_logs_and_commands_of_containers_are_answered(page_commands, tmp_path):
    (tmp_path / "app.log").write_text("started\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("fixture")
    page_commands.run("Logs, exec, attach, port-forward and cp", until="kubectl cp")
    outputs, kubectl = page_commands.outputs, page_commands.kubectl
    assert outputs["kubectl logs answers -c web"] == "started\n"
    assert outputs["kubectl exec answers -c web -- hostname"] == "simulated\n"
    kubectl("cp", "answers:/data", tmp_path / "copy", "-c", "web")
    assert (tmp_path / "copy" / "file").read_text() == "fixture"
    assert kubectl("logs", "answers", "-c", "sidecar") == "ready\n"
    refused = kubectl.run("exec", "answers", "-c", "web", "--", "rm", "-rf", tmp_path)
    assert refused.returncode != 0
    assert "simulated containers run nothing, and no answer to exec is configured" in refused.stderr
    assert (tmp_path / "app.log").exists()


def test_kubectl_forwards_ports(page_commands, tmp_path):
    (tmp_path / "app.log").touch()
    page_commands.run("Logs, exec, attach, port-forward and cp", until="kubectl logs")
    with page_commands.kubectl.start("port-forward", "pod/answers", ":1234") as forwarding:
        assert forwarding.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
            connection.sendall(b"through a command")
            assert connection.recv(100) == b"through a command"
        forwarding.terminate()


def test_kubectl_exec_has_a_terminal(page_commands, tmp_path):
    """The command waits for the size of kubectl's terminal, which follows its start."""
    script = "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.1; done; stty size"
    (tmp_path / "app.log").touch()
    answers = (tmp_path / "answers.yaml").read_text().replace("echo $NAME", json.dumps(script)[1:-1])
    (tmp_path / "answers.yaml").write_text(answers)
    page_commands.run("Logs, exec, attach, port-forward and cp", until="kubectl logs")
    terminal, end = os.openpty()
    termios.tcsetwinsize(terminal, (33, 111))
    try:
        command = ("exec", "-it", "answers", "-c", "web", "--", "hostname")
        with page_commands.kubectl.start(*command, terminal=end) as process:
            assert process.wait(TIMEOUT_SECONDS) == 0
        assert os.read(terminal, 1000) == b"33 111\r\n"
    finally:
        os.close(terminal)
        os.close(end)


def test_kubectl_without_websockets_is_refused(page_commands, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
    page_commands.run("Logs, exec, attach, port-forward and cp", until="kubectl logs")
    refused = page_commands.kubectl.run("exec", "answers", "-c", "web", "--", "hostname")
    assert (refused.returncode != 0, "SPDY is not supported" in refused.stderr) == (True, True), refused.stderr


def test_invalid_stage_file_is_reported_with_file_and_line(kubeloop, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(section("Stages").partition("# stages.yaml\n")[2].partition("\n---")[0].replace("Now }}", "env }}"))
    for command in (["up", "--once"], ["apiserver"]):
        result = kubeloop.run(*command, "--stages", path)
        assert result.returncode == 2
        assert f"error: {path}:14: spec.next.statusTemplate: template: function 'env' is not supported" in result.stderr
        assert "Traceback" not in result.stderr


def test_nodes_command_reports_invalid_arguments(kubeloop, tmp_path):
    assert "no kubeloop up runs on this machine" in kubeloop.run("nodes", "list").stderr
    kubeconfig = tmp_path / "kubeconfig"
    with kubeloop.running("apiserver", "--nodes", "2", "--kubeconfig", kubeconfig) as server:
        server.wait_for("export KUBECONFIG")

        def refusal(*arguments: str) -> str:
            result = kubeloop.run("nodes", *arguments, "--kubeconfig", kubeconfig)
            assert result.returncode == 2, result.stdout
            assert "Traceback" not in result.stderr
            return result.stderr

        assert "did you mean node-1 or node-0?" in refusal("fail", "node-11")
        assert "no nodes selected" in refusal("remove")
        assert "no nodes selected" in refusal("remove", "node-0", "--all")
        assert "no node matches" in refusal("cordon", "-l", "a=b")
        assert "already exists" in refusal("add", "node-1")
        assert "a taint is KEY[=VALUE]:EFFECT" in refusal("add", "--taint", "a:b")
        assert "a label is KEY=VALUE" in refusal("add", "--labels", "a")
        assert "--cpu" in refusal("add", "--cpu", "many")
        assert "'sick'" in refusal("fail", "node-0", "--mode", "sick")


def test_page_lists_all_failure_modes_and_functions(kubeloop):
    help_text = kubeloop.run("nodes", "fail", "--help").stdout
    assert all(mode in help_text for mode in FAILURE_MODES)
    assert all(f"`{mode}`" in section("Node failures") for mode in FAILURE_MODES)
    stages = section("Stages")
    assert all(f"`{name}`" in stages for name in (*functions.SPRIG, "call", "js"))
    refused_by_jq = re.search(r"end of the program: `(.*?)`", stages, re.DOTALL)
    assert refused_by_jq is not None
    jq_names = [function.partition("/")[0] for function in jq._REFUSED.split()]
    assert refused_by_jq[1].split() == list(dict.fromkeys(jq_names))
