"""Human-readable durations and times. Imports the standard library only."""

from __future__ import annotations

from datetime import UTC, datetime


def format_duration(microseconds: float, uncertainty_us: float = 0) -> str:
    """Format a duration with three significant digits: "850 µs", "12.3 ms", "3.42 s ±560 ms", "2 min 05 s"."""
    if uncertainty_us:
        return f"{format_duration(microseconds)} ±{format_duration(uncertainty_us)}"
    if microseconds < 1:
        return "0 µs" if microseconds <= 0 else "< 1 µs"
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    milliseconds = microseconds / 1000
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def format_skew(clock: str, lowest_ms: int, highest_ms: int | None) -> str:
    """Format a certain difference of a clock, ahead of ours if positive: "node-1: 1.20 s to 2.00 s ahead"."""
    if lowest_ms > 0:
        text = format_duration(lowest_ms * 1000)
        return (
            f"{clock}: {text} {'or more' if highest_ms is None else f'to {format_duration(highest_ms * 1000)}'} ahead"
        )
    nearest_ms = -highest_ms if highest_ms is not None else 0
    return f"{clock}: {format_duration(nearest_ms * 1000)} to {format_duration(-lowest_ms * 1000)} behind"


def format_time(nanoseconds: int) -> str:
    """Format nanoseconds since the epoch: "2026-11-21 04:34:18.123 UTC"."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s after 1970"
    return f"{text}.{rest // 1_000_000:03} UTC"


def _three_digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"
