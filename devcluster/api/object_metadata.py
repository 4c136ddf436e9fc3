"""Access to the metadata of objects."""

from __future__ import annotations

from kubeloop.kube.json_object import JSON


def without_managed_fields(obj: JSON) -> JSON:
    """Return the object without its managedFields."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}
