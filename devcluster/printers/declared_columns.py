"""Cells of the columns that a kind's declaration names.

"Driver=spec.driver" prints the value at that path, "Webhooks#=webhooks" a number (the length of a list); a name alone
is Age or one of the strategy's computed columns. The object's name is the first column. Source:
kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.strategy import ComputedColumn
from kubeloop.devcluster.printers.formatting import (
    NONE,
    Cells,
    object_age,
    object_name,
)
from kubeloop.kube.json_object import JSON

_NAME: JSON = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def _value_at_path(obj: JSON, path: str) -> Any:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _declared_cell(column: str, computed: Mapping[str, ComputedColumn], obj: JSON, now: datetime) -> Any:
    name, _, path = column.partition("=")
    if not path:
        return object_age(obj, now) if name == "Age" else computed[name](obj, now)
    value = _value_at_path(obj, path)
    if name.endswith("#"):
        return len(value) if isinstance(value, list) else value or 0
    if isinstance(value, list):
        return ",".join(map(str, value)) or NONE
    return NONE if value in (None, "") else str(value)


def declared_cells(columns: tuple[str, ...], computed: Mapping[str, ComputedColumn], obj: JSON, now: datetime) -> Cells:
    """Return the cells of an object for these columns. computed: functions of columns without a path, beside Age."""
    return [object_name(obj), *(_declared_cell(column, computed, obj, now) for column in columns)]


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
