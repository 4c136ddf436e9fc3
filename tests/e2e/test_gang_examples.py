"""Examples of pod groups: a gang with devices, and a gang that fits in no zone at first."""

from __future__ import annotations

import json
import re
import signal

import pytest

from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, Kubectl, Kubeloop, wait_until
from support.traces.otlp import Collector

EXAMPLES = ROOT / "deploy" / "examples"
DEVICES = EXAMPLES / "devices.yaml"
GANG = ("--gang-scheduling", "--nodes", 1, "-f", EXAMPLES / "gang.yaml")


def test_gang_with_devices_is_scheduled_at_once(tmp_path):
    result = Kubeloop(tmp_path).run("up", "--once", "--json", "--devices", DEVICES, *GANG)
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    (group,) = document["podGroups"]
    assert (group["name"], group["replicas"], group["available"]) == ("train", 8, 8)
    assert {pod["phase"] for pod in document["pods"]} == {"Succeeded"}


def test_gang_with_too_few_devices_is_reported_with_its_reason(tmp_path):
    devices = tmp_path / "devices.yaml"
    devices.write_text(DEVICES.read_text().replace("count: 8", "count: 4"))
    kubeloop = Kubeloop(tmp_path)
    result = kubeloop.run("up", "--once", "--timeout", 8, "--devices", devices, *GANG)
    assert result.returncode == 1
    assert "podgroup.scheduling.k8s.io/train in default: not scheduled: Unschedulable: 0/1 placements" in result.stderr
    assert re.search(r"pod default/train-\S+ .*: Unschedulable: .* cannot allocate all claims", result.stderr)
    with kubeloop.running("up", "--devices", devices, *map(str, GANG)) as up:
        up.wait_for("export KUBECONFIG")
        explained = "cannot be scheduled: 4 of 8 pods fit; train-"
        wait_until(lambda: explained in kubeloop.run("explain", "podgroup/train").stdout, "explanation")
        document = kubeloop.json("explain", "podgroup/train", "--json")
        assert (document["pods"], document["bound"], document["minCount"]) == (8, 0, 8)
        assert document["lastAttempt"]["result"] == "unschedulable"
        kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        of_cluster = kubeloop.json("explain", "podgroup/train", "--kubeconfig", kubeconfig, "--json")
        assert explained in of_cluster["summary"]
        assert not any("devices" in note for note in of_cluster["notes"])


@pytest.mark.usefixtures("needs_kubectl")
def test_trace_of_a_gang_is_exported_once_although_the_scheduler_is_killed(tmp_path):
    kubeloop, kubeconfig = Kubeloop(tmp_path), tmp_path / "kubeconfig"
    kubectl = Kubectl(str(kubeconfig), tmp_path)
    gates = "--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
    with (
        Collector().running() as collector,
        kubeloop.running("apiserver", "--gang-scheduling", "--kubeconfig", kubeconfig) as server,
    ):
        server.wait_for("export KUBECONFIG")
        kubectl("create", "-f", EXAMPLES / "gang-zone.yaml")
        run = ("run", "--kubeconfig", kubeconfig, "--controllers=*", gates)
        exporting = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with kubeloop.running(*run, **exporting) as killed:
            kubectl.wait_for_output("0/3 placements", "get", "podgroup", "simulation", "-o", "yaml")
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait(TIMEOUT_SECONDS)
        with kubeloop.running(*run, **exporting) as continued:
            kubeloop.run("nodes", "add", "extra", "--cpu", 8, "--zone", "zone-a", "--kubeconfig", kubeconfig)
            kubectl.wait_for_output("True", "get", "podgroup", "simulation", "-o", "yaml")
            kubectl("wait", "job/simulation", "--for=condition=Complete", f"--timeout={TIMEOUT_SECONDS:g}s")
            assert continued.stop() == 0
    spans = collector.spans()
    (root,) = (span for span in spans if span.name == "pod group")
    names = [span.name for span in spans if span.trace_id == root.trace_id]
    assert names.count("not followed") == 1
    assert names.count("group attempt") >= 2
    assert root.attributes["kubeloop.continued"] is True
    pods = {span.trace_id: span for span in spans if span.name == "pod"}
    assert len(pods) == 6
    assert {trace_id for trace_id, _ in root.links} == {*pods}
    assert all((root.trace_id, root.span_id) in pod.links for pod in pods.values())


def test_gang_without_the_flag_is_refused_with_a_hint(tmp_path):
    result = Kubeloop(tmp_path).run("up", "--once", "-f", EXAMPLES / "gang-zone.yaml")
    assert result.returncode != 0
    assert 'no matches for kind "PodGroup"' in result.stderr
    assert "--gang-scheduling" in result.stderr
