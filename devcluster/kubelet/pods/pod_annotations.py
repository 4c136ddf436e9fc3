"""Annotations (or labels) of kubeloop on a pod, without their prefix. Pure functions.

The names and their effects stand in nodes/simulated_nodes.py.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping

from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.integers import parse_integer

_PREFIX = "kubeloop.dev/"
_DURATIONS = ("start-delay-seconds", "stop-seconds", "image-pull-seconds", "jitter")
_PER_CONTAINER = ("run-seconds", "exit-code", "crashes")  # also as NAME.CONTAINER


def marker(pod: JSON, name: str) -> str | None:
    """Return the value of kubeloop's annotation, or label, of that name."""
    metadata = pod["metadata"]
    value: str | None = (metadata.get("annotations") or {}).get(_PREFIX + name)
    return value if value is not None else (metadata.get("labels") or {}).get(_PREFIX + name)


def markers(metadata: JSON) -> dict[str, str]:
    """Return the values of kubeloop's annotations and labels by name; an annotation precedes a label."""
    return {
        key.removeprefix(_PREFIX): value
        for values in (metadata.get("labels"), metadata.get("annotations"))
        for key, value in (values or {}).items()
        if key.startswith(_PREFIX)
    }


def invalid_markers(values: Mapping[str, str], containers: Container[str]) -> Iterator[str]:
    """Yield messages about invalid annotations. containers: names of the pod's containers."""
    for key, value in values.items():
        name, dot, container = key.partition(".")
        if dot and (name not in _PER_CONTAINER or container not in containers):
            yield f"{_PREFIX}{key}: the pod has no such container; it is ignored"
        elif name == "exit-code":
            if exit_code_of(value) is None:
                yield f"{_PREFIX}{key}: {value!r} is not a number from 0 to 255; 1 is used"
        elif name in (*_DURATIONS, *_PER_CONTAINER) and number_of(value) is None:
            yield f"{_PREFIX}{key}: {value!r} is not a number of 0 or more; it is ignored"


def number_of(text: str | None) -> float | None:
    """Return an annotation as a number of 0 or more; None if it is absent or invalid."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def exit_code_of(text: str) -> int | None:
    """Return an annotation as an exit code, None if it is invalid."""
    code = parse_integer(text) if text.isdecimal() else 256
    return code if code <= 255 else None
