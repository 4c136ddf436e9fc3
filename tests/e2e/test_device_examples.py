"""Examples with devices: a Job from a claim template, and a claim that cannot be satisfied."""

from __future__ import annotations

import json
import re

from support.processes.cli_processes import ROOT, Kubeloop, running_cluster, wait_until

EXAMPLES = ROOT / "deploy" / "examples"
PAGE = ROOT / "docs" / "devices.md"
DEVICES = ("--devices", EXAMPLES / "devices.yaml")


def test_job_with_a_claim_template_runs_and_releases_its_devices(tmp_path):
    result = Kubeloop(tmp_path).run("up", "--once", "--nodes", 2, *DEVICES, "-f", EXAMPLES / "train.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1/1 workloads complete" in result.stdout


def test_unsatisfiable_claim_is_explained(tmp_path):
    kubeloop = Kubeloop(tmp_path)
    documented = re.search(r"^```text\n(Details:\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    flags = (*DEVICES, "-f", EXAMPLES / "unsatisfiable-claim.yaml")
    with running_cluster(kubeloop, tmp_path, *map(str, flags)) as (_, kubectl):
        slices = json.loads(kubectl("get", "resourceslices", "-o", "json"))["items"]
        assert [len(it["spec"]["devices"]) for it in slices] == [8] * 5

        def is_explained():
            output = kubeloop.run("explain", "pod/inference").stdout
            return "cannot allocate all claims" in output and "".join(documented.split()) in "".join(output.split())

        wait_until(is_explained, "the documented explanation")


def test_invalid_device_file_ends_the_command_with_the_place(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text("- {driver: gpu.example.com, devices: [{name: gpu, cores: 8}]}")
    result = Kubeloop(tmp_path).run("up", "--once", "--devices", path)
    assert result.returncode == 2
    assert f"{path} at [0].devices[0]: Object contains unknown field `cores`" in result.stderr
    assert "docs/devices.md" in result.stderr
    assert "Traceback" not in result.stderr


def test_job_with_an_extended_resource_gets_devices(tmp_path):
    kubeloop = Kubeloop(tmp_path)
    result = kubeloop.run("up", "--once", "--nodes", 2, *DEVICES, "-f", EXAMPLES / "extended-resource.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1/1 workloads complete" in result.stdout


def test_claims_for_extended_resources_exist_while_their_pods_run(tmp_path):
    pods = tmp_path / "pods.yaml"
    limits = {"limits": {"example.com/gpu": "5"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}], "terminationGracePeriodSeconds": 0},
    }
    items = [{**pod, "metadata": {"name": f"p{number}"}} for number in range(3)]
    pods.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubeloop = Kubeloop(tmp_path)
    job = EXAMPLES / "extended-resource.yaml"
    with running_cluster(kubeloop, tmp_path, "--nodes", "2", *map(str, DEVICES)) as (_, kubectl):
        kubectl("apply", "-f", str(job))
        kubectl("delete", "job", "render")

        def objects(kind):
            return json.loads(kubectl("get", kind, "-o", "json"))["items"]

        wait_until(lambda: not objects("resourceclaims") + objects("pods"), "the Job's pods and claims to be deleted")
        kubectl("apply", "-f", str(pods))
        wait_until(lambda: sum(pod["status"]["phase"] == "Running" for pod in objects("pods")) == 2, "two running pods")
        assert len(objects("resourceclaims")) == 2
        (pending,) = [pod["metadata"]["name"] for pod in objects("pods") if pod["status"]["phase"] == "Pending"]
        explanation = kubeloop.run("explain", f"pod/{pending}").stdout
        assert "example.com/gpu of container c: devices of class gpu" in explanation
        (first, *_) = [pod["metadata"]["name"] for pod in objects("pods") if pod["metadata"]["name"] != pending]
        kubectl("delete", "pod", first)
        wait_until(
            lambda: [pod["status"]["phase"] for pod in objects("pods")] == ["Running"] * 2, "the devices to be free"
        )
        wait_until(lambda: len(objects("resourceclaims")) == 2, "the claim of the deleted pod to be deleted")
