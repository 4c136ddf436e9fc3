"""Type of a decoded JSON object, for example a Kubernetes object as it is sent and stored."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def sorted_map(value: JSON) -> JSON:
    """Return a map in the order of its keys, as Go encodes maps."""
    if len(value) < 2:
        return value
    keys = [*value]
    ordered = sorted(keys)
    return value if keys == ordered else {key: value[key] for key in ordered}
