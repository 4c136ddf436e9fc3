"""Formatting of cells that several kinds share: ages, names, labels, selectors, containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.selectors.selectors import Requirement, Selector
from kubeloop.kube.values.times import parse_time, seconds_between

Cells = list[Any]
CellPrinter = Callable[[JSON, datetime], Cells]

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


def human_duration(total: float) -> str:
    """Return a duration in seconds in at most two units: "45s", "5m30s", "3d4h". Source: apimachinery HumanDuration."""
    seconds = int(total)
    if seconds < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return _two_units(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def age_since(time: str | None, now: datetime) -> str:
    """Return the age of an API timestamp; "<unknown>" without one."""
    return human_duration(seconds_between(parse_time(time), now)) if time else UNKNOWN


def object_name(obj: JSON) -> str:
    return str(obj["metadata"].get("name", ""))


def object_age(obj: JSON, now: datetime) -> str:
    return age_since(obj["metadata"].get("creationTimestamp"), now)


def spec_of(obj: JSON) -> JSON:
    return obj.get("spec") or {}


def status_of(obj: JSON) -> JSON:
    return obj.get("status") or {}


def is_terminating(obj: JSON) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def labels_text(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else NONE


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_text(selector: JSON | None) -> str:
    if selector is None:
        return ""
    requirements = [Requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for match_expression in selector.get("matchExpressions") or ():
        operator: Any = _OPERATORS.get(match_expression["operator"])
        if operator is None:
            return "<invalid>"
        requirements.append(Requirement(match_expression["key"], operator, tuple(match_expression.get("values") or ())))
    return str(Selector(requirements))


def join_first(entries: Sequence[str], limit: int, empty: str) -> str:
    text = ",".join(entries[:limit]) or empty
    return f"{text} + {len(entries) - limit} more..." if len(entries) > limit else text
