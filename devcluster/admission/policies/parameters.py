"""Parameter objects of a policy's binding. Source: policy/generic CollectParams of v1.36."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.serializer.conversion import all_from_stored
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import selector_matches
from kubeloop.kube.json_object import JSON


class ConfigurationError(Exception):
    """The parameters of a policy and its binding are inconsistent, or missing although they are required."""


def param_resource(spec: JSON, find_resource: Callable[[str, str], ServedResource | None]) -> ServedResource | None:
    """Return the resource of a policy's paramKind, None without one. Raises ConfigurationError."""
    param_kind = spec.get("paramKind")
    if param_kind is None:
        return None
    resource = find_resource(param_kind["apiVersion"], param_kind["kind"])
    if resource is None:
        group, _, version = param_kind["apiVersion"].rpartition("/")
        kind_text = f"{group}/{version}, Kind={param_kind['kind']}"
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{kind_text}'")
    return resource


async def collect_params(
    kind: ServedResource | None, reference: JSON | None, namespace: str, store: ObjectStore
) -> Sequence[JSON | None]:
    """Return the parameter objects, one for each run of the policy; (None,) without any.

    reference: the binding's paramRef. namespace: the request's. Raises ConfigurationError, and StatusError 500 if a
    conversion webhook fails.
    """
    if kind is None or reference is None:
        return (None,)
    resource, param_namespace = kind.resource, reference.get("namespace", "")
    if resource.namespaced:
        namespace = param_namespace or namespace
        if not namespace:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif param_namespace:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    else:
        namespace = ""
    if reference.get("name"):
        obj = store.get(resource, namespace, reference["name"])
        objects = [] if obj is None else [obj]
    else:
        selector = reference.get("selector")
        objects = [
            param
            for param in store.list(resource, namespace)
            if selector_matches(selector, param["metadata"].get("labels") or {})
        ]
    if not objects and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return await all_from_stored(kind, objects)
