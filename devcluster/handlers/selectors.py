"""Label and field selectors of lists and watches, with the fields that each kind supports.

A selection is a predicate on JSON objects. Source of the fields: pkg/apis/core/v1/conversion.go and the strategies'
SelectableFields of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.kube.json_object import JSON
from kubeloop.kube.selectors import FieldSelector, SelectorError, parse_field_selector, parse_label_selector

Selection = Callable[[JSON], bool]
Getter = Callable[[JSON], str]


def _field_getter(*path: str) -> Getter:
    *parents, last = path

    def get(obj: JSON) -> str:
        for parent in parents:
            inner = obj.get(parent)
            if type(inner) is not dict:
                return ""
            obj = inner
        value = obj.get(last)
        return _as_text(value)

    return get


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _boolean(*path: str) -> Getter:
    get = _field_getter(*path)
    return lambda obj: get(obj) or "false"


def _number(*path: str) -> Getter:
    get = _field_getter(*path)
    return lambda obj: get(obj) or "0"


def _source(obj: JSON) -> str:
    return _field_getter("source", "component")(obj) or _field_getter("reportingComponent")(obj)


_METADATA: dict[str, Getter] = {
    "metadata.name": _field_getter("metadata", "name"),
    "metadata.namespace": _field_getter("metadata", "namespace"),
}
_EVENT: dict[str, Getter] = {
    **_METADATA,
    **{
        f"involvedObject.{field}": _field_getter("involvedObject", field)
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": _field_getter("reason"),
    "reportingComponent": _field_getter("reportingComponent"),
    "source": _source,
    "type": _field_getter("type"),
}
_REGARDING: dict[str, Getter] = {
    **_METADATA,
    **{
        f"regarding.{field}": _field_getter("involvedObject", field)
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": _field_getter("reason"),
    "reportingController": _field_getter("reportingComponent"),
    "source": _source,
    "type": _field_getter("type"),
}
FIELDS: dict[str, dict[str, Getter]] = {
    "pods": {
        **_METADATA,
        "spec.nodeName": _field_getter("spec", "nodeName"),
        "spec.restartPolicy": _field_getter("spec", "restartPolicy"),
        "spec.schedulerName": _field_getter("spec", "schedulerName"),
        "spec.serviceAccountName": _field_getter("spec", "serviceAccountName"),
        "spec.hostNetwork": _boolean("spec", "hostNetwork"),
        "status.phase": _field_getter("status", "phase"),
        "status.podIP": _field_getter("status", "podIP"),
        "status.podIPs": lambda _pod: "",  # selectable, but ToSelectableFields never sets it
        "status.nominatedNodeName": _field_getter("status", "nominatedNodeName"),
    },
    "nodes": {"metadata.name": _METADATA["metadata.name"], "spec.unschedulable": _boolean("spec", "unschedulable")},
    "namespaces": {"metadata.name": _METADATA["metadata.name"], "status.phase": _field_getter("status", "phase")},
    "replicationcontrollers": {**_METADATA, "status.replicas": _number("status", "replicas")},
    "events": _EVENT,
    "events.events.k8s.io": _REGARDING,
    "secrets": {**_METADATA, "type": _field_getter("type")},
    "services": {
        **_METADATA,
        "spec.clusterIP": _field_getter("spec", "clusterIP"),
        "spec.type": _field_getter("spec", "type"),
    },
    "jobs.batch": {**_METADATA, "status.successful": _number("status", "succeeded")},
    "certificatesigningrequests.certificates.k8s.io": {
        "metadata.name": _METADATA["metadata.name"],
        "spec.signerName": _field_getter("spec", "signerName"),
    },
    "resourceslices.resource.k8s.io": {
        "metadata.name": _METADATA["metadata.name"],
        "spec.driver": _field_getter("spec", "driver"),
        "spec.nodeName": _field_getter("spec", "nodeName"),
    },
}
"""Getters per kind with its own selectable fields, by group resource."""


def _parse_fields(text: str) -> FieldSelector:
    """Parse a field selector. Raises StatusError 400 with Kubernetes' message."""
    try:
        return parse_field_selector(text)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def selected_name(field_selector: str) -> str:
    """Return the name that a field selector requires, "" if none. Raises StatusError 400."""
    if "metadata.name" not in field_selector:
        return ""
    return _parse_fields(field_selector).exact("metadata.name") or ""


def _field_getters(served: ServedResource, selector: FieldSelector) -> list[tuple[Getter, bool, str]]:
    own = (
        FIELDS.get(served.resource.group_resource) if served.crd_version is None else served.crd_version.field_getters()
    )
    field_getters = _METADATA if own is None else own
    bound = []
    for field, operator, value in selector.terms:
        getter = field_getters.get(field)
        if getter is None:
            if own is None:
                supported = '"metadata.name", "metadata.namespace"'
                raise errors.bad_request(f'"{field}" is not a known field selector: only {supported}')
            if served.resource.group_resource == "jobs.batch":
                raise errors.bad_request(f'field label "{field}" not supported for Job')
            if served.resource.group_resource == "resourceslices.resource.k8s.io":
                kind = f"{served.resource.api_version}, Kind=ResourceSlice"
                raise errors.bad_request(f"field label not supported for {kind}: {field}")
            raise errors.bad_request(f"field label not supported: {field}")
        bound.append((getter, operator == "=", value))
    return bound


def selection(served: ServedResource, label_selector: str, field_selector: str) -> Selection | None:
    """Return the predicate of both selectors, None if they match everything. Raises StatusError 400."""
    try:
        labels = parse_label_selector(label_selector) if label_selector else None
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    fields = _field_getters(served, _parse_fields(field_selector)) if field_selector else []
    matches = labels.matches if labels is not None and not labels.empty else None
    if matches is None and not fields:
        return None
    if matches is None and len(fields) == 1:
        get, equal, value = fields[0]
        return (lambda obj: get(obj) == value) if equal else (lambda obj: get(obj) != value)

    def select(obj: JSON) -> bool:
        if matches is not None and not matches(obj["metadata"].get("labels") or {}):
            return False
        return all((get(obj) == value) is equal for get, equal, value in fields)

    return select
