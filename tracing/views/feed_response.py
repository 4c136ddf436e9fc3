"""What the feed answers, as JSON. May import msgspec and this folder only."""

from __future__ import annotations

import msgspec

from kubeloop.tracing.views.pod_lines import PodLine


class FeedResponse(msgspec.Struct, kw_only=True, rename="camel"):
    """What changed since a cursor.

    cursor   to ask with the next time; opaque
    reset    forget everything told before: the cursor is of another process, or too old
    more     there is more to be had at once
    lines    pods that are new or changed, oldest change first
    removed  keys of pods that are forgotten
    now_us   the clock's time, microseconds since the epoch; lines of pods on their way reach up to it
    pods     in the cluster, as the informer sees it
    """

    cursor: str
    reset: bool
    more: bool
    lines: list[PodLine]
    removed: list[str]
    now_us: int
    pods: int
