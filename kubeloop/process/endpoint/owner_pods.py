"""Pods of an owner, and the one of them that `kubeloop explain` explains."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import controller_of, is_finished
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.trace_targets import Target, resolve, similar_names
from kubeloop.tracing.spans.owners import deployment_name, plural_kind

_CRON_JOB = CRON_JOBS.kind.lower()


async def cron_job_runs(client: ApiClient, owner: Target) -> frozenset[str]:
    """Return the names of the Jobs of a CronJob; none for an owner of another kind.

    Raises UserError if the client may not list Jobs, ServerUnreachable.
    """
    if owner.kind != _CRON_JOB:
        return frozenset()
    runs = await _runs_of_cron_jobs(client, owner.namespace)
    return frozenset(run for _, run, cron_job in runs if cron_job == owner.name)


async def _runs_of_cron_jobs(client: ApiClient, namespace: str) -> list[tuple[str, str, str]]:
    """Return namespace and name of each Job of a CronJob, and the name of the CronJob."""
    try:
        jobs = (await client.list(JOBS, namespace)).items
    except ApiError as error:
        hint = "the user needs this permission; see kubectl auth can-i list jobs"
        raise UserError(f"cannot list jobs: {error}", hint=hint) from None
    controllers = ((job.metadata, controller_of(job.metadata)) for job in jobs)
    return [
        (job.namespace, job.name, controller.name)
        for job, controller in controllers
        if controller is not None and controller.kind == CRON_JOBS.kind
    ]


async def find_owner(client: ApiClient, owner: Target, pods: Iterable[Pod]) -> tuple[Target, list[Pod]]:
    """Return an owner with its namespace, and its pods, sorted by name.

    Without a namespace, it is the one that resolve() selects. pods: of this namespace, or of all. Raises UserError if
    the owner has no pods, or in several namespaces, and as cron_job_runs().
    """
    pods = [*pods]
    if not owner.namespace:
        if owner.kind == _CRON_JOB:
            existing = {(namespace, name) for namespace, _, name in await _runs_of_cron_jobs(client, "")}
        else:
            existing = {(pod.metadata.namespace, name) for pod in pods for name in _owner_names(owner.kind, pod)}
        namespace = resolve(owner.kind, owner.name, "", existing, incomplete="owners without pods are unknown here")
        owner = Target(owner.kind, owner.name, namespace)
    return owner, pods_of(owner, pods, await cron_job_runs(client, owner))


def pods_of(owner: Target, pods: Iterable[Pod], runs: Collection[str] = ()) -> list[Pod]:
    """Return the owner's pods, sorted by name. runs: the Jobs of a CronJob. Raises UserError if there are none."""
    pods = [*pods]
    owned = [pod for pod in pods if pod.metadata.namespace == owner.namespace and _owns(owner, pod, runs)]
    if not owned:
        existing = {(pod.metadata.namespace, name) for pod in pods for name in _owner_names(owner.kind, pod)}
        describe = f"kubectl describe {owner.kind}/{owner.name} -n {owner.namespace} shows whether it exists, and why"
        raise UserError(f"{owner} has no pods", hint=similar_names(owner.name, owner.namespace, existing) or describe)
    return sorted(owned, key=lambda pod: pod.key)


def _owns(owner: Target, pod: Pod, runs: Collection[str]) -> bool:
    if runs:
        return any(name in runs for name in _owner_names(JOBS.kind.lower(), pod))
    return owner.name in _owner_names(owner.kind, pod)


def _owner_names(kind: str, pod: Pod) -> list[str]:
    """Return the name of the pod's owner of this kind, if it has one."""
    controller = controller_of(pod.metadata)
    if controller is None:
        return []
    if kind == "deployment":
        template_hash = pod.metadata.labels.get("pod-template-hash", "")
        name = deployment_name(controller.kind, controller.name, template_hash)
        return [name] if name else []
    own_kind = controller.kind.lower()
    return [controller.name] if kind in (own_kind, plural_kind(own_kind)) else []


def first_pending(pods: Iterable[Pod]) -> Pod | None:
    """Return the first pod that waits for a node."""
    return next((pod for pod in pods if _is_pending(pod)), None)


def owner_document(owner: Target, pods: Collection[Pod]) -> dict[str, Any]:
    """Return the owner's part of an explanation, as JSON."""
    return {"owner": {"name": str(owner), "pods": len(pods), "pending": sum(map(_is_pending, pods))}}


def _is_pending(pod: Pod) -> bool:
    return not pod.spec.node_name and not is_finished(pod) and pod.metadata.deletion_timestamp is None
