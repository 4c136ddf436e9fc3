"""Starts, holds, exits and restarts the containers of pods when it is time, and records their events.

container_lifecycle and container_exits decide; nothing here writes to the store except events.
"""

from __future__ import annotations

import math

from kubeloop.devcluster.kubelet.containers.container_run import TERMINATED, ContainerRun, ephemeral_runs
from kubeloop.devcluster.kubelet.containers.image_pull_errors import ImageProblem, image_problem
from kubeloop.devcluster.kubelet.pods.awaited_objects import AwaitedObjects
from kubeloop.devcluster.kubelet.pods.container_lifecycle import exit_container, hold, restart, start, startable
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.serializer.image_references import image_reference
from kubeloop.devcluster.simulation.simulation import Simulation

_PULL_BACKOFF_SECONDS = 2.0  # from ErrImagePull to ImagePullBackOff
_BACKED_OFF = {"ImagePullBackOff": "ErrImagePull"}  # reason -> that of the pull before it


class ContainerRunner:
    """Containers of the pods of all simulated nodes."""

    def __init__(self, simulation: Simulation, events: KubeletEvents, awaited: AwaitedObjects) -> None:
        self._simulation = simulation
        self._events = events
        self._awaited = awaited

    def pull_images(self, pod: SimulatedPod, now: float) -> None:
        """Pull the images, which may take time: the containers start at pod.start_at then."""
        markers = pod.markers()
        pull_seconds = None if markers.get("image-pull-error") else pod.seconds("image-pull-seconds")
        if pull_seconds and pod.pull_seconds is None:
            pod.pull_seconds = pull_seconds
            pod.start_at = now + pull_seconds
            for run in pod.runs:
                self._events.record(pod, "Normal", "Pulling", f'Pulling image "{run.image}"', run)

    def start(self, pod: SimulatedPod, now: float, wall: str) -> bool:
        """Start the containers whose turn it is; return True if there are any."""
        changed = False
        while runs := startable(pod):
            changed = True
            for run in runs:
                if self._refuse(pod, run, now):
                    continue
                start(pod, run, now, wall)
                self._events.started(pod, run)
                if run.role == "init" and run.exit_at == now:
                    self._exit(pod, run, now, wall)
        return changed

    def exit_and_restart(self, pod: SimulatedPod, now: float, wall: str) -> bool:
        """Exit and restart the containers for which it is time; return True if there are any."""
        changed = False
        for run in pod.runs:
            while run.probe_failures and now >= run.probe_failures[0].seconds:
                failure, *others = run.probe_failures
                run.probe_failures = tuple(others)
                self._events.record(pod, "Warning", "Unhealthy", failure.message, run)
            if run.exit_at is not None and now >= run.exit_at:
                self._exit(pod, run, now, wall)
                changed = True
            elif now >= run.killed_at:
                self._kill(pod, run, now, wall)
                changed = True
            if run.restart_at is not None and now >= run.restart_at:
                if not self._refuse(pod, run, now):
                    restart(pod, run, now, wall)
                    self._events.started(pod, run)
                changed = True
        return changed

    def apply_spec(self, pod: SimulatedPod) -> None:
        """Start new ephemeral containers, and restart containers whose image has changed."""
        now, wall = self._simulation.now(), self._simulation.wall()
        if "ephemeralContainers" in pod.object["spec"]:
            added = ephemeral_runs(pod.object["spec"], pod.runs)
            pod.runs += added
            if added and pod.start_at is None and pod.address and pod.stop_at is None:
                self.start(pod, now, wall)
        for run in pod.runs:
            image = pod.container(run).get("image", "")
            if not pod.container(run) or image == run.image:
                continue
            run.image = image
            if run.state == "running":
                self.restart(pod, run, "definition changed, will be restarted")
            elif run.restart_at == math.inf:
                run.restart_at = now

    def restart(self, pod: SimulatedPod, run: ContainerRun, why: str) -> None:
        """Stop a running container and start it again, if it can be created. why: completes the event."""
        now, wall = self._simulation.now(), self._simulation.wall()
        self._events.record(pod, "Normal", "Killing", f"Container {run.name} {why}", run)
        run.end(wall, 0)
        if not self._refuse(pod, run, now):
            restart(pod, run, now, wall)
            self._events.started(pod, run)

    def retry_refused(self, pod: SimulatedPod, now: float) -> None:
        """Create the containers anew that were refused and may be created now: image, environment or mounts differ."""
        for run in pod.runs:
            if run.restart_at == math.inf and run.state == "waiting":
                problem = _image_problem(pod, run)
                if problem is None or problem.reason not in (run.reason, _BACKED_OFF.get(run.reason)):
                    run.restart_at = now

    def back_off_pulling(self, pod: SimulatedPod) -> None:
        """Let containers whose image could not be pulled wait with ImagePullBackOff."""
        for run in pod.runs:
            if run.reason == "ErrImagePull":
                run.reason = "ImagePullBackOff"
                run.message = f'Back-off pulling image "{run.image}": ErrImagePull: {run.message}'
                self._events.record(pod, "Normal", "BackOff", f'Back-off pulling image "{run.image}"', run)
                self._events.record(pod, "Warning", "Failed", "Error: ImagePullBackOff", run)

    def _exit(self, pod: SimulatedPod, run: ContainerRun, now: float, wall: str, code: int | None = None) -> None:
        exit_container(pod, run, now, wall, code)
        if run.restart_at is not None and run.restart_at > now:
            self._events.record(pod, "Warning", "BackOff", f"Back-off restarting failed container {run.name}", run)

    def _kill(self, pod: SimulatedPod, run: ContainerRun, now: float, wall: str) -> None:
        """Stop a container whose startup or liveness probe has failed, and restart it by the pod's policy."""
        suffix = "" if pod.restart_policy == "Never" else ", will be restarted"
        self._events.record(pod, "Normal", "Killing", f"Container {run.name} {run.kill_cause}{suffix}", run)
        self._exit(pod, run, now, wall, TERMINATED)

    def _refuse(self, pod: SimulatedPod, run: ContainerRun, now: float) -> bool:
        """Hold a container that has no image or cannot be configured, with the reason; return True if it is held."""
        problem = _image_problem(pod, run)
        if problem is not None:
            hold(pod, run, problem.reason, problem.message)
            if problem.reason == "ErrImagePull":
                pod.pull_backoff_at = now + _PULL_BACKOFF_SECONDS
            for type_, reason, message in problem.events:
                self._events.record(pod, type_, reason, message, run)
            return True
        error = self._awaited.configuration_error(pod, run)
        if not error:
            return False
        hold(pod, run, "CreateContainerConfigError", error)
        self._events.pulled(pod, run)
        self._events.record(pod, "Warning", "Failed", f"Error: {error}", run)
        return True


def _image_problem(pod: SimulatedPod, run: ContainerRun) -> ImageProblem | None:
    """Return why the container has no image, None if it has one."""
    markers, missing = pod.markers(), pod.settings.missing_images
    if not markers and not missing and not image_reference(run.image).error:
        return None
    policy = pod.container(run).get("imagePullPolicy", "")
    return image_problem(run.image, policy, markers.get("image-pull-error") or "", missing)
