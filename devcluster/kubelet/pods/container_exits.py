"""When and with which code a container exits by itself, and whether it is restarted then.

By annotations of the pod, the container's command, and the settings of nodes for Jobs and bare pods.
"""

from __future__ import annotations

import math

from kubeloop.devcluster.kubelet.containers.container_commands import CommandEnd, container_end
from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.containers.restart_policy import restarts_after
from kubeloop.devcluster.kubelet.pods.pod_annotations import exit_code_of, number_of
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod

_HELM_HOOK = "helm.sh/hook"  # annotation of a pod for whose completion Helm waits


def exit_code(pod: SimulatedPod, run: ContainerRun) -> int:
    """Return the code with which a container will exit."""
    crashes = _crashes(pod, run)
    if crashes is not None and run.restarts >= crashes:
        return 0
    text = _marker(pod, run, "exit-code")
    if text is not None:
        code = exit_code_of(text)
        return 1 if code is None else code
    if crashes is not None:
        return 1
    end = _command_end(pod, run) if _marker(pod, run, "run-seconds") is None else None
    return 0 if end is None else end.exit_code


def run_seconds(pod: SimulatedPod, run: ContainerRun) -> float | None:
    """Return the seconds after which a started container exits; None if it does not exit.

    After its crashes, a container exits only if it then completes: it is not restarted.
    """
    crashes = _crashes(pod, run)
    seconds = pod.jittered(number_of(_marker(pod, run, "run-seconds")))
    if crashes is None or run.restarts < crashes:
        if seconds is not None:
            return seconds
        if crashes is not None or _marker(pod, run, "exit-code") is not None:
            return 0.0
        if (end := _command_end(pod, run)) is not None:
            return end.seconds if end.seconds < math.inf else None
    elif seconds is not None and not is_restarted(pod, run, 0):
        return seconds
    if run.role == "init":
        return 0.0
    return pod.jittered(pod.settings.job_run_seconds) if _completes(pod, run) else None


def is_restarted(pod: SimulatedPod, run: ContainerRun, code: int) -> bool:
    """Return True if the container is restarted after it has exited with `code`."""
    is_init = run.role == "init"
    return run.role != "ephemeral" and restarts_after(pod.container(run), code, pod.restart_policy, is_init=is_init)


def _marker(pod: SimulatedPod, run: ContainerRun, name: str) -> str | None:
    """Return the annotation of one container; without it, main containers have the pod's."""
    markers = pod.markers()
    if not markers:
        return None
    value = markers.get(f"{name}.{run.name}")
    return markers.get(name) if value is None and run.role == "main" else value


def _crashes(pod: SimulatedPod, run: ContainerRun) -> float | None:
    return number_of(_marker(pod, run, "crashes"))


def _command_end(pod: SimulatedPod, run: ContainerRun) -> CommandEnd | None:
    return container_end(pod.container(run)) if pod.settings.command_exits else None


def _completes(pod: SimulatedPod, run: ContainerRun) -> bool:
    """Return True for a container that exits by itself although nothing says how.

    Those are the containers of Jobs; interactive ephemeral containers, which read the end of their input; and of pods
    without a controller the interactive ones, those of Helm's hooks, and all by the settings.
    """
    if run.role == "ephemeral":
        return bool(pod.container(run).get("stdin"))
    if run.role != "main":
        return False
    metadata = pod.object["metadata"]
    controller = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    if controller is not None:
        return bool(controller.get("kind") == "Job")
    if pod.restart_policy == "Always":
        return False
    is_hook = _HELM_HOOK in (metadata.get("annotations") or ())
    return pod.settings.complete_bare_pods or is_hook or bool(pod.container(run).get("stdin"))
