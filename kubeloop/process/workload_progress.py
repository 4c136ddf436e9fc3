"""What `kubeloop up` shows and decides: how far the workloads of a cluster are, as pure functions of its objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kubeloop.kube.objects.api_types import Deployment, Pod, ReplicationController


class WorkloadProgress(msgspec.Struct, frozen=True):
    """One Deployment or ReplicationController. `title` is "deployment.apps/web"; counts are Pods."""

    title: str
    namespace: str
    name: str
    replicas: int
    available: int
    complete: bool


class Progress(msgspec.Struct, frozen=True):
    """A moment of the whole cluster."""

    workloads: tuple[WorkloadProgress, ...]
    unready_lone_pods: tuple[str, ...]  # "namespace/name" of Pods without a controller that are not ready
    phases: tuple[tuple[str, int], ...]
    pods: int
    bound: int
    ready: int

    @property
    def complete(self) -> bool:
        """Every Deployment and ReplicationController is."""
        return all(workload.complete for workload in self.workloads)

    @property
    def everything_available(self) -> bool:
        """Complete, and the Pods that somebody made by hand are ready, too."""
        return self.complete and not self.unready_lone_pods

    def line(self) -> str:
        """One line for a log: "3/4 deployments complete; 40 pods: 38 bound, 35 ready (Pending 5, Running 35)"."""
        done = sum(workload.complete for workload in self.workloads)
        phases = ", ".join(f"{phase} {count}" for phase, count in self.phases)
        return (
            f"{done}/{len(self.workloads)} workloads complete; {self.pods} pods: {self.bound} bound, {self.ready} ready"
            + (f" ({phases})" if phases else "")
        )


def is_ready(pod: Pod) -> bool:
    """The condition Ready."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def deployment_progress(deployment: Deployment) -> WorkloadProgress:
    """Complete by the rules of `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go)."""
    metadata, status = deployment.metadata, deployment.status
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    complete = (
        status.observed_generation >= metadata.generation
        and status.updated_replicas >= replicas
        and status.replicas <= status.updated_replicas
        and status.available_replicas >= status.updated_replicas
    )
    title = f"deployment.apps/{metadata.name}"
    return WorkloadProgress(title, metadata.namespace, metadata.name, replicas, status.available_replicas, complete)


def controller_progress(controller: ReplicationController) -> WorkloadProgress:
    """Complete when as many Pods are available as are wanted."""
    metadata, status = controller.metadata, controller.status
    replicas = 1 if controller.spec.replicas is None else controller.spec.replicas
    complete = (
        status.observed_generation >= metadata.generation
        and status.replicas == replicas
        and status.available_replicas == replicas
    )
    title = f"replicationcontroller/{metadata.name}"
    return WorkloadProgress(title, metadata.namespace, metadata.name, replicas, status.available_replicas, complete)


def measure(
    deployments: Iterable[Deployment], controllers: Iterable[ReplicationController], pods: Sequence[Pod]
) -> Progress:
    """How far everything is."""
    workloads = [deployment_progress(each) for each in deployments] + [
        controller_progress(each) for each in controllers
    ]
    phases = Counter("Terminating" if pod.metadata.deletion_timestamp else pod.status.phase for pod in pods)
    lone = (pod for pod in pods if not any(owner.controller for owner in pod.metadata.owner_references))
    return Progress(
        unready_lone_pods=tuple(
            sorted(pod.key for pod in lone if not is_ready(pod) and pod.status.phase != "Succeeded")
        ),
        workloads=tuple(sorted(workloads, key=lambda workload: (workload.namespace, workload.title))),
        phases=tuple(sorted(phases.items())),
        pods=len(pods),
        bound=sum(bool(pod.spec.node_name) for pod in pods),
        ready=sum(is_ready(pod) for pod in pods),
    )


def unfinished_reasons(progress: Progress, pods: Sequence[Pod], *, most: int = 5) -> list[str]:
    """Why it is not complete, a sentence each: workloads that lack Pods, and what their pending Pods say."""
    reasons = [
        f"{workload.title} in {workload.namespace}: {workload.available} of {workload.replicas} available"
        for workload in progress.workloads
        if not workload.complete
    ]
    pending: Counter[str] = Counter()
    example: dict[str, str] = {}
    for pod in pods:
        problem = _problem(pod)
        if problem:
            pending[problem] += 1
            example.setdefault(problem, pod.key)
    for problem, count in pending.most_common(most):
        others = f" (and {count - 1} more)" if count > 1 else ""
        reasons.append(f"pod {example[problem]}{others}: {problem}")
    return reasons


def _problem(pod: Pod) -> str:
    """What keeps this Pod from being ready, in its own words; "" if it says nothing."""
    if is_ready(pod) or pod.metadata.deletion_timestamp:
        return ""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    for container in pod.status.container_statuses:
        waiting = (container.state or {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return pod.status.message
