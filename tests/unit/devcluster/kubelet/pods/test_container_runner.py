"""Starts, refusals, exits and restarts of a pod's containers, without a kubelet."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kubeloop.devcluster.kubelet.pods.awaited_objects import AwaitedObjects
from kubeloop.devcluster.kubelet.pods.container_runner import ContainerRunner
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.kube.objects.resources import EVENTS
from support.simulation.simulated_pods import WALL, new_simulation, simulated_pod

pytestmark = pytest.mark.virtual_time


def new_runner() -> tuple[ContainerRunner, Callable[[], list[str]]]:
    """Return a runner, and a function that returns the reasons of its events in their order."""
    simulation = new_simulation()
    events = KubeletEvents(simulation)
    runner = ContainerRunner(simulation, events, AwaitedObjects(simulation.store, events, lambda change: None))

    def reasons() -> list[str]:
        stored = sorted(simulation.store.list(EVENTS), key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["reason"] for event in stored]

    return runner, reasons


def states(pod: SimulatedPod) -> list[tuple[str, str]]:
    return [(run.state, run.reason) for run in pod.runs]


async def test_init_container_that_exits_at_once_is_followed_by_the_others():
    runner, reasons = new_runner()
    pod = simulated_pod(initContainers=[{"name": "migrate", "image": "app"}])
    assert runner.start(pod, 0.0, WALL)
    assert states(pod) == [("terminated", ""), ("running", "")]
    assert reasons() == ["Pulled", "Created", "Started"] * 2
    assert not runner.start(pod, 0.0, WALL)


async def test_container_without_image_is_held_until_the_image_changes():
    runner, _ = new_runner()
    pod = simulated_pod(containers=[{"name": "web", "image": "UPPER"}])
    assert runner.start(pod, 0.0, WALL)
    assert states(pod) == [("waiting", "InvalidImageName")]
    runner.retry_refused(pod, 5.0)
    assert pod.runs[0].restart_at == math.inf
    pod.object = {**pod.object, "spec": {**pod.object["spec"], "containers": [{"name": "web", "image": "nginx"}]}}
    runner.apply_spec(pod)
    assert pod.runs[0].restart_at is not None
    assert runner.exit_and_restart(pod, 5.0, WALL)
    assert states(pod) == [("running", "")]
    assert pod.runs[0].restarts == 0


async def test_failed_pull_backs_off():
    runner, reasons = new_runner()
    pod = simulated_pod(annotations={"image-pull-error": "no route"})
    runner.start(pod, 3.0, WALL)
    assert (states(pod), pod.pull_backoff_at) == ([("waiting", "ErrImagePull")], 5.0)
    runner.back_off_pulling(pod)
    assert states(pod) == [("waiting", "ImagePullBackOff")]
    assert reasons()[-2:] == ["BackOff", "Failed"]


async def test_pull_images_delays_the_start_once():
    runner, reasons = new_runner()
    pod = simulated_pod(annotations={"image-pull-seconds": "4"})
    runner.pull_images(pod, 1.0)
    assert pod.start_at == 5.0
    pod.start_at = None
    runner.pull_images(pod, 5.0)
    assert pod.start_at is None
    assert reasons() == ["Pulling"]


async def test_failed_liveness_probe_kills_and_restarts():
    probe = {"exec": {"command": ["/bin/false"]}, "periodSeconds": 1, "failureThreshold": 2}
    runner, reasons = new_runner()
    pod = simulated_pod(containers=[{"name": "web", "image": "nginx", "livenessProbe": probe}])
    runner.start(pod, 0.0, WALL)
    assert not runner.exit_and_restart(pod, 0.5, WALL)  # the first failure is reported, and has no other effect
    assert reasons()[-1] == "Unhealthy"
    assert runner.exit_and_restart(pod, 1.0, WALL)
    (web,) = pod.runs
    assert (web.state, web.restarts) == ("running", 1)
    assert web.last_state is not None
    assert web.last_state["terminated"]["exitCode"] == 143


async def test_new_ephemeral_container_starts_in_a_started_pod_only():
    runner, _ = new_runner()
    pods = [simulated_pod(name=name, ephemeralContainers=[]) for name in ("started", "starting")]
    for pod in pods:
        pod.assign_address()
        pod.object["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox"}]
    pods[1].start_at = 9.0
    for pod in pods:
        runner.apply_spec(pod)
    assert [pod.runs[-1].state for pod in pods] == ["running", "waiting"]
