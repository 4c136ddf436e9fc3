"""Cells that the strategy of a kind prints in a Table."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.api.strategy import Strategy, strategy_of

JSON = dict[str, Any]


def strategy_named(group_resource: str) -> Strategy:
    """Return the strategy of the kind with this resource: "deployments.apps"."""
    return next(
        strategy_of(served.resource) for served in BY_PATH.values() if served.resource.group_resource == group_resource
    )


def cells_of(group_resource: str, obj: JSON, now: datetime) -> list[Any]:
    """Return the row of an object."""
    cells = strategy_named(group_resource).cells
    assert cells is not None
    return cells(obj, now)


def computed_cell(group_resource: str, column: str, obj: JSON, now: datetime) -> Any:
    """Return the cell of a computed column."""
    return strategy_named(group_resource).computed_columns[column](obj, now)
