"""Attributes by which a request is authorized. Source: apiserver pkg/endpoints/filters/authorization.go of v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.authorizer import AccessAttributes, FieldRequirement
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_attributes import request_attributes
from kubeloop.kube.selectors.selectors import SelectorError, parse_field_selector


def access_attributes(request: ApiRequest) -> AccessAttributes:
    """Return the attributes of a request of the user `request.user`."""
    sent = request_attributes(request)
    if not sent.is_resource_request:
        return AccessAttributes(request.user, sent.verb, path=sent.path)
    return AccessAttributes(
        request.user,
        sent.verb,
        sent.group,
        sent.resource,
        sent.subresource,
        sent.namespace,
        sent.name,
        field_selector=field_requirements(sent.field_selector) or () if sent.field_selector else (),
    )


def field_requirements(selector: str) -> tuple[FieldRequirement, ...] | None:
    """Return the requirements of a field selector, None if it is invalid."""
    try:
        return tuple([FieldRequirement(*term) for term in parse_field_selector(selector).terms])
    except SelectorError:
        return None
