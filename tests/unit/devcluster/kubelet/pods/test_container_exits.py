"""Exits of containers by annotations, commands and owners."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.pods.container_exits import exit_code
from kubeloop.devcluster.kubelet.pods.container_lifecycle import start
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from support.simulation.simulated_pods import WALL, running_pod, simulated_pod


@pytest.mark.parametrize(
    ("annotations", "code"),
    [
        pytest.param({}, 0, id="default"),
        pytest.param({"exit-code": "3"}, 3, id="exit-code"),
        pytest.param({"exit-code": "256"}, 1, id="invalid exit-code"),
        pytest.param({"crashes": "2"}, 1, id="crashes"),
        pytest.param({"crashes": "0"}, 0, id="all crashes have happened"),
    ],
)
def test_exit_code(annotations, code):
    pod = simulated_pod(annotations=annotations)
    assert exit_code(pod, pod.runs[0]) == code


def test_annotation_of_container_overrides_that_of_pod():
    annotations = {"run-seconds": "5", "exit-code": "1", "run-seconds.log": "7", "exit-code.log": "3"}
    inits = [{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}]
    pod = running_pod(annotations=annotations, initContainers=inits, containers=[{"name": "web"}, {"name": "log"}])
    codes_and_times = {run.name: (exit_code(pod, run), run.exit_at) for run in pod.runs}
    assert codes_and_times == {"migrate": (0, 0.0), "proxy": (0, None), "web": (1, 5.0), "log": (3, 7.0)}


def test_container_of_job_exits_after_job_run_seconds():
    pod = simulated_pod(settings=NodeSettings(job_run_seconds=3.0))
    pod.object["metadata"]["ownerReferences"] = [{"kind": "Job", "controller": True}]
    start(pod, pod.runs[0], 10.0, WALL)
    assert pod.runs[0].exit_at == 13.0
