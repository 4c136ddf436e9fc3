"""Start-up and run times of pods by workload, from the input: what a simulated kubelet needs for new pods.

The start-up time of a pod is the time from its binding to Ready; its workload's is the median of its pods. A pod that
is not ready for long, or whose container waits after a failure, stays so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from statistics import median
from typing import Final

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import JOBS, PODS, REPLICA_SETS
from kubeloop.kube.values.times import parse_time, seconds_between
from kubeloop.recording.changes import ClusterState

_FAILING: Final = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName"}
)
_UNREADY_SECONDS: Final = 600.0
_CRON_TIME = re.compile(r"-\d{6,}$")  # of the Jobs of a CronJob

WorkloadKey = tuple[str, str, str]
"""Kind, namespace and name."""


class RunTimes:
    """Times by workload, and the markers of the kubelet (see `NodeSettings`) that they lead to."""

    def __init__(self, state: ClusterState) -> None:
        self._owners = {
            obj["metadata"].get("uid", ""): top
            for resource in (REPLICA_SETS, JOBS)
            for obj in state.of(resource).values()
            if (top := _controller(obj)) is not None
        }
        self.start_seconds: dict[WorkloadKey, float] = {}
        self.run_seconds: dict[WorkloadKey, float] = {}
        self.failing: dict[str, str] = {}  # reason by UID of the pod
        starts: dict[WorkloadKey, list[float]] = {}
        runs: dict[WorkloadKey, list[float]] = {}
        for pod in state.of(PODS).values():
            workload = self.workload_of(pod)
            if workload is not None and (started := _start_seconds(pod)) is not None:
                starts.setdefault(workload, []).append(started)
            if workload is not None and (ran := _run_seconds(pod)) is not None:
                runs.setdefault(workload, []).append(ran)
            if reason := _failure(pod, state.moment):
                self.failing[pod["metadata"].get("uid", "")] = reason
        self.start_seconds = {workload: median(values) for workload, values in starts.items()}
        self.run_seconds = {workload: median(values) for workload, values in runs.items()}

    def workload_of(self, pod: JSON) -> WorkloadKey | None:
        """Return the top owner of a pod; Jobs of a CronJob count as the CronJob."""
        controller = _controller(pod)
        if controller is None:
            return None
        kind, name, uid = controller
        top = self._owners.get(uid)
        if top is not None:
            kind, name, _ = top
        elif kind == "ReplicaSet":  # created by the plan
            template_hash = (pod["metadata"].get("labels") or {}).get("pod-template-hash")
            if template_hash and name.endswith(f"-{template_hash}"):
                kind, name = "Deployment", name.removesuffix(f"-{template_hash}")
        return kind, pod["metadata"].get("namespace", ""), name

    def markers(self, pod: JSON) -> Mapping[str, str]:
        """Return the markers of a pod that does not have them."""
        if pod["metadata"]["uid"] in self.failing:
            return {"not-ready": "true"}
        workload = self.workload_of(pod)
        if workload is None:
            return {}
        markers = {}
        if (started := self.start_seconds.get(workload)) is not None:
            markers["start-delay-seconds"] = f"{max(0.0, started - _probe_delay(pod)):g}"
        if (ran := self.run_seconds.get(workload)) is not None:
            markers["run-seconds"] = f"{ran:g}"
        return markers


def _controller(obj: JSON) -> tuple[str, str, str] | None:
    """Return kind, name and UID of the controller of an object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference["kind"], reference["name"], reference.get("uid", "")
    return None


def _condition_time(pod: JSON, type_: str) -> datetime | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_ and condition.get("status") == "True":
            return _time(condition.get("lastTransitionTime"))
    return None


def _time(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _start_seconds(pod: JSON) -> float | None:
    """Return the seconds from the binding of a pod to Ready, None if it is not ready or was not ready before."""
    bound, ready = _condition_time(pod, "PodScheduled"), _condition_time(pod, "Ready")
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if bound is None or ready is None or any(status.get("restartCount") for status in statuses):
        return None
    return max(0.0, seconds_between(bound, ready))


def _run_seconds(pod: JSON) -> float | None:
    """Return the seconds for which the containers of a successful pod ran."""
    if (pod.get("status") or {}).get("phase") != "Succeeded":
        return None
    seconds = []
    for status in pod["status"].get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        begin, end = _time(ended.get("startedAt")), _time(ended.get("finishedAt"))
        if begin is not None and end is not None:
            seconds.append(seconds_between(begin, end))
    return max(seconds, default=None)


def _failure(pod: JSON, moment: datetime) -> str:
    """Return why a pod with a node does not become ready, "" if it may."""
    status = pod.get("status") or {}
    if not pod["spec"].get("nodeName") or status.get("phase") not in ("Pending", "Running"):
        return ""
    for field in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(field) or ():
            reason: str = ((entry.get("state") or {}).get("waiting") or {}).get("reason", "")
            if reason in _FAILING:
                return reason
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            since = _time(condition.get("lastTransitionTime"))
            if since is not None and seconds_between(since, moment) > _UNREADY_SECONDS:
                return "not ready"
    return ""


def _probe_delay(pod: JSON) -> float:
    """Return the longest initial delay of readiness and startup probes, which the kubelet adds to a start delay."""
    return max(
        (
            float(probe.get("initialDelaySeconds") or 0)
            for container in pod["spec"].get("containers") or ()
            for probe in _probes(container)
        ),
        default=0.0,
    )


def _probes(container: JSON) -> Iterable[JSON]:
    return (container[name] for name in ("startupProbe", "readinessProbe") if container.get(name))
