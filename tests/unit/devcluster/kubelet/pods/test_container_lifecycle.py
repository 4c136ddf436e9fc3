"""States of containers: order of starts, readiness, exits and restarts."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.pods.container_lifecycle import (
    exit_container,
    refresh_readiness,
    restart,
    start,
    startable,
)
from kubeloop.devcluster.kubelet.pods.pod_termination import has_finished
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from support.simulation.simulated_pods import WALL, running_pod, simulated_pod


def test_exited_container_restarts_by_restart_policy():
    pod = running_pod(restartPolicy="OnFailure", annotations={"run-seconds": "5", "exit-code": "1"})
    (web,) = pod.runs
    assert pod.next_due() == 5.0
    exit_container(pod, web, 5.0, WALL)
    assert web.restart_at == 5.0  # the first restart has no delay
    assert not has_finished(pod)
    restart(pod, web, 5.0, WALL)
    assert (web.restarts, web.exit_at, web.restart_at) == (1, 10.0, None)
    exit_container(pod, web, 10.0, WALL)
    assert pod.next_due() == 20.0
    assert web.reason == "CrashLoopBackOff"
    never = running_pod(restartPolicy="Never", annotations={"run-seconds": "5"})
    exit_container(never, never.runs[0], 5.0, WALL)
    assert never.next_due() is None
    assert has_finished(never)


def test_containers_start_after_those_before_them():
    inits = [{"name": "a"}, {"name": "proxy", "restartPolicy": "Always"}, {"name": "b"}]
    pod = simulated_pod(initContainers=inits, containers=[{"name": "web"}, {"name": "log"}])
    started = []
    while runs := startable(pod):
        started.append([run.name for run in runs])
        for run in runs:
            start(pod, run, 0.0, WALL)
            if run.role == "init":
                assert startable(pod) == []
                exit_container(pod, run, 0.0, WALL)
    assert started == [["a"], ["proxy"], ["b"], ["web", "log"]]


def test_probes_delay_readiness():
    container = {"name": "web", "readinessProbe": {"initialDelaySeconds": 4}}
    pod = running_pod(containers=[container])
    assert pod.next_due() == 4.0
    assert not refresh_readiness(pod, 3.9)
    assert refresh_readiness(pod, 4.0)
    assert pod.runs[0].ready
    immediate = running_pod(containers=[container], settings=NodeSettings(probe_delays=False))
    assert immediate.runs[0].ready


def test_not_ready_annotation_holds_pod_unready():
    pod = running_pod(annotations={"not-ready": "true"})
    assert not pod.runs[0].ready
    assert pod.next_due() is None
    pod.object["metadata"]["annotations"] = {}
    assert refresh_readiness(pod, 0.0)
    assert pod.runs[0].ready
