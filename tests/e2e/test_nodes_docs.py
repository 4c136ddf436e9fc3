"""docs/nodes.md holds: its files are written, its commands run one after the other, and what it promises comes true."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.devcluster.kubelet.stages.files import CONTEXT
from kubeloop.devcluster.languages import jq
from kubeloop.devcluster.languages.gotemplate import functions
from kubeloop.devcluster.simulation.node_objects import FAILURE_MODES
from support.cli_processes import ROOT, TIMEOUT_SECONDS, running_cluster, wait_until

PAGE = (ROOT / "docs" / "nodes.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


class Reader:
    """Follows a section of the page in `folder`: first `kubeloop up`, then the commands after it."""

    def __init__(self, kubeloop, folder: Path, stack: contextlib.ExitStack) -> None:
        self._kubeloop = kubeloop
        self._folder = folder
        self._stack = stack
        self.outputs: dict[str, str] = {}

    def follow(self, title: str, *, until: str = "") -> None:
        """All commands of the section, or those before the first that begins with `until`."""
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
            done = subprocess.run(
                [sys.executable, "-m", *words],
                env=self._kubeloop.environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
            self.outputs[line] = done.stdout


@pytest.fixture
def reader(kubeloop, tmp_path, needs_kubectl):
    for name, text in re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    with contextlib.ExitStack() as stack:
        yield Reader(kubeloop, tmp_path, stack)


def test_nodes_come_and_go(reader):
    reader.follow("Manage nodes", until="kubeloop nodes remove")
    added = next(output for line, output in reader.outputs.items() if "--count 2" in line)
    assert added.splitlines() == ["node/node-3 created", "node/node-4 created"]
    nodes = {node["metadata"]["name"]: node for node in reader.kubectl.json("get", "nodes")["items"]}
    assert nodes["node-3"]["status"]["allocatable"]["cpu"] == "16"
    assert nodes["node-4"]["spec"]["taints"] == [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    assert nodes["big"]["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"
    assert not nodes["node-0"]["spec"].get("unschedulable")
    reader.follow("Manage nodes")
    left = [node["metadata"]["name"] for node in reader.kubectl.json("get", "nodes")["items"]]
    assert left == ["big", "node-0", "node-1", "node-2"]


def test_a_failed_node_loses_its_pods_to_others_and_comes_back(reader):
    reader.follow("Node failures", until="kubeloop nodes recover")
    taints = reader.kubectl.json("get", "node", "node-1")["spec"]["taints"]
    assert {(taint["key"], taint["effect"]) for taint in taints} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }
    pods = reader.kubectl.json("get", "pods", "-l", "app=failover")["items"]
    lost = [pod for pod in pods if pod["spec"]["nodeName"] == "node-1"]
    assert lost
    assert all("deletionTimestamp" in pod["metadata"] for pod in lost)  # and nobody confirms that they have ended
    elsewhere = ("get", "pods", "-l", "app=failover", "--field-selector", "spec.nodeName!=node-1", "-o", "name")
    reader.kubectl.wait_for_output(r"^(\S+\s){6}$", *elsewhere)
    evictions = ("get", "events", "--field-selector", "reason=TaintManagerEviction")
    reader.kubectl.wait_for_output("Marking for deletion Pod default/failover-", *evictions)
    assert "NotReady" in reader.kubectl("get", "node", "node-1")
    reader.follow("Node failures")
    reader.kubectl("wait", "--for=delete", *(f"pod/{pod['metadata']['name']}" for pod in lost), "--timeout=90s")
    wait_until(lambda: "taints" not in reader.kubectl.json("get", "node", "node-1")["spec"], "it takes pods again")
    assert len(reader.kubectl.json("get", "pods", "-l", "app=failover")["items"]) == 6


def test_pods_do_what_their_annotations_say(reader):
    reader.follow("Pod behaviour")
    reader.kubectl.wait_for_output("BackOff", "get", "events", "--field-selector", "involvedObject.name=crashes-twice")


def test_stages_of_a_file_are_played(reader):
    reader.follow("Stages", until="kubeloop up -f database.yaml")
    reader.kubectl.wait_for_output(
        r"(started by a stage(.|\n)*){3}", "get", "events", "--field-selector", "reason=Staged"
    )
    reader.kubectl.wait_for_output(
        "node.kubernetes.io/disk-pressure", "get", "node", "node-0", "-o", "jsonpath={.spec.taints}"
    )


def test_stages_of_custom_resources_are_played_and_apply_other_objects(reader):
    first = section("Stages").partition("kubeloop up -f deploy/examples/web.yaml")[2].partition("```")[0]
    reader.outputs.update(dict.fromkeys(first.splitlines(), ""))  # another test has followed these
    reader.outputs["kubeloop up -f deploy/examples/web.yaml --stages stages.yaml"] = ""
    reader.follow("Stages")
    reader.kubectl.wait_for_output("the database is up", "get", "events", "--field-selector", "reason=Started")
    secret = reader.kubectl.json("get", "secret", "orders-credentials")
    assert secret["data"] == {"engine": "cG9zdGdyZXM=", "user": "YWRtaW4="}
    refused = reader.kubectl.run("patch", "database", "orders", "--type=merge", "-p", '{"spec":{"engine":"mysql"}}')
    assert "the engine of a database is immutable" in refused.stderr


def test_a_wrong_stage_file_ends_the_start_with_file_and_line(kubeloop, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(section("Stages").partition("# stages.yaml\n")[2].partition("\n---")[0].replace("Now }}", "now }}"))
    for command in (["up", "--once"], ["apiserver"]):
        done = kubeloop.run(*command, "--stages", path)
        assert done.returncode == 2
        assert f"error: {path}:14: spec.next.statusTemplate: template: function 'now' is not supported" in done.stderr
        assert "Traceback" not in done.stderr


def test_nodes_refuses_what_it_cannot_do(kubeloop, tmp_path):
    assert "no kubeloop up runs on this machine" in kubeloop.run("nodes", "list").stderr
    kubeconfig = tmp_path / "kubeconfig"
    with kubeloop.running("apiserver", "--nodes", "2", "--kubeconfig", kubeconfig) as server:
        server.wait_for("export KUBECONFIG")

        def refusal(*arguments: str) -> str:
            done = kubeloop.run("nodes", *arguments, "--kubeconfig", kubeconfig)
            assert done.returncode == 2, done.stdout
            assert "Traceback" not in done.stderr
            return done.stderr

        assert "did you mean node-1 or node-0?" in refusal("fail", "node-11")
        assert "no nodes selected" in refusal("remove")
        assert "no nodes selected" in refusal("remove", "node-0", "--all")
        assert "no node matches" in refusal("cordon", "-l", "a=b")
        assert "already exists" in refusal("add", "node-1")
        assert "a taint is KEY[=VALUE]:EFFECT" in refusal("add", "--taint", "a:b")
        assert "a label is KEY=VALUE" in refusal("add", "--labels", "a")
        assert "--cpu" in refusal("add", "--cpu", "many")
        assert "'sick'" in refusal("fail", "node-0", "--mode", "sick")


def test_the_page_names_all_modes_and_functions(kubeloop):
    offered = kubeloop.run("nodes", "fail", "--help").stdout
    assert all(mode in offered for mode in FAILURE_MODES)
    assert all(f"`{mode}`" in section("Node failures") for mode in FAILURE_MODES)
    stages = section("Stages")
    sprig = re.search(r"of Sprig's: `(.*?)`", stages, re.DOTALL)
    assert sprig is not None
    own = {
        "and",
        "or",
        "not",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "index",
        "slice",
        "len",
        "print",
        "printf",
        "println",
    }
    kwok = {"Quote", "YAML", "NodeConditions", *CONTEXT}
    assert set(sprig[1].split()) == set(functions.ARITIES) - own - kwok
    known = re.search(r"`\|`, and `(.*?)`", stages, re.DOTALL)
    assert known is not None
    assert set(known[1].split()) == (set(jq._PLAIN) | set(jq._WITH_ARGUMENT)) - {"not", "select"}
