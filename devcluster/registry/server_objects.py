"""An object that the server makes by itself, and how it comes to look as if it had been sent.

Who owns which of its fields is worked out once in a process; time and uid are stamped on it for each server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubeloop.devcluster.api.served_resources import served
from kubeloop.devcluster.managedfields.field_sets import configuration_fields, initial_fields, new_entry
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

API_SERVER_MANAGER = "kube-apiserver"


@dataclass(frozen=True, slots=True)
class ServerObject:
    """content: the object's fields beside metadata, as they are sent. beside: what a strategy sets, which nobody owns;
    by top-level field, and within it by name. applied: who applies the status."""

    name: str
    namespace: str = ""
    labels: JSON = field(default_factory=dict)
    annotations: JSON = field(default_factory=dict)
    content: JSON = field(default_factory=dict)
    beside: JSON = field(default_factory=dict)
    status: JSON = field(default_factory=dict)
    applied: str = ""
    manager: str = API_SERVER_MANAGER


def object_template(resource: Resource[Any], made: ServerObject) -> JSON:
    """The object without uid and times."""
    target = served(resource)
    metadata = {"labels": made.labels, "annotations": made.annotations}
    said: JSON = {"metadata": {name: value for name, value in metadata.items() if value}}
    entries = []
    if made.applied:
        conditions = [{**condition, "lastTransitionTime": "-"} for condition in made.status["conditions"]]
        struct = schema.type_for(resource.group, resource.version, resource.kind)
        assert struct is not None, resource.kind
        owned = configuration_fields(struct, {"status": {"conditions": conditions}})
        entries.append(new_entry(target, made.applied, "Apply", "status", owned, ""))
        conditions = [{"reason": "", **condition} for condition in made.status["conditions"]]
        said_status: JSON = {"status": {"conditions": conditions}}
    else:
        said_status = {"status": made.status} if made.status else {}
    if fields := initial_fields(target, {**said, **made.content}, subresource=""):
        entries.append(new_entry(target, made.manager, "Update", "", fields, ""))
    whole = {"namespace": made.namespace} if made.namespace else {}
    generation = {"generation": 1} if target.generation else {}
    content = {name: value for name, value in made.content.items() if name not in made.beside}
    for name, value in made.beside.items():
        content[name] = {**made.content[name], **value} if name in made.content else value
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"name": made.name, **whole, **generation, **said["metadata"], "managedFields": entries},
        **content,
        **said_status,
    }


def stamp_object(obj: JSON, uid: str, now: str) -> JSON:
    """A template as an object of its own; shares with it what has no time in it."""
    metadata = obj["metadata"]
    entries = [{**managed_field, "time": now} for managed_field in metadata["managedFields"]]
    result = {**obj, "metadata": {**metadata, "uid": uid, "creationTimestamp": now, "managedFields": entries}}
    if conditions := obj.get("status", {}).get("conditions"):
        timed = [{**condition, "lastTransitionTime": now} for condition in conditions]
        result["status"] = {**obj["status"], "conditions": timed}
    return result
