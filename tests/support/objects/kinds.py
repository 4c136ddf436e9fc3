"""Strategies of kinds by the name of their resource: "deployments.apps"."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.api.strategy import Strategy, strategy_of
from kubeloop.devcluster.printers.table import table
from kubeloop.kube.objects.resources import Resource

JSON = dict[str, Any]


def resource_named(group_resource: str) -> Resource[Any]:
    """Return the served resource with this name."""
    return next(served.resource for served in BY_PATH.values() if served.resource.group_resource == group_resource)


def strategy_named(group_resource: str) -> Strategy:
    """Return the strategy of the kind with this resource."""
    return strategy_of(resource_named(group_resource))


def cells_of(group_resource: str, obj: JSON, now: datetime) -> list[Any]:
    """Return the row of an object in a Table."""
    cells = strategy_named(group_resource).cells
    assert cells is not None
    return cells(obj, now)


def cell_of(group_resource: str, column: str, obj: JSON, now: datetime) -> Any:
    """Return the cell of an object in this column of a Table."""
    served = next(served for served in BY_PATH.values() if served.resource.group_resource == group_resource)
    printed = table(served, [obj], now=now, include_object="None", list_metadata={})
    names = [definition["name"] for definition in printed["columnDefinitions"]]
    return printed["rows"][0]["cells"][names.index(column)]
