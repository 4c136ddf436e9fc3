"""Image pulls of a container, from the steps that Events and the container's status show. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kubeloop.kube.values.durations import duration_seconds
from kubeloop.kube.values.integers import parse_integer
from kubeloop.tracing.spans.pod_milestones import ContainerMilestones, Edge, PullMark, no_later

_DURATION: Final = r"[0-9a-zµ.]+"
_PULLED: Final = re.compile(
    rf'Successfully pulled image "[^"]*" in ({_DURATION})(?: \(({_DURATION}) including waiting\))?'
    r"(?:\. Image size: (\d+) bytes)?"
).match
_IMAGE: Final = re.compile(r'image "([^"]+)"').search

_MAX_INT64: Final = (1 << 63) - 1

PullAttributes = dict[str, str | int | float | bool]


class ImagePull(msgspec.Struct):
    """One pull, or the wait after a failed one (is_back_off). start None: not known; end None: not ended."""

    start: Edge | None
    end: Edge | None = None
    is_back_off: bool = False
    attributes: PullAttributes = {}
    error: str | None = None


def image_pulls(container: ContainerMilestones) -> list[ImagePull]:
    """Return the pulls of a container's image and the waits between them, in order.

    Events have each step; where there is none, the container's status shows failures and waits, by their arrival.
    """
    pulls: list[ImagePull] = []
    current: ImagePull | None = None
    for mark in _in_order(container.pulls or container.waits):
        if mark.step == "pulling":
            current = _next(pulls, ImagePull(mark.edge), mark.edge)
        elif mark.step == "back-off":
            if current is None or not current.is_back_off:
                back_off = ImagePull(mark.edge, is_back_off=True, error=mark.message or None)
                current = _next(pulls, back_off, mark.edge)
        else:
            if current is None or current.is_back_off:
                current = _next(pulls, ImagePull(None), mark.edge)
            if mark.step == "failed":
                current.error = mark.message or "the image cannot be pulled"
                current.end = mark.edge
                current = _next(pulls, ImagePull(mark.edge, is_back_off=True, error=current.error), mark.edge)
            else:
                _finish(current, mark)
                current = None
    name = container.image or next(
        (match[1] for mark in container.pulls if (match := _IMAGE(mark.message)) is not None), ""
    )
    if name:
        for pull in pulls:
            pull.attributes["container.image.name"] = name
    return pulls


def _next(pulls: list[ImagePull], pull: ImagePull, edge: Edge) -> ImagePull:
    """Append a pull or wait, which ends the one before it, and return it."""
    if pulls and pulls[-1].end is None:
        pulls[-1].end = edge
    pulls.append(pull)
    return pull


def _finish(pull: ImagePull, mark: PullMark) -> None:
    """End a pull with its Event Pulled, which has the duration of the pull in milliseconds."""
    pull.end = mark.edge
    match = _PULLED(mark.message)
    if match is None:
        pull.attributes["kubeloop.image.already_present"] = "already present" in mark.message
        pull.start = no_later(pull.start, mark.edge) if pull.start is not None else mark.edge
        return
    seconds = duration_seconds(match[1]) or 0.0
    total_seconds = duration_seconds(match[2] or "") or seconds
    pull.attributes["kubeloop.image.already_present"] = False
    pull.attributes["kubeloop.image.pull_ms"] = round(seconds * 1000)
    if total_seconds > seconds:
        pull.attributes["kubeloop.image.waiting_ms"] = round((total_seconds - seconds) * 1000)
    if match[3]:
        pull.attributes["kubeloop.image.size_bytes"] = min(parse_integer(match[3]), _MAX_INT64)
    duration_ns = round(total_seconds * 1e9)
    start = _moved(mark.edge, -duration_ns)
    pull.start = start if pull.start is None else _both(pull.start, start)
    pull.end = _both(mark.edge, _moved(pull.start, duration_ns))


def _moved(edge: Edge, by_ns: int) -> Edge:
    return Edge(max(0, edge.low_ns + by_ns), max(0, edge.high_ns + by_ns), edge.source)


def _both(edge: Edge, other: Edge) -> Edge:
    """Return the common part of two intervals of the same moment; the first one if they have none."""
    low_ns, high_ns = max(edge.low_ns, other.low_ns), min(edge.high_ns, other.high_ns)
    return Edge(low_ns, high_ns, edge.source) if low_ns <= high_ns else edge


def _in_order(marks: list[PullMark]) -> Iterator[PullMark]:
    """Yield steps by time; of those in the same second, one that may follow the step before comes first."""
    remaining = sorted(marks, key=lambda mark: (mark.event_ns or mark.edge.high_ns, mark.step))
    pulling = False
    while remaining:
        group = [mark for mark in remaining if mark.event_ns == remaining[0].event_ns]
        if not group[0].event_ns:
            group = group[:1]
        order = ("pulled", "failed", "back-off", "pulling") if pulling else ("pulling", "back-off", "failed", "pulled")
        mark = min(group, key=lambda mark: order.index(mark.step))
        if not pulling and mark.step == "pulling" and not any(other.step in ("pulled", "failed") for other in group):
            mark = next((other for other in group if other.step == "back-off"), mark)
        remaining.remove(mark)
        pulling = mark.step == "pulling"
        yield mark
