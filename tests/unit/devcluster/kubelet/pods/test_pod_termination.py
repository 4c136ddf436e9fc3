"""End of a pod: deadline, stopped containers, completion."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.pods.container_lifecycle import exit_container, start, startable
from kubeloop.devcluster.kubelet.pods.pod_termination import has_finished, plan_deadline, stop
from support.simulation.simulated_pods import WALL, running_pod, simulated_pod


def test_failed_init_container_finishes_pod_that_is_not_restarted():
    spec = {"initContainers": [{"name": "migrate"}], "annotations": {"exit-code.migrate": "2"}}
    pod = simulated_pod(restartPolicy="Never", **spec)
    (migrate,) = startable(pod)
    start(pod, migrate, 0.0, WALL)
    exit_container(pod, migrate, 0.0, WALL)
    assert has_finished(pod)
    assert startable(pod) == []
    restarted = simulated_pod(**spec)
    (migrate,) = startable(restarted)
    start(restarted, migrate, 0.0, WALL)
    exit_container(restarted, migrate, 0.0, WALL)
    assert migrate.restart_at == 0.0
    assert not has_finished(restarted)


@pytest.mark.parametrize(
    ("annotations", "is_killed", "code"),
    [({}, False, 0), ({"run-seconds": "60"}, False, 143), ({"run-seconds": "60"}, True, 137)],
    ids=["server", "stopped before its end", "killed"],
)
def test_exit_code_of_stopped_container(annotations, is_killed, code):
    pod = running_pod(annotations=annotations)
    pod.is_killed = is_killed
    stop(pod, WALL)
    assert pod.runs[0].exit_code == code
    assert pod.next_due() is None


def test_active_deadline_counts_from_start_time():
    pod = running_pod(activeDeadlineSeconds=60)
    pod.start_time = "2025-12-31T23:59:40Z"
    plan_deadline(pod, 30.0, WALL)
    assert pod.deadline_at == pod.next_due() == 70.0
    pod.object["spec"]["activeDeadlineSeconds"] = None
    plan_deadline(pod, 30.0, WALL)
    assert pod.next_due() is None
