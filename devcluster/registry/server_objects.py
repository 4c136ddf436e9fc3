"""Objects that the API server creates itself, with the metadata that a client's request would have given them.

Field ownership is computed once per process; times and uid are stamped for each server.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.api.served_resources import CLUSTER_ROLES, get_served_resource
from kubeloop.devcluster.managedfields.field_sets import all_fields, initial_fields, new_entry
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

API_SERVER_MANAGER = "kube-apiserver"


class ServerObject(msgspec.Struct, frozen=True):
    """An object to create.

    content: fields beside metadata, as in a request. strategy_fields: fields that a strategy sets, which have no owner,
    by top-level field and name. status_applier: field manager that applies the status.
    """

    name: str
    namespace: str = ""
    labels: JSON = msgspec.field(default_factory=dict)
    annotations: JSON = msgspec.field(default_factory=dict)
    content: JSON = msgspec.field(default_factory=dict)
    strategy_fields: JSON = msgspec.field(default_factory=dict)
    status: JSON = msgspec.field(default_factory=dict)
    status_applier: str = ""
    manager: str = API_SERVER_MANAGER


def namespace_object(name: str) -> ServerObject:
    """Return a namespace as it is created without labels and annotations."""
    return ServerObject(
        name,
        labels={"kubernetes.io/metadata.name": name},
        strategy_fields={"spec": {"finalizers": ["kubernetes"]}},
        status={"phase": "Active"},
    )


def object_template(resource: Resource[Any], server_object: ServerObject) -> JSON:
    """Return the object without uid and times."""
    target = get_served_resource(resource)
    metadata = {"labels": server_object.labels, "annotations": server_object.annotations}
    labelled: JSON = {"metadata": {name: value for name, value in metadata.items() if value}}
    entries = []
    if server_object.status_applier:
        conditions = [{**condition, "lastTransitionTime": "-"} for condition in server_object.status["conditions"]]
        owned = all_fields(value_type_of(resource), {"status": {"conditions": conditions}})
        entries.append(new_entry(target, server_object.status_applier, "Apply", "status", owned, ""))
        conditions = [{"reason": "", **condition} for condition in server_object.status["conditions"]]
        status: JSON = {"status": {"conditions": conditions}}
    else:
        status = {"status": server_object.status} if server_object.status else {}
    if fields := initial_fields(target, {**labelled, **server_object.content}, subresource=""):
        entries.append(new_entry(target, server_object.manager, "Update", "", fields, ""))
    namespace = {"namespace": server_object.namespace} if server_object.namespace else {}
    generation = {"generation": 1} if target.generation else {}
    content = {
        name: value for name, value in server_object.content.items() if name not in server_object.strategy_fields
    }
    for name, value in server_object.strategy_fields.items():
        content[name] = {**server_object.content[name], **value} if name in server_object.content else value
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {
            "name": server_object.name,
            **namespace,
            **generation,
            **labelled["metadata"],
            "managedFields": entries,
        },
        **content,
        **status,
    }


def with_applied_rules(role: JSON, rules: list[JSON], manager: str) -> JSON:
    """Return the template of a ClusterRole with rules that a field manager has applied."""
    owned = all_fields(value_type_of(CLUSTER_ROLES), {"rules": rules})
    entry = new_entry(get_served_resource(CLUSTER_ROLES), manager, "Apply", "", owned, "")
    metadata = {**role["metadata"], "managedFields": [entry, *role["metadata"]["managedFields"]]}
    return {**role, "metadata": metadata, "rules": rules}


def stamp_object(obj: JSON, uid: str, now: str) -> JSON:
    """Return the object of a template; it shares the template's parts that hold no time."""
    metadata = obj["metadata"]
    entries = [{**entry, "time": now} for entry in metadata["managedFields"]]
    result = {**obj, "metadata": {**metadata, "uid": uid, "creationTimestamp": now}}
    if entries:
        result["metadata"]["managedFields"] = entries
    else:
        del result["metadata"]["managedFields"]
    if conditions := obj.get("status", {}).get("conditions"):
        stamped_conditions = [{**condition, "lastTransitionTime": now} for condition in conditions]
        result["status"] = {**obj["status"], "conditions": stamped_conditions}
    return result
