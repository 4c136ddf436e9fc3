"""Columns of tables: a row is declared as its columns, functions of the object and the time, after its name.

    cells=row(text_of("spec.attacher"), boolean_of("status.attached"), AGE)

Paths name fields. Source: kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kubeloop.devcluster.api.field_access import value_at
from kubeloop.devcluster.api.strategy import ComputedColumn
from kubeloop.devcluster.printers.formatting import (
    NONE,
    CellPrinter,
    Cells,
    age_since,
    is_terminating,
    labels_text,
    object_age,
    object_name,
    selector_text,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def row(*columns: ComputedColumn, name: Callable[[JSON], str] = object_name) -> CellPrinter:
    """Return the printer of rows with the name and these columns."""

    def cells(obj: JSON, now: datetime) -> Cells:
        return [name(obj), *(column(obj, now) for column in columns)]

    return cells


AGE = object_age


def age_of(path: str, unset: str) -> ComputedColumn:
    """Return the column with the age of a timestamp."""
    names = path.split(".")

    def cell(obj: JSON, now: datetime) -> str:
        time = value_at(obj, names)
        return age_since(time, now) if time else unset

    return cell


def text_of(path: str, unset: str = "") -> ComputedColumn:
    """Return the column with the text of a field, for a list that of its items."""
    names = path.split(".")

    def cell(obj: JSON, _now: datetime) -> str:
        value = value_at(obj, names)
        if isinstance(value, list):
            value = ",".join(map(str, value))
        return unset if value in (None, "") else str(value)

    return cell


def number_of(path: str) -> ComputedColumn:
    """Return the column with a number, for a list or map that of its items."""
    names = path.split(".")

    def cell(obj: JSON, _now: datetime) -> int:
        value = value_at(obj, names) or 0
        return len(value) if isinstance(value, list | dict) else value

    return cell


def boolean_of(path: str) -> ComputedColumn:
    names = path.split(".")
    return lambda obj, _now: bool(value_at(obj, names))


def labels_of(path: str) -> ComputedColumn:
    names = path.split(".")
    return lambda obj, _now: labels_text(value_at(obj, names))


def selector_of(path: str, unset: str = NONE) -> ComputedColumn:
    """Return the column with a LabelSelector."""
    names = path.split(".")
    return lambda obj, _now: selector_text(value_at(obj, names)) or unset


def containers_of(path: str) -> tuple[ComputedColumn, ComputedColumn]:
    """Return the columns with the names and the images of a pod template's containers."""
    names = [*path.split("."), "spec", "containers"]

    def joined(field: str) -> ComputedColumn:
        return lambda obj, _now: ",".join(container.get(field, "") for container in value_at(obj, names) or ())

    return joined("name"), joined("image")


def ready_replicas(obj: JSON, _now: datetime) -> str:
    return f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"


def load_balancer_addresses(obj: JSON, _now: datetime) -> str:
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({entry.get("ip") or entry.get("hostname", "") for entry in ingress} - {""}))


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_modes(path: str) -> ComputedColumn:
    """Return the column with the access modes of a volume, abbreviated."""
    names = path.split(".")

    def cell(obj: JSON, _now: datetime) -> str:
        modes = value_at(obj, names) or ()
        return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)

    return cell


def storage_class_name(obj: JSON, _now: datetime) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get("volume.beta.kubernetes.io/storage-class") or spec_of(obj).get("storageClassName") or "")


def phase_or_terminating(obj: JSON, _now: datetime) -> str:
    return "Terminating" if is_terminating(obj) else str(status_of(obj).get("phase", ""))
