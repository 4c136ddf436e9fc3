"""Pods that a sync creates or deletes, and the JSON of the Pods.

Pure functions. Source: manageJob in v1.36 pkg/controller/job/job_controller.go, indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from kubeloop.controllers.job.indexes import IndexSet, index_set
from kubeloop.controllers.job.job_fields import (
    COMPLETION_INDEX,
    TRACKING_FINALIZER,
    completion_index,
    is_indexed,
    replaces_only_failed_pods,
)
from kubeloop.controllers.job.job_state import JobState
from kubeloop.controllers.job.policies.backoff_limit_per_index import failure_annotations, seconds_to_replacement
from kubeloop.controllers.job.policies.pod_backoff import remaining_seconds
from kubeloop.controllers.runtime.pods.active_pod_order import active_pod_sort_key
from kubeloop.controllers.runtime.pods.pod_availability import is_terminating
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.kube.objects.api_types import JSONValue, Pod

MAX_PODS_PER_SYNC = 500
_MAX_GENERATE_NAME = 58
_INDEX_ENV = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
}


class JobPodPlan(msgspec.Struct, frozen=True):
    """Pods to delete or to create; never both in one sync.

    indexes: of an Indexed Job, those of the Pods to create. wait_seconds: time until failed Pods may be replaced.
    """

    delete: Sequence[Pod] = ()
    create: int = 0
    indexes: Sequence[int] = ()
    wait_seconds: float = 0.0


def plan_pods(state: JobState, now: datetime) -> JobPodPlan:
    """Return the Pods to delete or create so that the required number is active."""
    job, active = state.job, len(state.active)
    if job.spec.suspend:
        return JobPodPlan(delete=_to_delete(state, active))
    desired = _desired_active(state)
    surplus = _to_delete(state, max(0, active - desired))[:MAX_PODS_PER_SYNC]
    if surplus:
        return JobPodPlan(delete=surplus)
    terminating = state.terminating if replaces_only_failed_pods(job) else 0
    missing = desired - terminating - active
    if missing <= 0:
        return JobPodPlan()
    per_index = job.spec.backoff_limit_per_index is not None
    if not per_index and (seconds := remaining_seconds(state.backoff, now)) > 0:
        return JobPodPlan(wait_seconds=seconds)
    missing = min(missing, MAX_PODS_PER_SYNC)
    if not is_indexed(job):
        return JobPodPlan(create=missing)
    indexes = _pending_indexes(state, missing)
    if per_index:
        waits = {index: seconds_to_replacement(state.replaced.get(index), now) for index in indexes}
        indexes = [index for index in indexes if waits[index] == 0]
        if waits and not indexes:
            return JobPodPlan(wait_seconds=min(waits.values()))
    return JobPodPlan(create=len(indexes), indexes=indexes)


def pod_bodies(state: JobState, plan: JobPodPlan, pod_group: str | None = None) -> Iterator[dict[str, JSONValue]]:
    """Return the Pods to create, as JSON. They share values. pod_group: name of their PodGroup."""
    job = state.job
    body = pod_from_template(job, job.spec.template)
    if pod_group is not None:
        body["spec"] = {**body["spec"], "schedulingGroup": {"podGroupName": pod_group}}
    metadata = body["metadata"]
    finalizers = metadata.get("finalizers") or []
    metadata["finalizers"] = finalizers if TRACKING_FINALIZER in finalizers else [*finalizers, TRACKING_FINALIZER]
    if not is_indexed(job):
        for _ in range(plan.create):
            yield body
        return
    spec = _with_index_variable(body["spec"])
    for index in plan.indexes:
        annotations = {COMPLETION_INDEX: str(index)}
        if job.spec.backoff_limit_per_index is not None:
            annotations |= failure_annotations(job, state.replaced.get(index))
        indexed = {
            **metadata,
            "generateName": _generate_name(job.metadata.name, index),
            "labels": {**metadata.get("labels", {}), COMPLETION_INDEX: str(index)},
            "annotations": {**metadata.get("annotations", {}), **annotations},
        }
        yield {**body, "metadata": indexed, "spec": {**spec, "hostname": f"{job.metadata.name}-{index}"}}


def _desired_active(state: JobState) -> int:
    spec, active = state.job.spec, len(state.active)
    parallelism = spec.parallelism or 0
    if spec.completions is None:  # a work queue: after the first success, no Pod is started or deleted
        return active if state.succeeded > 0 else parallelism
    return max(0, min(parallelism, spec.completions - state.succeeded))


def _to_delete(state: JobState, at_least: int) -> list[Pod]:
    """Return active Pods to delete: those without a valid index, repeated ones, and then `at_least` in all."""
    surplus: list[Pod] = []
    remaining = list(state.active)
    if is_indexed(state.job):
        surplus, remaining = _split_repeated(remaining, state.job.spec.completions or 0)
    if len(surplus) < at_least:
        surplus += sorted(remaining, key=active_pod_sort_key)[: at_least - len(surplus)]
    return surplus


def _split_repeated(pods: Sequence[Pod], completions: int) -> tuple[list[Pod], list[Pod]]:
    """Return the Pods whose index is invalid or has a better Pod, and one Pod per valid index."""
    by_index: dict[int, list[Pod]] = {}
    invalid: list[Pod] = []
    for pod in pods:
        index = completion_index(pod)
        if index is None or index >= completions:
            invalid.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    repeated: list[Pod] = []
    remaining: list[Pod] = []
    for _, same in sorted(by_index.items()):
        *worse, best = sorted(same, key=active_pod_sort_key)
        repeated += worse
        remaining.append(best)
    return sorted(invalid, key=active_pod_sort_key) + repeated, remaining


def _pending_indexes(state: JobState, count: int) -> list[int]:
    """Return the first indexes that have neither succeeded nor failed, and that no Pod occupies."""
    occupied = list(state.active)
    if replaces_only_failed_pods(state.job):
        occupied += filter(is_terminating, state.pods)
    taken = index_set({index for pod in occupied if (index := completion_index(pod)) is not None})
    taken |= state.succeeded_indexes
    taken |= state.failed_indexes or IndexSet()
    return taken.first_missing(count, state.job.spec.completions or 0)


def _generate_name(job_name: str, index: int) -> str:
    suffix = f"-{index}-"
    return job_name[: _MAX_GENERATE_NAME - len(suffix)] + suffix


def _with_index_variable(spec: dict[str, JSONValue]) -> dict[str, JSONValue]:
    """Return the Pod spec with the variable JOB_COMPLETION_INDEX in each container that does not define it."""
    changed = dict(spec)
    for field in ("initContainers", "containers"):
        if spec.get(field):
            changed[field] = [_with_variable(container) for container in spec[field]]
    return changed


def _with_variable(container: dict[str, JSONValue]) -> dict[str, JSONValue]:
    variables = container.get("env") or []
    if any(variable["name"] == _INDEX_ENV["name"] for variable in variables):
        return container
    return {**container, "env": [*variables, _INDEX_ENV]}
