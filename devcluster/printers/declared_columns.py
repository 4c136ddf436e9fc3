"""Cells of the columns that a kind's declaration names: "Driver=spec.driver" is the value there, "Webhooks#=webhooks" a
number (of a list: how many), a name alone one of WORKED_OUT.

The name of the object comes first in every table. Source: kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNSET,
    Cells,
    age_of,
    human_duration,
    name_of,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON

_NAME: JSON = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def _named(reference: JSON | None) -> str:
    """A parameter's kind or object: "v1/ConfigMap", "default/limits"."""
    if not reference:
        return UNSET
    if "kind" in reference:
        return f"{reference.get('apiVersion', '')}/{reference['kind']}"
    if "name" in reference:
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    return "*"


def _signing_condition(obj: JSON, _now: datetime) -> str:
    conditions = {each.get("type") for each in status_of(obj).get("conditions") or ()}
    shown = [next((each for each in ("Denied", "Approved") if each in conditions), "Pending")]
    if "Failed" in conditions:
        shown.append("Failed")
    if status_of(obj).get("certificate"):
        shown.append("Issued")
    return ",".join(shown)


def _requested_duration(obj: JSON, _now: datetime) -> str:
    seconds = spec_of(obj).get("expirationSeconds")
    return NONE if seconds is None else human_duration(timedelta(seconds=seconds))


def _claim_state(obj: JSON, _now: datetime) -> str:
    status = status_of(obj)
    states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    if status.get("allocation"):
        states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states if status.get("allocation") or status.get("reservedFor") else [*states, "pending"])


def _parent(obj: JSON, _now: datetime) -> str:
    parent = spec_of(obj).get("parentRef")
    if parent is None:
        return NONE
    parts = (parent.get("resource"), parent.get("group"))
    named = [parent.get("namespace"), parent.get("name")]
    return "/".join([".".join(each for each in parts if each).lower(), *(each for each in named if each)])


def _service(obj: JSON, _now: datetime) -> str:
    service = spec_of(obj).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Available")
    if condition is None:
        return "Unknown"
    status = str(condition.get("status", ""))
    return status if status == "True" else f"{status} ({condition.get('reason', '')})"


def _dangling(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Dangling")
    return "?" if condition is None else str(condition.get("status", ""))


WORKED_OUT: dict[str, Callable[[JSON, datetime], Any]] = {
    "Age": age_of,
    "Available": _available,
    "Condition": _signing_condition,
    "MissingPL": _dangling,
    "ParamKind": lambda obj, _now: _named(spec_of(obj).get("paramKind")),
    "ParamRef": lambda obj, _now: _named(spec_of(obj).get("paramRef")),
    "ParentRef": _parent,
    "RequestedDuration": _requested_duration,
    "Service": _service,
    "State": _claim_state,
}
"""Columns that are more than a field, by their names."""


def _at(obj: JSON, path: str) -> Any:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _cell(column: str, obj: JSON, now: datetime) -> Any:
    name, _, path = column.partition("=")
    if not path:
        return WORKED_OUT[name](obj, now)
    value = _at(obj, path)
    if name.endswith("#"):
        return len(value) if isinstance(value, list) else value or 0
    if isinstance(value, list):
        return ",".join(map(str, value)) or NONE
    return NONE if value in (None, "") else str(value)


def declared_cells(columns: tuple[str, ...], obj: JSON, now: datetime) -> Cells:
    """The cells of an object under these columns."""
    return [name_of(obj), *(_cell(column, obj, now) for column in columns)]


def declared_columns(columns: tuple[str, ...]) -> list[JSON]:
    """The definitions of these columns; their descriptions are empty."""
    names = (column.partition("=")[0] for column in columns)
    return [
        _NAME,
        *(
            {
                "name": name.rstrip("#"),
                "type": "integer" if name.endswith("#") else "string",
                "format": "",
                "description": "",
                "priority": 0,
            }
            for name in names
        ),
    ]
