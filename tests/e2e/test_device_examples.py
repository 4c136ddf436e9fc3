"""Examples with devices: a Job from a claim template, and a claim that cannot be satisfied."""

from __future__ import annotations

import json
import re

from support.cli_processes import ROOT, Kubeloop, running_cluster, wait_until

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
