"""Line charts as SVG: one line per series, axes with round numbers. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

_WIDTH, _HEIGHT = 560, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 20, 8, 22
COLORS: Final = 6  # classes s0 to s5 of the page's style


class Line(NamedTuple):
    """A named line of points (seconds, value)."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(
    title: str, series: Sequence[Line], *, seconds: float, label: Callable[[float], str], steps: bool = False
) -> str:
    """Return a figure. seconds: length of the x axis; label: text of a value; steps: values hold until the next."""
    most = max((value for line in series for _, value in line.points), default=0.0)
    top = round_up(most)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(moment: float, value: float) -> tuple[float, float]:
        return _LEFT + width * moment / (seconds or 1.0), _TOP + height * (1 - value / top)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">']
    for number in range(5):
        value = top * number / 4
        _, y = place(0.0, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 5}" y="{y + 3.5:.1f}">{escape(label(value))}</text>')
    for number in range(7):
        x, _ = place(seconds * number / 6, 0.0)
        parts.append(f'<text class="x" x="{x:.1f}" y="{_HEIGHT - 6}">{clock_label(seconds * number / 6)}</text>')
    for index, line in enumerate(series):
        path = _path([place(*point) for point in line.points], steps)
        name = escape(line.name)
        parts.append(f'<path class="line s{index % COLORS}" d="{path}"><title>{name}</title></path>')
    parts.append("</svg>")
    legend = " ".join(
        f'<span class="key s{index % COLORS}">{escape(line.name)}</span>' for index, line in enumerate(series)
    )
    return f"<figure><figcaption>{escape(title)} {legend}</figcaption>{''.join(parts)}</figure>"


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    commands: list[str] = []
    for x, y in points:
        if not commands:
            commands.append(f"M{x:.1f} {y:.1f}")
        else:
            commands.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(commands)


def round_up(value: float) -> float:
    """Return the next of 1, 2, 2.5, 4, 5 and 10 times a power of ten; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 2.5, 4, 5, 10) if factor * power >= value * (1 - 1e-9))


def clock_label(seconds: float) -> str:
    """Return hours and minutes: "06:30"."""
    minutes = round(seconds / 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"
