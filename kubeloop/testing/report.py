"""Report of a failed test on its namespace: summary of the objects, pending pods, events and the slowest trace."""

from __future__ import annotations

import asyncio

from kubeloop.kube.errors import ApiError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.process.workload_progress import measure as measure_progress
from kubeloop.process.workload_progress import unfinished_reasons
from kubeloop.testing.description import event_lines, pending_lines, pod_lines, status_lines, trace_lines
from kubeloop.testing.operations import Operations

_SECONDS = 5.0
_MAX_NAMES = 10
_OMITTED = frozenset({"pods", "events", "endpointslices", "endpoints", "leases", "controllerrevisions"})
_DEFAULT_OBJECTS = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}


async def report_lines(operations: Operations) -> list[str]:
    """Return the lines of the report. Raises TimeoutError if the cluster is too slow, and what `Client` raises."""
    async with asyncio.timeout(_SECONDS):
        return await _lines(operations)


async def _lines(operations: Operations) -> list[str]:
    pods, events = await operations.pods(), await operations.events()
    lines = ["objects:"]
    for resource in await operations.kinds():
        if resource.plural not in _OMITTED:
            lines += [f"  {line}" for line in await _objects(operations, resource)]
    lines += [f"  {line}" for line in pod_lines(pods)]
    if len(lines) == 1:
        lines = ["the namespace is empty"]
    unscheduled = [pod for pod in pods if not pod.spec.node_name]
    reasons = unfinished_reasons(measure_progress([], pods), pods)
    reasons = reasons or await pending_lines(unscheduled, operations.pending_reason)
    lines += ["pending:", *(f"  {reason}" for reason in reasons)] if reasons else []
    lines += ["last events:", *(f"  {line}" for line in event_lines(events))] if events else []
    try:
        trace = await operations.slowest_trace()
    except LookupError:
        return lines
    return [*lines, "slowest trace:", *(f"  {line}" for line in trace_lines(trace))]


async def _objects(operations: Operations, resource: Resource[JSON]) -> list[str]:
    try:
        page = await operations.client.list(resource, operations.namespace)
    except ApiError:
        return []  # a kind without list
    objects = [obj for obj in page.items if (resource.kind, obj["metadata"]["name"]) not in _DEFAULT_OBJECTS]
    lines = []
    for obj in objects[:_MAX_NAMES]:
        state = "; ".join(line for line in status_lines(obj) if not line.startswith("condition"))
        lines.append(f"{resource.singular}/{obj['metadata']['name']}{f': {state}' if state else ''}")
    return lines + ([f"and {len(objects) - _MAX_NAMES} more {resource.plural}"] if len(objects) > _MAX_NAMES else [])
