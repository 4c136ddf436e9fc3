"""Durations in Go's format, as in metav1.Duration and in flags: "1h2m3.5s", "300ms". Source: Go's time package."""

from __future__ import annotations

import re

from kubeloop.kube.errors import UserError

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+")


def duration_seconds(text: str) -> float | None:
    """Parse a duration to seconds; None if it is invalid. Any duration but zero needs a unit."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if not _WHOLE.fullmatch(text):
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds


def parse_duration_seconds(text: str) -> float:
    """Parse a duration to seconds. Raises UserError with Go's message."""
    seconds = duration_seconds(text)
    if seconds is None:
        raise UserError(f'time: invalid duration "{text}"', hint='for example "5s" or "1m30s"')
    return seconds


def duration_text(seconds: float) -> str:
    """Format a duration as Go does: "1h0m0s", "5s", "300ms"."""
    if seconds == 0:
        return "0s"
    if abs(seconds) < 1:
        return f"{seconds * 1000:g}ms"
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{int(minutes)}m{text}"
    if hours:
        text = f"{int(hours)}h{text}"
    return sign + text
