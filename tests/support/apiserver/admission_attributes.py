"""Admission attributes of a request, for tests of policies."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.authorization.modes import AllowAll
from kubeloop.kube.objects.resources import CONFIG_MAPS, Resource

JSON = dict[str, Any]


def create_attributes(resource: Resource[Any] = CONFIG_MAPS, **fields: Any) -> Attributes:
    """Return the attributes of the creation of object `a`, in `default` if namespaced. fields: replace the defaults."""
    metadata: JSON = {"name": "a", **({"namespace": "default"} if resource.namespaced else {})}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    defaults: JSON = {
        "operation": "CREATE",
        "served": get_served_resource(resource),
        "subresource": "",
        "namespace": metadata.get("namespace", ""),
        "name": "a",
        "object": obj,
        "old": None,
        "options": None,
        "dry_run": False,
        "user": {"username": "alice", "groups": []},
        "authorizer": AllowAll(),
    }
    return Attributes(**{**defaults, **fields})
