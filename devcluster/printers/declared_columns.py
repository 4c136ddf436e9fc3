"""Cells of the columns that a kind's declaration names.

"Driver=spec.driver" prints the value at that path, "Webhooks#=webhooks" a number (the length of a list); a name alone
is one of COMPUTED_COLUMNS. The object's name is the first column. Source: kubernetes/pkg/printers/internalversion.
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
    human_duration,
    object_age,
    object_name,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON

_NAME: JSON = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def _param_reference(reference: JSON | None) -> str:
    """Return the kind or the object of a policy's parameters: "v1/ConfigMap", "default/limits"."""
    if not reference:
        return UNSET
    if "kind" in reference:
        return f"{reference.get('apiVersion', '')}/{reference['kind']}"
    if "name" in reference:
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    return "*"


def _signing_request_condition(obj: JSON, _now: datetime) -> str:
    conditions = {condition.get("type") for condition in status_of(obj).get("conditions") or ()}
    states = [next((decision for decision in ("Denied", "Approved") if decision in conditions), "Pending")]
    if "Failed" in conditions:
        states.append("Failed")
    if status_of(obj).get("certificate"):
        states.append("Issued")
    return ",".join(states)


def _requested_duration(obj: JSON, _now: datetime) -> str:
    seconds = spec_of(obj).get("expirationSeconds")
    return NONE if seconds is None else human_duration(timedelta(seconds=seconds))


def _resource_claim_state(obj: JSON, _now: datetime) -> str:
    status = status_of(obj)
    states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    if status.get("allocation"):
        states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states if status.get("allocation") or status.get("reservedFor") else [*states, "pending"])


def _parent_reference(obj: JSON, _now: datetime) -> str:
    parent = spec_of(obj).get("parentRef")
    if parent is None:
        return NONE
    parts = (parent.get("resource"), parent.get("group"))
    name_parts = [parent.get("namespace"), parent.get("name")]
    return "/".join([".".join(part for part in parts if part).lower(), *(part for part in name_parts if part)])


def _api_service_backend(obj: JSON, _now: datetime) -> str:
    service = spec_of(obj).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available_condition(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Available")
    if condition is None:
        return "Unknown"
    status = str(condition.get("status", ""))
    return status if status == "True" else f"{status} ({condition.get('reason', '')})"


def _dangling_condition(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Dangling")
    return "?" if condition is None else str(condition.get("status", ""))


COMPUTED_COLUMNS: dict[str, Callable[[JSON, datetime], Any]] = {
    "Age": object_age,
    "Available": _available_condition,
    "Condition": _signing_request_condition,
    "MissingPL": _dangling_condition,
    "ParamKind": lambda obj, _now: _param_reference(spec_of(obj).get("paramKind")),
    "ParamRef": lambda obj, _now: _param_reference(spec_of(obj).get("paramRef")),
    "ParentRef": _parent_reference,
    "RequestedDuration": _requested_duration,
    "Service": _api_service_backend,
    "State": _resource_claim_state,
}
"""Columns whose cells are computed by a function, by name."""


def _value_at_path(obj: JSON, path: str) -> Any:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _declared_cell(column: str, obj: JSON, now: datetime) -> Any:
    name, _, path = column.partition("=")
    if not path:
        return COMPUTED_COLUMNS[name](obj, now)
    value = _value_at_path(obj, path)
    if name.endswith("#"):
        return len(value) if isinstance(value, list) else value or 0
    if isinstance(value, list):
        return ",".join(map(str, value)) or NONE
    return NONE if value in (None, "") else str(value)


def declared_cells(columns: tuple[str, ...], obj: JSON, now: datetime) -> Cells:
    """Return the cells of an object for these columns."""
    return [object_name(obj), *(_declared_cell(column, obj, now) for column in columns)]


def declared_columns(columns: tuple[str, ...]) -> list[JSON]:
    """Return the definitions of these columns; their descriptions are empty."""
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
