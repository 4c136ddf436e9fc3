"""Server-side printing: objects as a meta.k8s.io/v1 Table, as `kubectl get` requests them, or as their metadata only.

Column definitions come from columns.json, whose descriptions are the field documentation of the API types as
kube-apiserver sends it, or from the kind's declaration; `kind_printers` prints the rows.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache, partial
from importlib import resources

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.printers.declared_columns import declared_cells, declared_columns
from kubeloop.devcluster.printers.formatting import CellPrinter
from kubeloop.devcluster.serializer.conversion import to_stored
from kubeloop.kube.json_object import JSON

INCLUDE_OBJECT = ("", "Metadata", "Object", "None")
"""Values of the query parameter includeObject; "" means Metadata."""

_API_VERSION = "meta.k8s.io/v1"
_ALIASES = {"events.events.k8s.io": "events"}
_POD_CONDITIONS = {
    phase: [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
    for phase, message in (("Succeeded", "The pod has completed successfully."), ("Failed", "The pod failed."))
}


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
    from kubeloop.devcluster.printers.kind_printers import PRINTERS  # needed by kubectl, not by controllers

    check_include_object(include_object)
    key = served.resource.group_resource
    if objects and objects[0].get("kind") == "Scale":
        key = "scale"
    key = _ALIASES.get(key, key)
    declared = served.columns if key in ("", served.resource.group_resource) else ()
    key = key if declared or key in PRINTERS else ""
    cells: CellPrinter = partial(declared_cells, declared) if declared else PRINTERS[key]
    definitions = _columns().get(key) or declared_columns(declared)
    if served.crd_version is not None and key != "scale":
        cells, definitions = served.crd_version.cells, served.crd_version.column_definitions(definitions)
    rows: list[JSON] = []
    for obj in objects:
        # cells are computed from the stored version, also for an object in an older version
        row: JSON = {"cells": cells(obj if served.storage_resource is None else to_stored(served, obj), now)}
        if key == "pods" and (conditions := _POD_CONDITIONS.get((obj.get("status") or {}).get("phase", ""))):
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
