"""The Workload and the PodGroup of a Job whose Pods are scheduled as a gang (feature gate WorkloadWithJob).

A Job without such objects, or with those of another owner, has Pods without a PodGroup. Source: v1.36
pkg/controller/job/job_scheduling_manager.go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from kubeloop.controllers.job.job_fields import is_indexed
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.revisions.name_hash import fnv1a_32, safe_encode
from kubeloop.kube.objects.api_types import Job, JSONValue, Object, Pod
from kubeloop.kube.objects.object_fields import controller_of, controller_reference
from kubeloop.kube.objects.resources import POD_GROUPS, WORKLOADS
from kubeloop.kube.objects.workload_types import PodGroup, Workload
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

_BY_JOB, _BY_WORKLOAD = "workload by Job", "pod group by Workload"
_MAX_NAME_LENGTH = 253
_ObjectT = TypeVar("_ObjectT", bound=Object)


class JobScheduling:
    """Finds or creates the Workload and the PodGroup of Jobs."""

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._events = context.client, context.events
        workloads, pod_groups = context.informers.informer(WORKLOADS), context.informers.informer(POD_GROUPS)
        self._informers = (workloads, pod_groups)
        self._workloads, self._pod_groups = workloads.store, pod_groups.store
        self._workloads.add_index(_BY_JOB, _job_keys)
        self._pod_groups.add_index(_BY_WORKLOAD, _workload_keys)

    async def wait_synced(self) -> None:
        for informer in self._informers:
            await informer.wait_synced()

    async def pod_group_of(self, job: Job, pods: Sequence[Pod], reconcile: Reconcile) -> str | None:
        """Return the name of the PodGroup of new Pods of the Job, None if they have none; create it if necessary.

        pods: of the Job. Raises the error of a request, AlreadyExists while the cache lacks an object.
        """
        if not is_gang(job):
            return None
        workloads = self._workloads.by_index(_BY_JOB, job.key)
        if workloads:
            workload = _owned(job, workloads)
        elif is_new(job, pods):
            workload = await self._create(job, WORKLOADS, workload_body(job), reconcile)
            message = f"Created Workload {workload.metadata.name} for Job {job.metadata.name}"
            self._events.event(job, "Normal", "WorkloadCreated", message)
        else:
            return None
        if workload is None or len(workload.spec.pod_group_templates) != 1:
            return None
        pod_groups = self._pod_groups.by_index(_BY_WORKLOAD, workload.key)
        if pod_groups:
            pod_group = _owned(job, pod_groups)
        else:
            pod_group = await self._create(job, POD_GROUPS, pod_group_body(job, workload), reconcile)
        return None if pod_group is None else pod_group.metadata.name

    async def _create(self, job: Job, resource: Any, body: JSONValue, reconcile: Reconcile) -> Any:
        with reconcile.action_span(f"create {resource.kind} {body['metadata']['name']}"):
            return await self._client.create(resource, body, job.metadata.namespace)


def is_gang(job: Job) -> bool:
    """Return True if all Pods of the Job run at the same time and have no PodGroup of the user."""
    spec = job.spec
    parallelism = spec.parallelism or 0
    has_group = (spec.template.get("spec") or {}).get("schedulingGroup") is not None
    return parallelism > 1 and is_indexed(job) and spec.completions == parallelism and not has_group


def is_new(job: Job, pods: Sequence[Pod]) -> bool:
    """Return True if the Job has never started. One that is older than the feature gate stays without Workload."""
    status = job.status
    started = pods or status.start_time is not None or status.succeeded or status.failed
    return not started and all(condition.type != "Suspended" for condition in status.conditions)


def workload_body(job: Job) -> dict[str, JSONValue]:
    """Return the Workload of a Job, to be created in its namespace."""
    name = job.metadata.name
    template = {"name": f"{name}-pgt-0", "schedulingPolicy": {"gang": {"minCount": job.spec.parallelism}}}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": workload_name(job), "ownerReferences": [controller_reference(job)]},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name},
            "podGroupTemplates": [template],
        },
    }


def pod_group_body(job: Job, workload: Workload) -> dict[str, JSONValue]:
    """Return the PodGroup of a Job from the only template of its Workload, to be created in its namespace."""
    (template,) = workload.spec.pod_group_templates
    name, uid = workload.metadata.name, workload.metadata.uid
    owner = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "name": name, "uid": uid}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": pod_group_name(name, template.name),
            "ownerReferences": [controller_reference(job), owner],
        },
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": template.name}},
            "schedulingPolicy": msgspec.to_builtins(template.scheduling_policy),
        },
    }


def workload_name(job: Job) -> str:
    """Return the name of a Job's Workload: that of the Job, as far as it fits, and a hash of its UID."""
    suffix = safe_encode(fnv1a_32(f"(types.UID){job.metadata.uid}".encode()))
    return f"{job.metadata.name[: _MAX_NAME_LENGTH - len(suffix) - 1]}-{suffix}"


def pod_group_name(workload: str, template: str) -> str:
    """Return the name of a PodGroup: those of Workload and template, as far as they fit, and a hash of both."""
    suffix = safe_encode(fnv1a_32(f"{workload}{template}".encode()))
    available = _MAX_NAME_LENGTH - len(suffix) - 2
    template_length = min(len(template), max(available // 2, available - len(workload)))
    return f"{workload[: available - template_length]}-{template[:template_length]}-{suffix}"


def _owned(job: Job, objects: Sequence[_ObjectT]) -> _ObjectT | None:
    """Return the only object, None if the Job does not own it or if there are several."""
    if len(objects) > 1:
        names = ", ".join(sorted(obj.metadata.name for obj in objects))
        log.error("several objects refer to one, Pods have no PodGroup", extra={"job": job.key, "objects": names})
        return None
    owner = controller_of(objects[0].metadata)
    return objects[0] if owner is not None and owner.uid == job.metadata.uid else None


def _job_keys(workload: Workload) -> Iterable[str]:
    reference = workload.spec.controller_ref
    if reference is None or (reference.api_group, reference.kind) != ("batch", "Job"):
        return ()
    return (f"{workload.metadata.namespace}/{reference.name}",)


def _workload_keys(pod_group: PodGroup) -> Iterable[str]:
    reference = pod_group.spec.pod_group_template_ref
    if reference is None or reference.workload is None:
        return ()
    return (f"{pod_group.metadata.namespace}/{reference.workload.workload_name}",)
