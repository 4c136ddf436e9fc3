"""The status that a kubelet of v1.36 reports for a pod, computed from the state of its simulated containers.

Pure functions on plain JSON and ContainerRun records; time is an argument. Source: pkg/kubelet/status/generate.go and
kubelet_pods.go (phase).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kubeloop.devcluster.kubelet.containers.container_run import STATUS_FIELDS, ContainerRun
from kubeloop.devcluster.kubelet.containers.container_status import container_status
from kubeloop.devcluster.kubelet.pods.pod_conditions import Resize, pod_conditions, rejected_conditions
from kubeloop.kube.json_object import JSON


def pod_phase(pod: JSON, runs: Sequence[ContainerRun], *, stopped: bool = False) -> str:
    """Return the phase by the containers. `stopped`: none will be started again."""
    mains = [run for run in runs if run.role == "main"]
    if stopped:
        return "Succeeded" if all(run.has_succeeded for run in mains) else "Failed"
    if any(run.state == "waiting" and not run.last_state for run in mains):
        return "Pending"
    if any(run.state != "terminated" for run in mains):
        return "Running"
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return "Running"
    return "Succeeded" if all(run.exit_code == 0 for run in mains) else "Failed"


class PodIPs(NamedTuple):
    """Addresses of a pod and its node. pod: "" while the pod has no network."""

    host: str
    pod: str


def pod_status(
    pod: JSON,
    runs: Sequence[ContainerRun],
    *,
    now: str,
    ips: PodIPs,
    start_time: str,
    failure: tuple[str, str] | None = None,
    stopped: bool = False,
    resizes: Iterable[Resize] = (),
) -> JSON:
    """Return the status of `pod`, with fields of other writers unchanged.

    start_time: used if the status has none. failure: (reason, message) of a failed pod. stopped: in deletion, all
    containers have ended for good. resizes: those that are not finished.
    """
    old: Mapping[str, Any] = pod.get("status") or {}
    spec, metadata = pod["spec"], pod["metadata"]
    phase = "Failed" if failure else pod_phase(pod, runs, stopped=stopped)
    status: JSON = {key: value for key, value in old.items() if key not in ("reason", "message")}
    status["phase"] = phase
    status["conditions"] = pod_conditions(pod, runs, phase, now=now, has_network=bool(ips.pod), resizes=resizes)
    status["hostIP"] = ips.host
    status["hostIPs"] = [{"ip": ips.host}]
    status["startTime"] = old.get("startTime") or start_time
    if metadata.get("generation"):
        status["observedGeneration"] = metadata["generation"]
    if ips.pod:
        status["podIP"] = ips.pod
        status["podIPs"] = [{"ip": ips.pod}]
    if failure:
        status["reason"], status["message"] = failure
    by_name = {run.name: run for run in runs}
    uid = metadata["uid"]
    for source, field in STATUS_FIELDS.items():
        containers = spec.get(source)
        if containers:
            status[field] = [container_status(uid, by_name[container["name"]]) for container in containers]
    return status


def rejected_status(pod: JSON, reason: str, message: str, *, now: str) -> JSON:
    """Return the status of a rejected pod: failed, no container ever ran."""
    status = {
        key: value for key, value in (pod.get("status") or {}).items() if key not in ("containerStatuses", "conditions")
    }
    status.update(
        phase="Failed",
        reason=reason,
        message=f"Pod was rejected: {message}",
        startTime=now,
        conditions=rejected_conditions(pod, now=now),
    )
    if pod["metadata"].get("generation"):
        status["observedGeneration"] = pod["metadata"]["generation"]
    return status
