"""The phases of a pod's way, told from the names of spans: what colours, percentiles and columns go by.

The order is that of a pod which meets every phase once. May import msgspec and the standard library only.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """`key` is stable (JSON, CSS classes); `starts`: what the names of its spans start with."""

    key: str
    title: str
    means: str
    color: str  # of rich
    starts: tuple[str, ...]


_STEPS: Final = ("snapshot", "pre-filter", "filter", "post-filter", "pre-score", "score")  # of an attempt, its children

PHASES: Final = (
    Phase("create", "create", "POST of the pod, sent to answered", "blue", ("create",)),
    Phase("delivery", "delivery", "created, until the watch delivered it", "bright_blue", ("watch delivery",)),
    Phase("queue", "queue", "ready to be scheduled, waiting for its turn", "yellow", ("queue active",)),
    Phase("waiting", "waiting", "rejected, backing off or gated", "magenta", ("queue",)),
    Phase("scheduling", "scheduling", "filter, score, and choice of a node", "cyan", ("scheduling attempt", *_STEPS)),
    Phase("permit", "permit", "reserve, permit and pre-bind", "bright_cyan", ("reserve", "permit", "pre-bind")),
    Phase("bind", "bind", "POST of the binding, sent to answered", "bright_magenta", ("bind",)),
    Phase("confirmation", "confirm", "bound, until the watch showed it", "green", ("confirmation",)),
    Phase("start", "start", "on its node, until it is ready", "bright_green", ("start ",)),
    Phase("loop", "event loop", "due, while this process was busy with other pods", "bright_black", ("event loop",)),
    Phase("other", "other", "not followed, another scheduler's, or terminating", "white", ()),
)
OTHER: Final = len(PHASES) - 1
KEYS: Final = tuple(phase.key for phase in PHASES)
START: Final = KEYS.index("start")


def phase_index(span_name: str) -> int:
    """Index in PHASES of a span under a pod's root; OTHER if the name belongs to none."""
    return next((index for index, phase in enumerate(PHASES) if span_name.startswith(phase.starts)), OTHER)
