"""Server-side printing: objects as a meta.k8s.io/v1 Table (what `kubectl get` asks for) or as their metadata only.

Columns with their texts stand in columns.json (the texts are the field documentation of the Kubernetes API types, which
kube-apiserver sends as they are), or with a kind's declaration; what stands in a row is `cells`' part.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache, partial
from importlib import resources

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.printers.cells import PRINTERS
from kubeloop.devcluster.printers.declared_columns import declared_cells, declared_columns
from kubeloop.devcluster.printers.formatting import Print
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
    read = msgspec.json.decode(data, type=_Columns)
    return {
        key: [
            {"name": name, "type": type_, "format": format_, "description": read.texts[text], "priority": priority}
            for name, type_, format_, priority, text in columns
        ]
        for key, columns in read.columns.items()
    }


def partial_metadata(obj: JSON) -> JSON:
    """An object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _API_VERSION, "metadata": obj["metadata"]}


def check_include_object(include_object: str) -> None:
    """Raises StatusError 400 for what is neither one of INCLUDE_OBJECT nor ""."""
    if include_object and include_object not in INCLUDE_OBJECT:
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def table(
    served: Served,
    objects: list[JSON],
    *,
    now: datetime,
    include_object: str,
    list_metadata: JSON,
    api_version: str = _API_VERSION,
    columns: bool = True,
) -> JSON:
    """Objects of one resource (or Scales of it) as a Table.

    `include_object` is one of INCLUDE_OBJECT; with "Object", objects appear as given, so they must carry kind and
    apiVersion. `columns` is false in the second and later events of a watch. Raises StatusError 400 for another
    include_object.
    """
    check_include_object(include_object)
    key = served.resource.group_resource
    if objects and objects[0].get("kind") == "Scale":
        key = "scale"
    key = _ALIASES.get(key, key)
    declared = served.columns if key in ("", served.resource.group_resource) else ()
    key = key if declared or key in PRINTERS else ""
    cells: Print = partial(declared_cells, declared) if declared else PRINTERS[key]
    defined = _columns().get(key) or declared_columns(declared)
    if served.custom is not None and key != "scale":
        cells, defined = served.custom.cells, served.custom.column_definitions(defined)
    rows: list[JSON] = []
    for obj in objects:
        # what a kind shows is worked out from its stored form, also where it is seen in an older one
        row: JSON = {"cells": cells(obj if served.stored_as is None else to_stored(served, obj), now)}
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
        "columnDefinitions": defined if columns else None,
        "rows": rows,
    }
