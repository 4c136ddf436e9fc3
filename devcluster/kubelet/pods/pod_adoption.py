"""Pods whose status says that they run already: a kubelet adopts them, as after its restart."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.containers import crash_loop_backoff
from kubeloop.devcluster.kubelet.containers.container_run import STATUS_FIELDS, ContainerRun
from kubeloop.devcluster.kubelet.pods.container_lifecycle import start
from kubeloop.devcluster.kubelet.pods.pod_admission import requested_amounts
from kubeloop.devcluster.kubelet.pods.pod_allocation import allocated_object
from kubeloop.devcluster.kubelet.pods.pod_termination import plan_deadline
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.kube.json_object import JSON


def adopt_allocation(pod: SimulatedPod) -> None:
    """Allocate what the status says, as a kubelet reads from its checkpoint."""
    reported = _reported(pod)
    for run in pod.runs:
        entry = reported.get(run.name, {})
        if requests := entry.get("allocatedResources"):
            run.allocated = {**(entry.get("resources") or run.allocated or {}), "requests": requests}
    pod.requests = requested_amounts(allocated_object(pod))


def adopt_running(pod: SimulatedPod, now: float, wall: str) -> None:
    """Adopt the containers in the states of the status."""
    pod.start_time = (pod.object.get("status") or {}).get("startTime") or wall
    pod.assign_address()
    reported = _reported(pod)
    for run in pod.runs:
        _adopt_container(pod, run, reported.get(run.name, {}), now, wall)
    plan_deadline(pod, now, wall)


def _reported(pod: SimulatedPod) -> dict[str, JSON]:
    """Return the container statuses by name."""
    status = pod.object.get("status") or {}
    return {entry["name"]: entry for field in STATUS_FIELDS.values() for entry in status.get(field) or ()}


def _adopt_container(pod: SimulatedPod, run: ContainerRun, entry: JSON, now: float, wall: str) -> None:
    run.restarts = run.backoff_restarts = entry.get("restartCount") or 0
    run.last_state = entry.get("lastState") or None
    state = entry.get("state") or {}
    if terminated := state.get("terminated"):
        run.since, run.reason = terminated.get("startedAt") or "", terminated.get("reason", "")
        run.end(terminated.get("finishedAt") or wall, terminated.get("exitCode", 0))
        return
    if (waiting := state.get("waiting")) and run.last_state:
        run.reason, run.message = waiting.get("reason", ""), waiting.get("message", "")
        run.restart_at = now + crash_loop_backoff.restart_delay_seconds(run.restarts)
        return
    if (waiting and run.role == "main") or (run.role == "ephemeral" and "running" not in state):
        return
    start(pod, run, now, (state.get("running") or {}).get("startedAt") or wall)
    if entry.get("ready") and run.role != "init" and not pod.is_held_unready:
        run.started = run.ready = True
        run.started_at = run.ready_at = now
