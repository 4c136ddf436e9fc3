"""Status of a container as a kubelet of v1.36 reports it. Pure functions. Source: pkg/kubelet/kuberuntime."""

from __future__ import annotations

import hashlib

from kubeloop.devcluster.kubelet.containers.container_run import CONTAINER_STATUS_UNKNOWN, ContainerRun
from kubeloop.devcluster.serializer.image_references import image_reference
from kubeloop.kube.json_object import JSON


def _container_id(uid: str, run: ContainerRun) -> str:
    return "containerd://" + hashlib.sha256(f"{uid}/{run.name}/{run.restarts}".encode()).hexdigest()


def terminated_state(uid: str, run: ContainerRun, *, ended: str, exit_code: int, reason: str = "") -> JSON:
    """Return the state of a container of the pod `uid` that terminated at `ended`."""
    return {
        "terminated": {
            "containerID": _container_id(uid, run),
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": run.since or ended,
            "finishedAt": ended,
        }
    }


def container_status(uid: str, run: ContainerRun) -> JSON:
    """Return the entry for a container in the status of the pod `uid`."""
    image, image_id, _ = image_reference(run.image)
    alive = run.state == "running"
    status: JSON = {
        "name": run.name,
        "image": image if run.state != "waiting" or run.last_state else run.image,
        "imageID": image_id if run.state != "waiting" or run.last_state else "",
        "lastState": run.last_state or {},
        "ready": (alive and run.ready) or (run.role == "init" and run.has_succeeded),
        "restartCount": run.restarts,
    }
    if run.role != "ephemeral":
        status["started"] = alive and run.started
    if alive:
        status["state"] = {"running": {"startedAt": run.since}}
        status["containerID"] = _container_id(uid, run)
    elif run.state == "terminated" and run.reason == CONTAINER_STATUS_UNKNOWN:
        terminated = {"exitCode": run.exit_code, "reason": run.reason, "message": run.message}
        status["state"] = {"terminated": {**terminated, "startedAt": None, "finishedAt": None}}
    elif run.state == "terminated":
        status["state"] = terminated_state(uid, run, ended=run.ended, exit_code=run.exit_code, reason=run.reason)
        status["containerID"] = _container_id(uid, run)
    else:
        waiting = {"reason": run.reason}
        if run.message:
            waiting["message"] = run.message
        status["state"] = {"waiting": waiting}
        if run.last_state:
            status["containerID"] = run.last_state["terminated"]["containerID"]
    if alive and run.resources:
        status["resources"] = run.resources
    if alive and run.allocated and run.allocated.get("requests"):
        status["allocatedResources"] = run.allocated["requests"]
    return status
