"""The objects that a binding gives its policy as `params`. Source: policy/generic CollectParams of v1.36."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.field_checks import selector_matches
from kubeloop.kube.json_object import JSON


class ConfigurationError(Exception):
    """A policy and its binding do not say which parameters they mean, or there are none where there must be."""


def param_resource(spec: JSON, find: Callable[[str, str], ServedResource | None]) -> ServedResource | None:
    """The resource that a policy's paramKind names, None if it wants no parameters. Raises WrongConfiguration."""
    wanted = spec.get("paramKind")
    if wanted is None:
        return None
    found = find(wanted["apiVersion"], wanted["kind"])
    if found is None:
        group, _, version = wanted["apiVersion"].rpartition("/")
        named = f"{group}/{version}, Kind={wanted['kind']}"
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{named}'")
    return found


def collect_params(
    kind: ServedResource | None, reference: JSON | None, namespace: str, store: Store
) -> Sequence[JSON | None]:
    """What a policy is to be run with, once for each; (None,) for no parameters. Raises WrongConfiguration.

    reference: the binding's paramRef. namespace: the request's.
    """
    if kind is None or reference is None:
        return (None,)
    resource, given = kind.resource, reference.get("namespace", "")
    if resource.namespaced:
        namespace = given or namespace
        if not namespace:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif given:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    else:
        namespace = ""
    if reference.get("name"):
        one = store.get(resource, namespace, reference["name"])
        found = [] if one is None else [one]
    else:
        selector = reference.get("selector")
        found = [
            each
            for each in store.list(resource, namespace)
            if selector_matches(selector, each["metadata"].get("labels") or {})
        ]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [from_stored(kind, each) for each in found]
