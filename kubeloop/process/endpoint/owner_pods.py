"""Pods of an owner, and the one of them that `kubeloop explain` explains."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.errors import ApiError, UserError
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import controller_of, is_finished
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.spans.owners import deployment_name, plural_kind


async def cron_job_runs(client: Client, owner: Target) -> frozenset[str]:
    """Return the names of the Jobs of a CronJob; none for an owner of another kind.

    Raises UserError if the client may not list Jobs, ServerUnreachable.
    """
    if owner.kind != CRON_JOBS.kind.lower():
        return frozenset()
    try:
        jobs = (await client.list(JOBS, owner.namespace)).items
    except ApiError as error:
        hint = "the user needs this permission; see kubectl auth can-i list jobs"
        raise UserError(f"cannot list jobs: {error}", hint=hint) from None
    controllers = ((job.metadata.name, controller_of(job.metadata)) for job in jobs)
    return frozenset(
        name
        for name, controller in controllers
        if controller is not None and (controller.kind, controller.name) == (CRON_JOBS.kind, owner.name)
    )


def pods_of(owner: Target, pods: Iterable[Pod], runs: Collection[str] = ()) -> list[Pod]:
    """Return the owner's pods, sorted by name. runs: the Jobs of a CronJob. Raises UserError if there are none."""
    owned = [pod for pod in pods if pod.metadata.namespace == owner.namespace and _owns(owner, pod, runs)]
    if not owned:
        raise UserError(
            f"{owner} has no pods",
            hint=f"kubectl describe {owner.kind}/{owner.name} -n {owner.namespace} shows whether it exists, and why",
        )
    return sorted(owned, key=lambda pod: pod.key)


def _owns(owner: Target, pod: Pod, runs: Collection[str]) -> bool:
    controller = controller_of(pod.metadata)
    if controller is None:
        return False
    kind = controller.kind.lower()
    if owner.kind == "deployment":
        template_hash = pod.metadata.labels.get("pod-template-hash", "")
        return deployment_name(controller.kind, controller.name, template_hash) == owner.name
    if runs:
        return kind == JOBS.kind.lower() and controller.name in runs
    return owner.kind in (kind, plural_kind(kind)) and controller.name == owner.name


def first_pending(pods: Iterable[Pod]) -> Pod | None:
    """Return the first pod that waits for a node."""
    return next((pod for pod in pods if _is_pending(pod)), None)


def owner_document(owner: Target, pods: Collection[Pod]) -> dict[str, Any]:
    """Return the owner's part of an explanation, as JSON."""
    return {"owner": {"name": str(owner), "pods": len(pods), "pending": sum(map(_is_pending, pods))}}


def _is_pending(pod: Pod) -> bool:
    return not pod.spec.node_name and not is_finished(pod) and pod.metadata.deletion_timestamp is None
