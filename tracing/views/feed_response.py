"""JSON response of the pod feed. Imports msgspec and this folder only."""

from __future__ import annotations

import msgspec

from kubeloop.tracing.views.pod_lines import PodLine


class FeedResponse(msgspec.Struct, kw_only=True, rename="camel"):
    """Changes since a cursor.

    cursor   opaque position for the next poll
    reset    the client must drop its lines: its cursor is of another process, or too old
    more     more changes can be polled at once
    remaining  pods whose changes follow, if there are more
    lines    new and changed pods, in order of change
    removed  keys of removed pods
    now_us   current time, microseconds since the epoch; lines of open traces end there
    pods     number of pods in the cluster
    clock_skew  difference of clocks from that of this process, if it is certain: {"node-1": {"lowestMs", "highestMs"}}
    """

    cursor: str
    reset: bool
    more: bool
    lines: list[PodLine]
    removed: list[str]
    now_us: int
    pods: int
    clock_skew: dict[str, dict[str, int | None]] = {}
    remaining: int = 0
