"""Objects for tests of validation, and the causes that validating them gives."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.validate import validate_create, validate_update
from kubeloop.kube.objects.resources import Resource

JSON = dict[str, Any]


def defaulted(resource: Resource[Any], body: JSON) -> JSON:
    """Return `body` in the form that the server validates: decoded, defaulted, with the metadata the server sets."""
    obj, unknown = decode(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **deepcopy(body)})
    assert not unknown
    metadata = obj.setdefault("metadata", {})
    metadata.setdefault("name", "x")
    metadata["uid"] = "u"
    if resource.namespaced:
        metadata["namespace"] = "default"
    apply_defaults(resource, obj)
    return obj


def cause_texts(causes: list[JSON]) -> list[str]:
    """Return "field: message" of every cause, without the examples that follow "(e.g."."""
    return [f"{cause['field']}: {cause['message'].partition(' (e.g.')[0]}" for cause in causes]


def validator_causes(validator: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Return the causes that one validation function adds to an empty error list."""
    errors = ErrorList()
    validator(errors, *args, **options)
    return cause_texts(errors)


def create_causes(resource: Resource[Any], body: JSON) -> list[str]:
    return cause_texts(validate_create(strategy_of(resource), resource, defaulted(resource, body)))


def update_causes(resource: Resource[Any], old: JSON, new: JSON, subresource: str = "") -> list[str]:
    new, old = defaulted(resource, new), defaulted(resource, old)
    return cause_texts(validate_update(strategy_of(resource), resource, new, old, subresource=subresource))


def pod(**spec: Any) -> JSON:
    """Return a valid pod, with fields of its spec replaced."""
    return {"spec": {"containers": [{"name": "c", "image": "nginx"}], **spec}}


def pod_with_container(**fields: Any) -> JSON:
    """Return a valid pod whose container has `fields`."""
    return pod(containers=[{"name": "c", "image": "nginx", **fields}])


def workload(**spec: Any) -> JSON:
    """Return a Deployment or ReplicaSet of such pods, with fields of its spec replaced."""
    return {
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, **pod()},
            **spec,
        }
    }
