"""Access reviews, token reviews, SelfSubjectReviews and SelfSubjectRulesReviews.

Sources: pkg/registry/{authentication,authorization}, pkg/apis/authorization/validation of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes, FieldRequirement
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
)
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authorization.access_attributes import field_requirements
from kubeloop.devcluster.authorization.modes import AuthorizationChain
from kubeloop.devcluster.storage.store import METADATA_FIELDS
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.selectors.selectors import SelectorError, parse_label_selector
from kubeloop.kube.validation.name_checks import label_value, qualified_name

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_RESOURCE_ATTRIBUTES = "spec.resourceAttributes"


_ACCESS_REVIEWS = (SELF_SUBJECT_ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, LOCAL_SUBJECT_ACCESS_REVIEWS)


def check_review(resource: Resource[Any], obj: JSON) -> None:
    """Raise StatusError 400 or 422 for an invalid review."""
    spec = obj.get("spec", {})
    if resource is TOKEN_REVIEWS and not spec.get("token"):
        raise errors.bad_request("token is required for TokenReview in authentication")
    if resource is SELF_SUBJECT_RULES_REVIEWS and not spec.get("namespace"):
        raise errors.bad_request("no namespace on request")
    if resource in _ACCESS_REVIEWS and (causes := _access_review_causes(resource, obj)):
        raise errors.invalid(resource.group, "", "", causes)


def review(
    resource: Resource[Any],
    obj: JSON,
    request: ApiRequest,
    authentication: Authenticator,
    authorization: AuthorizationChain,
) -> JSON:
    """Return a valid review with its status.

    The warning about a reviewed token is added to those of the request.
    """
    user = request.user
    if resource is SELF_SUBJECT_REVIEWS:
        metadata = {name: value for name, value in obj["metadata"].items() if name == "creationTimestamp"}
        return {**obj, "metadata": metadata, "status": {"userInfo": user}}
    if resource is TOKEN_REVIEWS:
        spec = obj["spec"]
        status = authentication.token_review_status(spec["token"], spec.get("audiences") or (), request)
        return {**obj, "status": status}
    if resource is SELF_SUBJECT_RULES_REVIEWS:
        rules = authorization.rules_of(user, obj["spec"]["namespace"])
        status = {
            "resourceRules": rules.resource_rules,
            "nonResourceRules": rules.non_resource_rules,
            "incomplete": rules.incomplete,
        }
        if rules.error:
            status["evaluationError"] = rules.error
        return {**obj, "metadata": {}, "spec": {}, "status": status}
    if resource is not SELF_SUBJECT_ACCESS_REVIEWS:
        spec = obj["spec"]
        user = {"username": spec.get("user", ""), "groups": spec.get("groups") or [], "extra": spec.get("extra") or {}}
    attributes, problems = _attributes(user, obj["spec"])
    decision = authorization.authorize(attributes)
    status = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if problems:
        status["evaluationError"] = "; ".join(problems)
    return {**obj, "status": status}


def _attributes(user: JSON, spec: JSON) -> tuple[AccessAttributes, list[str]]:
    """Return the reviewed attributes, and messages about selectors that are ignored."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        url = spec["nonResourceAttributes"]
        return AccessAttributes(user, url.get("verb", ""), path=url.get("path", "")), []
    fields, are_valid_fields = _field_requirements(resource.get("fieldSelector") or {})
    labels, are_valid_labels = _label_requirements(resource.get("labelSelector") or {})
    problems = [
        f"{_RESOURCE_ATTRIBUTES}.{name} {'partially ignored' if requirements else 'ignored'} due to parse error"
        for name, requirements, are_valid in (
            ("fieldSelector", fields, are_valid_fields),
            ("labelSelector", labels, are_valid_labels),
        )
        if not are_valid
    ]
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    values = {name: resource.get(name, "") for name in names}
    return AccessAttributes(user=user, **values, field_selector=fields), problems


def _field_requirements(selector: JSON) -> tuple[Sequence[FieldRequirement], bool]:
    """Return the valid requirements of a field selector, and False if there are invalid ones."""
    if raw := selector.get("rawSelector"):
        parsed = field_requirements(raw)
        return parsed or (), parsed is not None
    operators = {"In": "=", "NotIn": "!="}
    requirements = [
        FieldRequirement(entry.get("key", ""), operators[entry["operator"]], entry["values"][0])
        for entry in selector.get("requirements") or ()
        if entry.get("operator") in operators and len(entry.get("values") or ()) == 1
    ]
    return requirements, len(requirements) == len(selector.get("requirements") or ())


def _label_requirements(selector: JSON) -> tuple[Sequence[JSON], bool]:
    """Return the valid requirements of a label selector, and False if there are invalid ones."""
    if raw := selector.get("rawSelector"):
        try:
            parse_label_selector(raw)
        except SelectorError:
            return [], False
        return [selector], True
    entries = selector.get("requirements") or []
    valid = [entry for entry in entries if entry.get("operator") in _LABEL_OPERATORS]  # all else is validated
    return valid, len(valid) == len(entries)


def _access_review_causes(resource: Resource[Any], obj: JSON) -> list[JSON]:
    causes, spec, metadata = ErrorList(), obj.get("spec", {}), obj["metadata"]
    is_local = resource is LOCAL_SUBJECT_ACCESS_REVIEWS
    resource_attributes, non_resource_attributes = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    go_struct = {
        "Path": (non_resource_attributes or {}).get("path", ""),
        "Verb": (non_resource_attributes or {}).get("verb", ""),
    }
    if resource_attributes is not None and non_resource_attributes is not None:
        causes.invalid(
            "spec.nonResourceAttributes", go_struct, "cannot be specified in combination with resourceAttributes"
        )
    if resource_attributes is None and non_resource_attributes is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.invalid(_RESOURCE_ATTRIBUTES, None, detail)
    if resource is not SELF_SUBJECT_ACCESS_REVIEWS and not spec.get("user") and not spec.get("groups"):
        causes.invalid("spec.user", "", "at least one of user or group must be specified")
    for name in ("fieldSelector", "labelSelector"):
        if (resource_attributes or {}).get(name) is not None:
            _validate_selector(causes, f"{_RESOURCE_ATTRIBUTES}.{name}", resource_attributes[name])
    allowed = {"managedFields", "namespace"} if is_local else {"managedFields"}
    if any(value for name, value in metadata.items() if name not in allowed):
        detail = "must be empty except for namespace" if is_local else "must be empty"
        message = f"Invalid value: {_go_metadata(metadata)}: {detail}"
        causes.append(errors.cause("FieldValueInvalid", "metadata", message))
    if (
        is_local
        and resource_attributes is not None
        and resource_attributes.get("namespace", "") != metadata.get("namespace", "")
    ):
        detail = "must match metadata.namespace"
        causes.invalid(f"{_RESOURCE_ATTRIBUTES}.namespace", resource_attributes.get("namespace", ""), detail)
    if is_local and non_resource_attributes is not None:
        causes.invalid("spec.nonResourceAttributes", go_struct, "disallowed on this kind of request")
    return causes


def _go_metadata(metadata: JSON) -> str:
    """Return metadata as Go's field errors show it: fields in the order of the type, map entries by key."""
    fields_in_order = {name: metadata[name] for name in METADATA_FIELDS if metadata.get(name)}
    for name in ("labels", "annotations"):
        if name in fields_in_order:
            fields_in_order[name] = dict(sorted(fields_in_order[name].items()))
    if "managedFields" in fields_in_order:
        entries = [
            (entry, msgspec.json.encode(entry["fieldsV1"], order="sorted"))
            for entry in fields_in_order["managedFields"]
        ]
        fields_in_order["managedFields"] = [{**entry, "fieldsV1": msgspec.Raw(fields)} for entry, fields in entries]
    return msgspec.json.encode(fields_in_order).decode()


def _validate_selector(causes: ErrorList, path: str, selector: JSON) -> None:
    raw_selector, requirements = selector.get("rawSelector"), selector.get("requirements") or []
    if raw_selector and requirements:
        causes.invalid(f"{path}.rawSelector", raw_selector, "may not specified at the same time as requirements")
    if not raw_selector and not requirements:
        causes.required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
    is_field_selector = path.endswith("fieldSelector")
    for i, requirement in enumerate(requirements):
        where, key, operator = f"{path}.requirements[{i}]", requirement.get("key", ""), requirement.get("operator", "")
        values = requirement.get("values") or []
        if is_field_selector and not key:
            causes.required(f"{where}.key", "must be specified")
        if operator in ("In", "NotIn") and not values:
            causes.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.forbidden(f"{where}.values", detail)
        if not is_field_selector:
            causes.check(f"{where}.key", key, qualified_name)
            for j, value in enumerate(values):
                causes.check(f"{where}.values[{j}]", value, label_value)
