"""Changes of a container's state on its node: started, ready, exited, restarted.

Functions on the state of a pod; now: seconds of the event loop's clock, wall: a metav1.Time.
"""

from __future__ import annotations

import math

from kubeloop.devcluster.kubelet.containers import crash_loop_backoff
from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.containers.container_status import terminated_state
from kubeloop.devcluster.kubelet.containers.probes import ProbeFailure, probe_plan
from kubeloop.devcluster.kubelet.pods.container_exits import exit_code, is_restarted, run_seconds
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod


def startable(pod: SimulatedPod) -> list[ContainerRun]:
    """Return the containers to start now: ephemeral ones at any time, init containers one by one, sidecars once
    those before them are started, then all others."""
    waiting = [run for run in pod.runs if run.state == "waiting" and run.restart_at is None]
    if not waiting:
        return []
    if ephemeral := [run for run in waiting if run.role == "ephemeral"]:
        return ephemeral
    for run in pod.runs:
        if run.role == "main":
            break
        if run.state == "waiting" and run.restart_at is None:
            return [run]
        has_initialized = run.started if run.role == "sidecar" else run.has_succeeded
        if not has_initialized:
            return []
    return waiting


def start(pod: SimulatedPod, run: ContainerRun, now: float, wall: str) -> None:
    """Start one container, and set when it will exit and when its probes succeed."""
    run.since, run.reason, run.message = wall, "", ""
    run.state, run.running_at, run.resources = "running", now, run.allocated
    seconds = run_seconds(pod, run)
    run.exit_at = None if seconds is None else now + seconds
    if not run.is_probed:
        run.started = True
        return
    settings = pod.settings
    plan = probe_plan(pod.container(run), delays=settings.probe_delays, commands=settings.command_exits)
    run.started_at, run.ready_at = now + plan.started, now + plan.ready
    run.started = plan.started == 0
    run.ready = plan.ready == 0 and not pod.is_held_unready
    if plan.failures:
        run.probe_failures = tuple(ProbeFailure(now + failure.seconds, failure.message) for failure in plan.failures)
        run.killed_at, run.kill_cause = now + plan.killed, plan.cause


def refresh_readiness(pod: SimulatedPod, now: float) -> bool:
    """Update started and ready by probes, deletion and annotations; return True if anything changed."""
    changed = False
    for run in pod.runs:
        if run.state != "running" or not run.is_probed:
            continue
        started = run.started or now >= run.started_at
        ready = started and pod.stop_at is None and not pod.is_held_unready and now >= run.ready_at
        if (started, ready) != (run.started, run.ready):
            run.started, run.ready = started, ready
            changed = True
    return changed


def exit_container(pod: SimulatedPod, run: ContainerRun, now: float, wall: str, code: int | None = None) -> None:
    """Exit a container: for good, or to be restarted after the CrashLoopBackOff delay. code: None for its own."""
    if code is None:
        code = exit_code(pod, run)
    run.end(wall, code)
    run.reason = ""
    if not is_restarted(pod, run, code):
        return
    if now - run.running_at >= crash_loop_backoff.RESET_SECONDS:
        run.backoff_restarts = 0
    delay = crash_loop_backoff.restart_delay_seconds(run.backoff_restarts)
    run.backoff_restarts += 1
    run.restart_at = now + delay
    if delay:
        run.last_state = terminated_state(pod.uid, run, ended=wall, exit_code=code)
        run.state, run.reason = "waiting", "CrashLoopBackOff"
        namespace, _, name = pod.key.partition("/")
        run.message = crash_loop_backoff.waiting_message(delay, run.name, f"{name}_{namespace}({pod.uid})")


def restart(pod: SimulatedPod, run: ContainerRun, now: float, wall: str) -> None:
    """Start a container again, or for the first time after hold()."""
    _record_last_state(pod, run)
    if run.since or run.last_state:
        run.restarts += 1
    run.restart_at = None
    start(pod, run, now, wall)


def hold(pod: SimulatedPod, run: ContainerRun, reason: str, message: str) -> None:
    """Let a container that cannot be created wait for retry()."""
    _record_last_state(pod, run)
    run.state, run.reason, run.message, run.restart_at = "waiting", reason, message, math.inf


def retry(pod: SimulatedPod, now: float) -> None:
    """Attempt again to start the pod, and its containers that could not be created."""
    pod.missing.clear()
    if pod.start_at == math.inf:
        pod.start_at = now
    for run in pod.runs:
        if run.restart_at == math.inf:
            run.restart_at = now


def _record_last_state(pod: SimulatedPod, run: ContainerRun) -> None:
    if run.state == "terminated":
        run.last_state = terminated_state(pod.uid, run, ended=run.ended, exit_code=run.exit_code)
