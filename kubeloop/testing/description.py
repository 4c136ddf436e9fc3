"""The state of a namespace as text, for the report of a failed wait or test. Pure functions of objects (and of a
function that explains a pending pod)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from kubeloop.kube.objects.api_types import Event, Pod
from kubeloop.kube.objects.object_fields import is_ready
from kubeloop.kube.objects.resources import Resource
from kubeloop.process.workload_progress import measure as measure_progress
from kubeloop.process.workload_progress import unfinished_reasons
from kubeloop.testing.wait_conditions import ReadOnlyJSON

ExplainPod = Callable[[Pod], Awaitable[str]]

_MAX_EVENTS = 8
_MAX_PODS = 10
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
_NODE_COUNTS = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable")


async def unmet_reasons(
    resource: Resource[Any],
    name: str,
    obj: ReadOnlyJSON | None,
    pods: Sequence[Pod],
    events: Sequence[Event],
    explain_pod: ExplainPod,
) -> list[str]:
    """Return why `obj` (None: it does not exist) does not meet a condition, a sentence per reason.

    `pods` and `events` are those of its namespace; pods of other workloads are left out if the object has a selector.
    """
    if obj is None:
        lines = [f"there is no {resource.singular} {name}"]
        return lines + event_lines([event for event in events if event.involved_object.name == name])
    lines = status_lines(obj)
    related = pods_of(resource, obj, pods)
    lines += unfinished_reasons(measure_progress([], related), related)
    lines += await pending_lines([pod for pod in related if not _has_scheduling_result(pod)], explain_pod)
    names = {pod.metadata.name for pod in related} | {name}
    involved_events = [event for event in events if event.involved_object.name in names or _owned_name(event, name)]
    return lines + event_lines(involved_events)


def status_lines(obj: ReadOnlyJSON) -> list[str]:
    """Return the object's state: unobserved generation, replica counts, phase, conditions."""
    status, metadata = obj.get("status") or {}, obj["metadata"]
    lines = []
    if metadata.get("deletionTimestamp"):
        waits = metadata.get("finalizers")
        lines.append(f"it is being deleted{f', with finalizers {chr(44).join(waits)}' if waits else ''}")
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    # this cluster's own controllers report observedGeneration; those of a custom resource may not
    awaited = observed is not None or str(obj.get("apiVersion", "")) in ("apps/v1", "v1")
    if awaited and generation and (observed or 0) < generation and "replicas" in (obj.get("spec") or {}):
        lines.append(f"no controller has observed generation {generation} yet")
    counts = [f"{name} {status[name]}" for name in _COUNTS if name in status]
    if counts and "replicas" in (obj.get("spec") or {}):
        lines.append(f"desired {obj['spec']['replicas']}: {', '.join(counts)}")
    elif _NODE_COUNTS[0] in status:
        lines.append(", ".join(f"{name} {status.get(name, 0)}" for name in _NODE_COUNTS))
    elif status.get("phase"):
        lines.append(f"phase {status['phase']}")
    for condition in status.get("conditions") or ():
        text = f"condition {condition.get('type')}={condition.get('status')}"
        reason = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
        lines.append(f"{text} ({reason})" if reason else text)
    return lines


def pods_of(resource: Resource[Any], obj: ReadOnlyJSON, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of an object: itself, those its selector matches, else all of its namespace."""
    if resource.kind == "Pod":
        return [pod for pod in pods if pod.metadata.name == obj["metadata"]["name"]]
    selector = (obj.get("spec") or {}).get("selector")
    labels = selector.get("matchLabels", selector) if isinstance(selector, Mapping) else None
    if not labels or not all(isinstance(value, str) for value in labels.values()):
        return list(pods)
    return [pod for pod in pods if labels.items() <= pod.metadata.labels.items()]


async def pending_lines(pods: Iterable[Pod], explain_pod: ExplainPod) -> list[str]:
    """Return the scheduler's explanation of unscheduled pods."""
    unscheduled = [pod for pod in pods if not pod.spec.node_name and not pod.metadata.deletion_timestamp]
    lines = [f"pod {pod.key}: {await explain_pod(pod)}" for pod in unscheduled[:3]]
    return lines + ([f"and {len(unscheduled) - 3} more pods without a node"] if len(unscheduled) > 3 else [])


def event_lines(events: Sequence[Event]) -> list[str]:
    """Return the last events, one line per group of equal events on objects of one kind."""
    groups_by_content: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        content = (event.type, event.reason, event.involved_object.kind, _message_without_names(event))
        groups_by_content.setdefault(content, []).append(event)
    groups = sorted(groups_by_content.values(), key=lambda group: events.index(group[-1]))
    omitted = len(groups) - _MAX_EVENTS
    lines = [f"({omitted} kinds of earlier events)"] if omitted > 0 else []
    for group in groups[-_MAX_EVENTS:]:
        last = group[-1]
        involved = last.involved_object
        others = f" and {len(group) - 1} more" if len(group) > 1 else f" (x{last.count})" if last.count > 1 else ""
        lines.append(f"event {last.type} {last.reason} {involved.kind.lower()}/{involved.name}{others}: {last.message}")
    return lines


def _message_without_names(event: Event) -> str:
    """Return the message without names that differ from pod to pod."""
    return event.message.replace(event.involved_object.name, "").partition("created pod:")[0].split(" to ")[0]


def pod_lines(pods: Sequence[Pod]) -> list[str]:
    """Return a summary line per pod, those that are not ready first."""
    ordered = sorted(pods, key=lambda pod: (is_ready(pod), pod.metadata.name))
    lines = []
    for pod in ordered[:_MAX_PODS]:
        phase = "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase
        ready = "ready" if is_ready(pod) else "not ready"
        lines.append(f"pod/{pod.metadata.name} {phase}, {ready}, on {pod.spec.node_name or 'no node'}")
    return lines + ([f"and {len(pods) - _MAX_PODS} more pods"] if len(pods) > _MAX_PODS else [])


def trace_lines(trace: ReadOnlyJSON) -> list[str]:
    """Return a summary of a pod's trace, one line per span under its root."""
    from rich.console import Console

    from kubeloop.tracing.views.waterfall import waterfall

    console = Console(width=110, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(waterfall(dict(trace)))
    return captured.get().rstrip().splitlines()


def _has_scheduling_result(pod: Pod) -> bool:
    return bool(pod.spec.node_name) or any(
        condition.type == "PodScheduled" and condition.status == "False" for condition in pod.status.conditions
    )


def _owned_name(event: Event, name: str) -> bool:
    return event.involved_object.name.startswith(f"{name}-")
