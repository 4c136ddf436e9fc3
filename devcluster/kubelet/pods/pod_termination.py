"""End of a pod: deletion with its grace period and preStop hooks, activeDeadlineSeconds, completed main containers.

Functions on the state of a pod; now: seconds of the event loop's clock, wall: a metav1.Time.
"""

from __future__ import annotations

from kubeloop.devcluster.kubelet.containers.container_commands import command_end
from kubeloop.devcluster.kubelet.containers.container_run import (
    CONTAINER_STATUS_UNKNOWN,
    KILLED,
    NOT_LOCATED,
    TERMINATED,
)
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.times import go_duration_seconds, parse_time, seconds_between

_MIN_GRACE_SECONDS = 2.0  # kubelet's minimumGracePeriodInSeconds


def plan_stop(pod: SimulatedPod, now: float, grace_seconds: float, stop_seconds: float, *, hooks: bool = True) -> None:
    """Set the time at which the containers of a pod in deletion will have stopped; a repeated call may shorten it.

    stop_seconds: the default time after the preStop hooks, which run if `hooks` is set. Containers that would take
    longer than the grace period are killed.
    """
    if pod.stop_at is not None and grace_seconds >= pod.grace_seconds:
        return
    pod.grace_seconds = grace_seconds
    if pod.stop_at is not None:
        delay = pod.stop_at - now
    else:
        delay, grace_seconds = _stop_delay(pod, grace_seconds, stop_seconds, hooks=hooks)
    if delay > max(grace_seconds, _MIN_GRACE_SECONDS):
        pod.is_killed = True
    pod.stop_at = now + min(delay, grace_seconds)


def _stop_delay(pod: SimulatedPod, grace_seconds: float, stop_seconds: float, *, hooks: bool) -> tuple[float, float]:
    """Return (seconds that the containers take, seconds that they have), both with preStop hooks.

    After a hook, a container has at least the minimum grace period.
    """
    running = [run for run in pod.runs if run.state == "running"]
    if not running:
        return 0.0, grace_seconds
    annotated = pod.seconds("stop-seconds")
    if annotated is not None:
        return annotated, grace_seconds
    hook = max(_hook_seconds(pod.container(run)) for run in running) if hooks else 0.0
    hook = min(hook, grace_seconds)
    return hook + stop_seconds, max(grace_seconds, hook + _MIN_GRACE_SECONDS) if hook else grace_seconds


def _hook_seconds(container: JSON) -> float:
    """Return the duration of the container's preStop hook: that of `sleep`, or of a command that says it."""
    hook = (container.get("lifecycle") or {}).get("preStop")
    if not hook:
        return 0.0
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds") or 0)
    end = command_end(tuple((hook.get("exec") or {}).get("command") or ()))
    return 0.0 if end is None else end.seconds


def plan_deadline(pod: SimulatedPod, now: float, wall: str) -> None:
    """Set the time of activeDeadlineSeconds, which counts from status.startTime."""
    deadline = pod.object["spec"].get("activeDeadlineSeconds")
    if deadline is None:
        pod.deadline_at = None
        return
    elapsed = seconds_between(parse_time(pod.start_time), parse_time(wall))
    pod.deadline_at = now + go_duration_seconds(deadline) - elapsed


def has_finished(pod: SimulatedPod) -> bool:
    """Return True if the main containers have ended for good, or will not start because an init container failed."""
    is_complete = True
    for run in pod.runs:
        has_ended = run.state == "terminated" and run.restart_at is None
        if run.role == "init" and has_ended and run.exit_code:
            return True
        if run.role == "main" and not has_ended:
            is_complete = False
    return is_complete


def finish(pod: SimulatedPod, wall: str) -> None:
    """Stop the other containers of a pod whose main containers have ended for good."""
    for run in pod.runs:
        run.restart_at = None
        if run.role in ("sidecar", "ephemeral") and run.state == "running":
            run.end(wall, 0)
    pod.stopped = True


def fail(pod: SimulatedPod, reason: str, message: str, wall: str) -> None:
    """Fail the pod and stop its containers."""
    pod.failure = (reason, message)
    pod.start_at = pod.pull_backoff_at = pod.deadline_at = None
    stop(pod, wall)


def stop(pod: SimulatedPod, wall: str) -> None:
    """Stop all containers of a pod in deletion or past its deadline.

    One that would have exited by itself does not succeed; the status of one that never ran is unknown, as in
    TerminatePod.
    """
    has_initialized = all(run.state == "terminated" for run in pod.runs if run.role == "init")
    for run in pod.runs:
        run.restart_at = None
        if run.state == "running":
            run.end(wall, KILLED if pod.is_killed else 0 if run.exit_at is None else TERMINATED)
            run.reason = ""
        elif run.state == "waiting" and has_initialized:
            run.end("", KILLED)
            run.reason, run.message = CONTAINER_STATUS_UNKNOWN, NOT_LOCATED
    pod.stopped = True
    pod.stop_at = None
