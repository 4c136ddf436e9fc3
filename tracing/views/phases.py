"""Phases of a pod, derived from the names of spans; colours, percentiles and columns are by phase.

In the order in which a pod that goes through all of them does so. Imports msgspec and the standard library only.
"""

from __future__ import annotations

from typing import Final

import msgspec


class TracePhase(msgspec.Struct, frozen=True):
    """`key` is stable (JSON, CSS classes); `prefixes`: of the names of the phase's spans."""

    key: str
    title: str
    description: str
    color: str  # in rich's notation
    prefixes: tuple[str, ...]


_STEPS: Final = ("snapshot", "pre-filter", "filter", "post-filter", "pre-score", "score")  # child spans of an attempt

PHASES: Final = (
    TracePhase("create", "create", "create request, until its response", "blue", ("create",)),
    TracePhase("delivery", "delivery", "from creation until the watch event", "bright_blue", ("watch delivery",)),
    TracePhase("queue", "queue", "waiting in the active queue", "yellow", ("queue active",)),
    TracePhase(
        "waiting",
        "waiting",
        "unschedulable, in backoff or gated",
        "magenta",
        ("queue", "unschedulable", "gated", "quorum wait", "group wait"),
    ),
    TracePhase(
        "scheduling",
        "scheduling",
        "filtering, scoring, node selection; until the first decision of another scheduler",
        "cyan",
        ("scheduling attempt", "schedule", "group attempt", "placement", *_STEPS),
    ),
    TracePhase(
        "preemption", "preemption", "waiting until preempted pods have ended", "medium_violet_red", ("preemption wait",)
    ),
    TracePhase("permit", "permit", "reserve, permit and pre-bind", "bright_cyan", ("reserve", "permit", "pre-bind")),
    TracePhase("bind", "bind", "bind request, until its response", "bright_magenta", ("bind", "group binding")),
    TracePhase("confirmation", "confirm", "from binding until the watch event", "green", ("confirmation",)),
    TracePhase(
        "sandbox",
        "sandbox",
        "acknowledgement by the kubelet, volumes, sandbox and network on the node",
        "rosy_brown",
        ("start acknowledgement", "start volumes", "start sandbox"),
    ),
    TracePhase("init", "init", "init containers", "dark_olive_green3", ("start init", "init container")),
    TracePhase("pull", "image pull", "pulling images on the node", "orange3", ("image pull",)),
    TracePhase(
        "start", "start", "containers start on the node", "bright_green", ("start containers", "container start")
    ),
    TracePhase(
        "probes",
        "probes",
        "start-up and readiness probes, readiness gates",
        "dark_sea_green",
        ("startup probe", "readiness probe", "start readiness"),
    ),
    TracePhase(
        "crash",
        "crash loop",
        "failed runs of containers, and back-off after them",
        "red3",
        ("container run", "container restart", "crash back-off"),
    ),
    TracePhase(
        "loop", "event loop", "delayed while the event loop handled other pods", "bright_black", ("event loop",)
    ),
    TracePhase("unobserved", "not observed", "no events: a watch was interrupted", "grey50", ("not observed",)),
    TracePhase("other", "other", "not followed, other scheduler, or terminating", "white", ()),
)
OTHER: Final = len(PHASES) - 1
KEYS: Final = tuple(phase.key for phase in PHASES)
ON_NODE: Final = frozenset(map(KEYS.index, ("sandbox", "init", "pull", "start", "probes", "crash")))
"""Phases after binding, until the pod is ready."""


def phase_index(span_name: str) -> int:
    """Return the index in PHASES for a span below a pod's root; OTHER if no phase matches."""
    return next((index for index, phase in enumerate(PHASES) if span_name.startswith(phase.prefixes)), OTHER)
