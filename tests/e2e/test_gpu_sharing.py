"""docs/gpu-sharing.md: arrivals.py and kubeloop replay with the policies of the example, on a small cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "gpu-sharing"
NODES = """sn,cpu_milli,memory_mib,gpu,model
a,64000,262144,2,T4
b,64000,262144,2,P100
c,32000,131072,0,
"""
# task-0 to task-3 have a share of a GPU, task-4 a whole one of a model, task-5 none
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
task-0,4000,1024,1,500,
task-1,4000,1024,1,500,
task-2,4000,1024,1,300,
task-3,4000,1024,1,700,
task-4,4000,1024,1,1000,P100
task-5,4000,1024,0,0,
"""


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    traces = tmp_path_factory.mktemp("traces")
    (traces / "nodes.csv").write_text(NODES)
    (traces / "pods-small.csv").write_text(PODS)
    output = traces / "run"
    subprocess.run(
        [sys.executable, EXAMPLE / "arrivals.py", traces, "small", "--seed", "1", "--output", output], check=True
    )
    return output


def test_arrivals_are_drawn_until_130_percent_of_the_gpus_are_requested(run_directory):
    lines = [json.loads(line) for line in (run_directory / "arrivals.kubeloop").read_text().splitlines()]
    pods = [line["object"] for line in lines if line.get("put") == "pods"]
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods]
    requested = sum(int(request.get("alibabacloud.com/gpu-milli", 0)) for request in requests)
    assert 1.3 * 4000 - 1000 < requested <= 1.3 * 4000
    assert len({pod["metadata"]["name"] for pod in pods}) == len(pods) > 6
    assert sum("affinity" in pod["spec"] for pod in pods) >= 1


def test_policies_are_replayed_and_compared(run_directory):
    policies = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "Fragmentation")
    first, *others = (run_directory / f"{policy}.json" for policy in policies)
    command = [sys.executable, "-m", "kubeloop", "replay", run_directory / "arrivals.kubeloop", "--config", first]
    for other in others:
        command += ["--compare", other]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLE)}
    answer = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True)
    report = json.loads(answer.stdout)
    runs = report["runs"][1:]
    assert [run["name"] for run in runs] == [*policies]
    for run in runs:
        assert run["bound"] + run["pending"] == run["created"]
        assert run["pending"] > 0
        assert 0.5 < run["requestedAtEnd"]["alibabacloud.com/gpu-milli"] <= 1
        assert run["unschedulableSeconds"]
