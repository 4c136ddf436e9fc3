"""/metrics/resources: resource requests and limits of each pod, as kube-scheduler exports them.

Source: pkg/scheduler/metrics/resources of v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.process.endpoint.server import RawResponse
from kubeloop.scheduler.cache.pod_requests import pod_limits, pod_requests

_BATCH_SIZE = 200  # pods between turns of other tasks
_HELP = (
    "Resources {what} on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet "
    "expect per pod for resources along with the unit for the resource if any."
)


async def pod_resources(pods: Iterable[Pod]) -> RawResponse:
    """Return kube_pod_resource_request and kube_pod_resource_limit of all pods that have not terminated."""
    requests: list[str] = []
    limits: list[str] = []
    for number, pod in enumerate(pods):
        if number % _BATCH_SIZE == _BATCH_SIZE - 1:
            await asyncio.sleep(0)
        if pod.spec.node_name and is_finished(pod):
            continue
        requests += _samples("kube_pod_resource_request", pod, pod_requests(pod, use_status=True))
        limits += _samples("kube_pod_resource_limit", pod, pod_limits(pod))
    lines = [
        *_head("kube_pod_resource_limit", _HELP.format(what="limit for workloads")),
        *limits,
        *_head("kube_pod_resource_request", _HELP.format(what="requested by workloads")),
        *requests,
    ]
    return RawResponse(("\n".join(lines) + "\n").encode(), "text/plain")


def _head(name: str, help_: str) -> tuple[str, str]:
    return f"# HELP {name} [STABLE] {help_}", f"# TYPE {name} gauge"


def _samples(name: str, pod: Pod, quantities: dict[str, int]) -> Iterator[str]:
    priority = "" if pod.spec.priority is None else str(pod.spec.priority)
    for resource, quantity in sorted(quantities.items()):
        if not quantity:
            continue
        labels = {
            "namespace": pod.metadata.namespace,
            "pod": pod.metadata.name,
            "node": pod.spec.node_name,
            "scheduler": pod.spec.scheduler_name,
            "priority": priority,
            "resource": resource,
            "unit": _unit(resource),
        }
        value = quantity / 1000 if resource == "cpu" else float(quantity)
        written = ",".join(f'{label}="{text}"' for label, text in labels.items())
        yield f"{name}{{{written}}} {value!r}"


def _unit(resource: str) -> str:
    if resource == "cpu":
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer"
