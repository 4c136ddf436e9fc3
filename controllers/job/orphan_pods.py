"""Removal of the tracking finalizer from Pods that no unfinished Job tracks.

Source: syncOrphanPod in v1.36 pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.job.job_fields import external_manager, has_tracking_finalizer
from kubeloop.controllers.job.job_sync import finalizer_removal
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.owner_references import cached_controller
from kubeloop.controllers.runtime.queue.rate_limiter import RateLimiter
from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import Job, Pod
from kubeloop.kube.objects.object_fields import controller_of, job_finished_condition
from kubeloop.kube.objects.resources import JOBS, PODS


def is_orphan(pod: Pod, job: Job | None) -> bool:
    """Return True if no Job tracks the Pod any more, so that its finalizer is to be removed.

    job: the Pod's controller, if it is cached.
    """
    if not has_tracking_finalizer(pod):
        return False
    reference = controller_of(pod.metadata)
    if reference is not None and (reference.kind != JOBS.kind or reference.api_version != JOBS.api_version):
        return False  # not a Job's
    if job is None:
        return True
    return external_manager(job) is None and job_finished_condition(job) is not None


class OrphanPods(EventDrivenController):
    """Queue of Pods that may have lost their Job, and its workers."""

    def __init__(self, context: ControllerContext, jobs: Store[Job], pods: Store[Pod], limiter: RateLimiter) -> None:
        super().__init__(context, "job-orphan-pod", "job_orphan_pod", limiter)
        self._traces = context.traces
        self._jobs, self._pods = jobs, pods
        self._registrations = ()

    def add(self, pod: Pod) -> None:
        """Look at the Pod again, if it has the finalizer."""
        if has_tracking_finalizer(pod):
            self.queue.add(pod.key)

    async def reconcile(self, key: str) -> float | None:
        """Remove the finalizer of Pod `key` if it is an orphan. An exception means: retry with backoff."""
        pod = self._pods.get(key)
        if pod is None or not is_orphan(pod, cached_controller(self._jobs, JOBS.kind, pod)):
            return None
        action = f"remove the finalizer of pod {pod.metadata.name}"
        with (
            self._traces.reconcile("job-orphan-pod", key) as reconcile,
            suppress(NotFound),
            reconcile.action_span(action),
        ):
            await patch_object(self._client, PODS, pod, finalizer_removal(pod), PatchType.STRATEGIC)
        return None
