"""Server-side printing: objects as a meta.k8s.io/v1 Table, as `kubectl get` requests them, or as their metadata only.

Column definitions come from columns.json, whose descriptions are the field documentation of the API types as
kube-apiserver sends it; the kind's strategy prints the rows.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib import resources

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource, storage_version_of
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.printers.formatting import CellPrinter, Cells, object_age, object_name, spec_of, status_of
from kubeloop.devcluster.serializer.conversion import to_stored
from kubeloop.kube.json_object import JSON

INCLUDE_OBJECT = ("", "Metadata", "Object", "None")
"""Values of the query parameter includeObject; "" means Metadata."""

_API_VERSION = "meta.k8s.io/v1"


class _Columns(msgspec.Struct):
    texts: list[str]
    columns: dict[str, list[tuple[str, str, str, int, int]]]


@cache
def _columns() -> dict[str, list[JSON]]:
    data = resources.files(__package__).joinpath("columns.json").read_bytes()
    document = msgspec.json.decode(data, type=_Columns)
    return {
        key: [
            {"name": name, "type": type_, "format": format_, "description": document.texts[text], "priority": priority}
            for name, type_, format_, priority, text in columns
        ]
        for key, columns in document.columns.items()
    }


def partial_metadata(obj: JSON) -> JSON:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _API_VERSION, "metadata": obj["metadata"]}


def check_include_object(include_object: str) -> None:
    """Raise StatusError 400 unless the value is one of INCLUDE_OBJECT."""
    if include_object and include_object not in INCLUDE_OBJECT:
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def table(
    served: ServedResource,
    objects: list[JSON],
    *,
    now: datetime,
    include_object: str,
    list_metadata: JSON,
    api_version: str = _API_VERSION,
    columns: bool = True,
) -> JSON:
    """Return objects of one resource, or their Scales, as a Table.

    `include_object` is one of INCLUDE_OBJECT; with "Object", rows hold the objects unchanged, so they must carry kind
    and apiVersion. `columns` is false in the second and later events of a watch. Raises StatusError 400 for another
    include_object.
    """
    check_include_object(include_object)
    stored = storage_version_of(served).resource  # whose cells are printed, also for an object in an older version
    strategy, name = strategy_of(stored), stored.group_resource
    cells: CellPrinter = _any_object
    if objects and objects[0].get("kind") == "Scale":
        cells, definitions = _scale_cells, _columns()["scale"]
    elif strategy.cells is not None:
        described = strategy.column_definitions
        cells, definitions = strategy.cells, _columns()[name] if described is None else described(_columns()[""])
    else:
        definitions = _columns()[""]
    rows: list[JSON] = []
    for obj in objects:
        row: JSON = {"cells": cells(obj if served.storage_resource is None else to_stored(served, obj), now)}
        if strategy.row_conditions is not None and (conditions := strategy.row_conditions(obj)):
            row["conditions"] = conditions
        match include_object:
            case "None":
                row["object"] = None
            case "Object":
                row["object"] = obj
            case _:
                row["object"] = {**partial_metadata(obj), "apiVersion": api_version}
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": list_metadata,
        "columnDefinitions": definitions if columns else None,
        "rows": rows,
    }


def _scale_cells(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), spec_of(obj).get("replicas", 0), status_of(obj).get("replicas", 0), object_age(obj, now)]


def _any_object(obj: JSON, _now: datetime) -> Cells:
    return [object_name(obj), obj["metadata"].get("creationTimestamp", "")]
