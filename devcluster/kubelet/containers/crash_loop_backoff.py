"""CrashLoopBackOff: delay before a container that exits repeatedly is restarted.

Source: pkg/kubelet of v1.36 (MaxContainerBackOff, doBackOff).
"""

from __future__ import annotations

_BASE_SECONDS, _CAP_SECONDS = 10.0, 300.0
RESET_SECONDS = 2 * _CAP_SECONDS
"""A container that runs this long without exit starts again without delay."""


def restart_delay_seconds(restarts: int) -> float:
    """Return the delay before the next restart: none at first, then 10 s, 20 s, ... at most 5 min."""
    return min(_CAP_SECONDS, _BASE_SECONDS * 2 ** min(restarts - 1, 10)) if restarts else 0.0


def waiting_message(delay_seconds: float, container: str, pod: str) -> str:
    """Return the message of the waiting state. pod: NAME_NAMESPACE(UID)."""
    return f"back-off {_go_duration(delay_seconds)} restarting failed container={container} pod={pod}"


def _go_duration(seconds: float) -> str:
    """Format whole seconds as Go does: "10s", "2m40s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
