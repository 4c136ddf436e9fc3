"""Progress of the workloads of a cluster, as pure functions of its objects; `kubeloop up` displays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from kubeloop.kube.objects.api_types import DaemonSet, Deployment, Job, Object, Pod, ReplicationController, StatefulSet
from kubeloop.kube.objects.object_fields import controller_of, is_ready, job_finished_condition, replicas_of
from kubeloop.kube.objects.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    POD_GROUPS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.kube.objects.workload_types import PodGroup

_MAX_REASONS = 5  # of Pods
_REFUSALS = ("InvalidImageName", "ErrImageNeverPull")  # waiting states that only another spec or node ends


class WorkloadProgress(msgspec.Struct, frozen=True):
    """Progress of one workload. `title` is "deployment.apps/web"; counts are Pods.

    available: of a Job, those that have succeeded; of a PodGroup, minCount if it has been scheduled. failure: reason
    and message of a Job that has failed, or of a Deployment that has exceeded its progress deadline, else "". reason:
    why the last attempt to schedule a PodGroup failed, else "".
    """

    title: str
    namespace: str
    name: str
    replicas: int
    available: int
    complete: bool
    suspended: bool = False
    failure: str = ""
    reason: str = ""

    @property
    def state(self) -> str:
        """Return "2 of 3 available", "2 of 3 succeeded", "suspended", or "failed: REASON: MESSAGE"; of a PodGroup
        "scheduled", "not scheduled: REASON: MESSAGE", or "not a gang"."""
        if self.suspended:
            return "suspended"
        if self.failure:
            return f"failed: {self.failure}"
        if self.title.startswith("podgroup."):
            if not self.replicas:
                return "not a gang"
            return "scheduled" if self.complete else ": ".join(filter(None, ("not scheduled", self.reason)))
        return f"{self.available} of {self.replicas} {'succeeded' if self.title.startswith('job.') else 'available'}"


class Progress(msgspec.Struct, frozen=True):
    """Progress of the whole cluster at one moment."""

    workloads: tuple[WorkloadProgress, ...]
    unready_standalone_pods: tuple[str, ...]  # "namespace/name" of Pods without a controller that are not ready
    failed_standalone_pods: tuple[str, ...]  # those that have failed, as messages
    refused_pods: tuple[str, ...]  # pods of any kind whose containers cannot start with this spec, as messages
    phases: tuple[tuple[str, int], ...]
    pods: int
    bound: int
    ready: int

    @property
    def complete(self) -> bool:
        """True if every workload is complete or suspended."""
        return all(workload.complete or workload.suspended for workload in self.workloads)

    @property
    def settled(self) -> bool:
        """True if every workload is complete, suspended or failed."""
        return all(workload.complete or workload.suspended or workload.failure for workload in self.workloads)

    @property
    def failures(self) -> list[str]:
        """Workloads, Pods without a controller, and refused Pods, that have failed, with reason and message."""
        return [
            *(
                f"{workload.title} in {workload.namespace} failed: {workload.failure}"
                for workload in self.workloads
                if workload.failure
            ),
            *self.failed_standalone_pods,
            *self.refused_pods,
        ]

    @property
    def everything_available(self) -> bool:
        """True if complete, and Pods without a controller are ready as well."""
        return self.complete and not self.unready_standalone_pods

    def line(self) -> str:
        """Return a log line: "3/4 workloads complete; 40 pods: 38 bound, 35 ready (Pending 5, Running 35)"."""
        complete = sum(workload.complete for workload in self.workloads)
        suspended = sum(workload.suspended for workload in self.workloads)
        workloads = f"{complete}/{len(self.workloads)} workloads complete"
        failed = sum(bool(workload.failure) for workload in self.workloads)
        workloads += "".join(
            f", {count} {state}" for count, state in ((suspended, "suspended"), (failed, "failed")) if count
        )
        phases = ", ".join(f"{phase} {count}" for phase, count in self.phases)
        pods = f"{self.pods} pods: {self.bound} bound, {self.ready} ready"
        return f"{workloads}; {pods}" + (f" ({phases})" if phases else "")


def _progress(
    resource: Resource[Any], workload: Object, replicas: int, available: int, complete: bool, **states: Any
) -> WorkloadProgress:
    """Return the progress of a workload. states: the fields from `suspended` on."""
    group, metadata = f".{resource.group}" if resource.group else "", workload.metadata
    title = f"{resource.singular}{group}/{metadata.name}"
    return WorkloadProgress(title, metadata.namespace, metadata.name, replicas, available, complete, **states)


def deployment_progress(deployment: Deployment) -> WorkloadProgress:
    """Complete and failed as in `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go)."""
    status, replicas = deployment.status, replicas_of(deployment)
    is_observed = status.observed_generation >= deployment.metadata.generation
    progressing = next((condition for condition in status.conditions if condition.type == "Progressing"), None)
    is_late = is_observed and progressing is not None and progressing.reason == "ProgressDeadlineExceeded"
    complete = (
        is_observed
        and not is_late
        and status.updated_replicas >= replicas
        and status.replicas <= status.updated_replicas
        and status.available_replicas >= status.updated_replicas
    )
    failure = f"{progressing.reason}: {progressing.message}" if is_late and progressing is not None else ""
    return _progress(DEPLOYMENTS, deployment, replicas, status.available_replicas, complete, failure=failure)


def controller_progress(controller: ReplicationController) -> WorkloadProgress:
    """Complete if all desired replicas are available and no others exist."""
    status, replicas = controller.status, replicas_of(controller)
    is_observed = status.observed_generation >= controller.metadata.generation
    complete = is_observed and status.replicas == replicas == status.available_replicas
    return _progress(REPLICATION_CONTROLLERS, controller, replicas, status.available_replicas, complete)


def stateful_set_progress(sts: StatefulSet) -> WorkloadProgress:
    """Complete by the rules of `kubectl rollout status`, and if all replicas are available.

    Pods below the partition of a rolling update, and all with OnDelete, may have any revision.
    """
    status, strategy = sts.status, sts.spec.update_strategy
    replicas = replicas_of(sts)
    partition = strategy.rolling_update.partition or 0 if strategy.rolling_update is not None else 0
    complete = (
        status.observed_generation >= sts.metadata.generation
        and status.replicas == replicas == status.available_replicas
        and (strategy.type == "OnDelete" or status.updated_replicas >= replicas - partition)
    )
    return _progress(STATEFUL_SETS, sts, replicas, status.available_replicas, complete)


def job_progress(job: Job) -> WorkloadProgress:
    """Complete when the Job has succeeded."""
    finished, completions = job_finished_condition(job), 1 if job.spec.completions is None else job.spec.completions
    complete = finished is not None and finished.type == "Complete"
    suspended = bool(job.spec.suspend) and finished is None
    failure = f"{finished.reason}: {finished.message}" if finished is not None and not complete else ""
    return _progress(JOBS, job, completions, job.status.succeeded, complete, suspended=suspended, failure=failure)


def is_run_of_cron_job(workload: Object) -> bool:
    """Return True for a Job that a CronJob created: such Jobs are not part of what was applied."""
    owner = controller_of(workload.metadata)
    return owner is not None and owner.kind == CRON_JOBS.kind


def daemon_set_progress(daemon_set: DaemonSet) -> WorkloadProgress:
    """Complete by the rules of `kubectl rollout status`; with OnDelete, pods of old revisions count, too."""
    status, desired = daemon_set.status, daemon_set.status.desired_number_scheduled
    complete = (
        status.observed_generation >= daemon_set.metadata.generation
        and (status.updated_number_scheduled >= desired or daemon_set.spec.update_strategy.type == "OnDelete")
        and status.number_available >= desired
    )
    return _progress(DAEMON_SETS, daemon_set, desired, status.number_available, complete)


def pod_group_progress(pod_group: PodGroup) -> WorkloadProgress:
    """Complete when the scheduler has found nodes for a gang. Pods of any other group do not wait for each other."""
    gang = pod_group.spec.scheduling_policy.gang
    condition = next((entry for entry in pod_group.status.conditions if entry.type == "PodGroupScheduled"), None)
    is_scheduled = condition is not None and condition.status == "True"
    min_count = gang.min_count if gang is not None else 0
    reason = "" if condition is None or is_scheduled else ": ".join(filter(None, (condition.reason, condition.message)))
    available, complete = min_count if is_scheduled else 0, is_scheduled or gang is None
    return _progress(POD_GROUPS, pod_group, min_count, available, complete, reason=reason)


WORKLOAD_PROGRESS: Mapping[Resource[Any], Callable[[Any], WorkloadProgress]] = {
    DEPLOYMENTS: deployment_progress,
    REPLICATION_CONTROLLERS: controller_progress,
    STATEFUL_SETS: stateful_set_progress,
    JOBS: job_progress,
    DAEMON_SETS: daemon_set_progress,
    POD_GROUPS: pod_group_progress,
}
"""Workloads whose progress is shown, and the function that measures it."""


def measure(workloads: Iterable[WorkloadProgress], pods: Sequence[Pod]) -> Progress:
    """Return the progress of all workloads and pods."""
    phases = Counter("Terminating" if pod.metadata.deletion_timestamp else pod.status.phase for pod in pods)
    standalone = sorted((pod for pod in pods if controller_of(pod.metadata) is None), key=lambda pod: pod.key)
    return Progress(
        unready_standalone_pods=tuple(
            pod.key for pod in standalone if not is_ready(pod) and pod.status.phase != "Succeeded"
        ),
        failed_standalone_pods=tuple(
            f"pod/{pod.metadata.name} in {pod.metadata.namespace} failed: {pod_failure(pod)}"
            for pod in standalone
            if pod.status.phase == "Failed"
        ),
        refused_pods=tuple(_refusals(pods)),
        workloads=tuple(sorted(workloads, key=lambda workload: (workload.namespace, workload.title))),
        phases=tuple(sorted(phases.items())),
        pods=len(pods),
        bound=sum(bool(pod.spec.node_name) for pod in pods),
        ready=sum(is_ready(pod) for pod in pods),
    )


def _refusals(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield a message for each reason why pods can never start with their specs, with the first pod."""
    refused: dict[str, list[str]] = {}
    for pod in pods:
        if not is_ready(pod) and (refusal := _waiting_reason(pod, _REFUSALS)):
            refused.setdefault(refusal, []).append(f"{pod.metadata.name} in {pod.metadata.namespace}")
    for refusal, titles in refused.items():
        others = f" (and {len(titles) - 1} more)" if len(titles) > 1 else ""
        yield f"pod/{min(titles)}{others} cannot start: {refusal}"


def _waiting_reason(pod: Pod, reasons: Collection[str] = ()) -> str:
    """Return reason and message of the first waiting container; reasons: those that count, by default all but usual
    ones."""
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = (container.state or {}).get("waiting")
        reason = (waiting or {}).get("reason")
        if waiting and (reason in reasons if reasons else reason not in (None, "ContainerCreating", "PodInitializing")):
            return f"{reason}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def pod_failure(pod: Pod) -> str:
    """Return why a failed Pod has failed: its reason, or the exit codes of its containers."""
    if pod.status.reason or pod.status.message:
        return ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    exits = []
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        terminated = (status.state or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            exits.append(f"container {status.name} exited with code {terminated['exitCode']}")
    return ", ".join(exits) or "its status has no reason"


def unfinished_reasons(
    progress: Progress, pods: Sequence[Pod], warnings: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return why workloads are incomplete: their states, unless they have failed, and the messages of Pods.

    warnings: messages about pods, by uid, whose status has none.
    """
    reasons = [
        f"{workload.title} in {workload.namespace}: {workload.state}"
        for workload in progress.workloads
        if not workload.complete and not workload.failure
    ]
    pending: Counter[str] = Counter()
    first_pod: dict[str, str] = {}
    for pod in pods:
        reason = _reason(pod) or ("" if is_ready(pod) else warnings.get(pod.metadata.uid, ""))
        if reason:
            pending[reason] += 1
            first_pod.setdefault(reason, pod.key)
    for reason, count in pending.most_common(_MAX_REASONS):
        others = f" (and {count - 1} more)" if count > 1 else ""
        reasons.append(f"pod {first_pod[reason]}{others}: {reason}")
    return reasons


def _reason(pod: Pod) -> str:
    """Return why a Pod is not ready, from its conditions and container states; "" if they have no reason."""
    if is_ready(pod) or pod.metadata.deletion_timestamp:
        return ""
    if pod.status.phase == "Failed":
        return f"failed: {pod_failure(pod)}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return _waiting_reason(pod) or pod.status.message
