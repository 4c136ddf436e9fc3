"""Title of a span, and text of its attributes. Imports `time_format` and the standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeloop.tracing.views.time_format import format_duration

_REJECTED = "kubeloop.rejected."
_BY_US = ("create", "reserve", "permit", "pre-bind", "bind", "placement")

_CONTAINER_SPANS = (
    *("init container", "container start", "startup probe", "readiness probe"),
    *("container run", "container restart", "crash back-off"),
)
_OBJECT_ATTRIBUTES = {
    "image pull": "container.image.name",
    "image pull back-off": "container.image.name",
    **dict.fromkeys(_CONTAINER_SPANS, "k8s.container.name"),
}
_EXPLAINED = (
    *("not followed", "not recorded", "not observed", "gated", "unschedulable", "preemption wait", "start sandbox"),
    *("startup probe", "readiness probe", "group wait", "group attempt"),
)

Span = Mapping[str, Any]


def title(span: Span) -> str:
    """Return the name of a span with its object: names alone have low cardinality."""
    attributes, name = span["attributes"], str(span["name"])
    if name == "pod":
        pod = attributes.get("k8s.pod.name") or "(never created)"
        return f"pod {attributes.get('k8s.namespace.name', '')}/{pod}"
    if name == "pod group":
        return f"pod group {attributes.get('k8s.namespace.name', '')}/{attributes.get('kubeloop.pod_group.name', '')}"
    if name == "placement":
        return f"placement {attributes.get('kubeloop.placement', '')}"
    if name in ("scheduling attempt", "group attempt") and "kubeloop.attempt" in attributes:
        return f"{name} {attributes['kubeloop.attempt']}"
    if name == "apply":  # of `kubeloop up -f`: the command, or the request of one object
        applied = attributes.get("kubeloop.kind"), attributes.get("k8s.namespace.name"), attributes.get("kubeloop.name")
        objects = attributes.get("kubeloop.objects")
        if applied[2]:
            return f"apply {applied[0]} {'/'.join(filter(None, applied[1:]))}"
        return "apply" if objects is None else f"apply of {objects} object{'' if objects == 1 else 's'}"
    if name.startswith("reconcile ") and "kubeloop.key" in attributes:
        return f"{name} {attributes['kubeloop.key']}"
    if name in _OBJECT_ATTRIBUTES and _OBJECT_ATTRIBUTES[name] in attributes:
        return f"{name} {attributes[_OBJECT_ATTRIBUTES[name]]}"
    return str(attributes.get("kubeloop.action", name))


def span_details(span: Span) -> Iterator[str]:
    """Yield text of a span's attributes: why it waited, what ended the wait, rejections by plugin, scores, errors."""
    attributes, name = span["attributes"], span["name"]
    span_title = title(span)
    if name.startswith("queue") and attributes.get("kubeloop.reason"):
        woken_by = attributes.get("kubeloop.woken_by")
        yield f"{span_title}: {attributes['kubeloop.reason']}{f', woken by {woken_by}' if woken_by else ''}"
    reason = attributes.get("kubeloop.message") or attributes.get("kubeloop.reason") or attributes.get("kubeloop.gates")
    if name == "pod group":
        yield from _milestones(span)
    if name in _EXPLAINED and reason:
        yield f"{span_title}: {reason}"
    if name == "quorum wait":
        yield f"{span_title}: until {attributes.get('kubeloop.pod_group.min_count')} pods exist (minCount)"
    if name == "image pull":
        yield from _pull_details(span)
    if name == "other scheduler":
        yield f"{span_title}: {attributes.get('kubeloop.scheduler', '')}"
    if name.startswith("scheduling attempt") and attributes.get("kubeloop.message"):
        yield f"{span_title}: {attributes['kubeloop.message']}"
    if name == "filter":
        rejected = {key.removeprefix(_REJECTED): n for key, n in attributes.items() if key.startswith(_REJECTED)}
        by_plugin = ", ".join(f"{plugin} rejected {count}" for plugin, count in rejected.items())
        feasible = (
            f"filter: {attributes.get('kubeloop.feasible_nodes')} of {attributes.get('kubeloop.nodes')} nodes fit"
        )
        yield f"{feasible}; {by_plugin}" if by_plugin else feasible
    if name == "score" and attributes.get("kubeloop.score.nodes"):
        scores = zip(attributes["kubeloop.score.nodes"], attributes["kubeloop.score.totals"], strict=False)
        yield "score: " + ", ".join(f"{node} {total}" for node, total in scores)
    if name == "post-filter" and attributes.get("kubeloop.nominated_node"):
        victims = attributes.get("kubeloop.victims", 0)
        yield f"post-filter: preempts {victims} on {attributes['kubeloop.nominated_node']}"
    if name in _BY_US or (name in _OBJECT_ATTRIBUTES and not (name in _EXPLAINED and reason)):
        problem = span["status"].get("message") if span["status"].get("code") == "ERROR" else reason
        if problem:
            yield f"{span_title}: {problem}"


def _milestones(group: Span) -> Iterator[str]:
    """Yield the events of a group's trace after its first pod, such as quorum and last binding; each kind once, the
    last."""
    latest = {event["name"]: event for event in group.get("events", ())}
    steps = ["first pod"]
    for event in sorted(latest.values(), key=lambda event: event["time"]):
        placement = event["attributes"].get("kubeloop.placement")
        after = format_duration((event["time"] - group["start"]) / 1000)
        steps.append(f"{event['name']}{f' ({placement})' if placement else ''} after {after}")
    if latest:
        yield f"{title(group)}: {', '.join(steps)}"


def _pull_details(span: Span) -> Iterator[str]:
    attributes = span["attributes"]
    size = attributes.get("kubeloop.image.size_bytes")
    if attributes.get("kubeloop.image.already_present"):
        yield f"{title(span)}: already present on the node"
    elif size:
        waiting_ms = attributes.get("kubeloop.image.waiting_ms")
        suffix = f", waited {format_duration(waiting_ms * 1000)} for other pulls" if waiting_ms else ""
        yield f"{title(span)}: {size / 1e6:.1f} MB{suffix}"
