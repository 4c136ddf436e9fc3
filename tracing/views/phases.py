"""Phases of a pod, derived from the names of spans; colours, percentiles and columns are by phase.

In the order in which a pod that goes through all of them does so. Imports msgspec and the standard library only.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """`key` is stable (JSON, CSS classes); `prefixes`: of the names of the phase's spans."""

    key: str
    title: str
    description: str
    color: str  # in rich's notation
    prefixes: tuple[str, ...]


_STEPS: Final = ("snapshot", "pre-filter", "filter", "post-filter", "pre-score", "score")  # child spans of an attempt

PHASES: Final = (
    Phase("create", "create", "create request, until its response", "blue", ("create",)),
    Phase("delivery", "delivery", "from creation until the watch event", "bright_blue", ("watch delivery",)),
    Phase("queue", "queue", "waiting in the active queue", "yellow", ("queue active",)),
    Phase("waiting", "waiting", "unschedulable, in backoff or gated", "magenta", ("queue",)),
    Phase(
        "scheduling",
        "scheduling",
        "filtering, scoring, node selection",
        "cyan",
        ("scheduling attempt", *_STEPS),
    ),
    Phase("permit", "permit", "reserve, permit and pre-bind", "bright_cyan", ("reserve", "permit", "pre-bind")),
    Phase("bind", "bind", "bind request, until its response", "bright_magenta", ("bind",)),
    Phase("confirmation", "confirm", "from binding until the watch event", "green", ("confirmation",)),
    Phase("start", "start", "on its node, until it is ready", "bright_green", ("start ",)),
    Phase("loop", "event loop", "delayed while the event loop handled other pods", "bright_black", ("event loop",)),
    Phase("other", "other", "not followed, other scheduler, or terminating", "white", ()),
)
OTHER: Final = len(PHASES) - 1
KEYS: Final = tuple(phase.key for phase in PHASES)
START: Final = KEYS.index("start")


def phase_index(span_name: str) -> int:
    """Return the index in PHASES for a span below a pod's root; OTHER if no phase matches."""
    return next((index for index, phase in enumerate(PHASES) if span_name.startswith(phase.prefixes)), OTHER)
