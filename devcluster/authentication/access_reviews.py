"""Reviews: questions about who asks and what they may do. Every user may do everything.

Sources: pkg/registry/{authentication,authorization}, pkg/apis/authorization/validation of v1.36.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.name_checks import label_value
from kubeloop.devcluster.api.served_resources import (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
)
from kubeloop.devcluster.authentication.authenticator import Authentication
from kubeloop.devcluster.storage.store import METADATA_FIELDS
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import validate_label_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_ATTRIBUTES = "spec.resourceAttributes"


def review(resource: Resource[Any], obj: JSON, user: JSON, authentication: Authentication) -> JSON:
    """The answer to one review that `user` asks for: the object with its status. Raises StatusError 400, 422."""
    if resource is SELF_SUBJECT_REVIEWS:
        metadata = {name: each for name, each in obj["metadata"].items() if name == "creationTimestamp"}
        return {**obj, "metadata": metadata, "status": {"userInfo": user}}
    if resource is TOKEN_REVIEWS:
        spec = obj.get("spec", {})
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        return {**obj, "status": authentication.reviewed(spec["token"], spec.get("audiences") or ())}
    if resource is SELF_SUBJECT_RULES_REVIEWS:
        if not obj.get("spec", {}).get("namespace"):
            raise errors.bad_request("no namespace on request")
        everything = ["*"]
        status = {
            "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
            "incomplete": False,
        }
        return {**obj, "metadata": {}, "spec": {}, "status": status}
    assert resource in (SELF_SUBJECT_ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, LOCAL_SUBJECT_ACCESS_REVIEWS), resource
    if causes := _access_causes(resource, obj):
        raise errors.invalid(resource.group, "", "", causes)
    return {**obj, "status": {"allowed": True}}


def _access_causes(resource: Resource[Any], obj: JSON) -> list[JSON]:
    wrong, spec, metadata = ErrorList(), obj.get("spec", {}), obj["metadata"]
    local = resource is LOCAL_SUBJECT_ACCESS_REVIEWS
    about, elsewhere = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    in_go = {"Path": (elsewhere or {}).get("path", ""), "Verb": (elsewhere or {}).get("verb", "")}
    if about is not None and elsewhere is not None:
        wrong.invalid("spec.nonResourceAttributes", in_go, "cannot be specified in combination with resourceAttributes")
    if about is None and elsewhere is None:
        told = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong.invalid(_ATTRIBUTES, None, told)
    if resource is not SELF_SUBJECT_ACCESS_REVIEWS and not spec.get("user") and not spec.get("groups"):
        wrong.invalid("spec.user", "", "at least one of user or group must be specified")
    for name in ("fieldSelector", "labelSelector"):
        if (about or {}).get(name) is not None:
            _selector(wrong, f"{_ATTRIBUTES}.{name}", about[name])
    allowed = {"managedFields", "namespace"} if local else {"managedFields"}
    if any(value for name, value in metadata.items() if name not in allowed):
        told = "must be empty except for namespace" if local else "must be empty"
        text = f"Invalid value: {_metadata_in_go(metadata)}: {told}"
        wrong.append(errors.cause("FieldValueInvalid", "metadata", text))
    if local and about is not None and about.get("namespace", "") != metadata.get("namespace", ""):
        told = "must match metadata.namespace"
        wrong.invalid(f"{_ATTRIBUTES}.namespace", about.get("namespace", ""), told)
    if local and elsewhere is not None:
        wrong.invalid("spec.nonResourceAttributes", in_go, "disallowed on this kind of request")
    return wrong


def _metadata_in_go(metadata: JSON) -> str:
    """Metadata as Go's field errors show it: fields in the order of the type, what is in maps by name."""
    shown = {name: metadata[name] for name in METADATA_FIELDS if metadata.get(name)}
    for name in ("labels", "annotations"):
        if name in shown:
            shown[name] = dict(sorted(shown[name].items()))
    if "managedFields" in shown:
        owned = [(each, msgspec.json.encode(each["fieldsV1"], order="sorted")) for each in shown["managedFields"]]
        shown["managedFields"] = [{**each, "fieldsV1": msgspec.Raw(fields)} for each, fields in owned]
    return msgspec.json.encode(shown).decode()


def _selector(wrong: ErrorList, path: str, selector: JSON) -> None:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or []
    if raw and requirements:
        wrong.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        wrong.required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
    of_fields = path.endswith("fieldSelector")
    for i, each in enumerate(requirements):
        where, key, operator = f"{path}.requirements[{i}]", each.get("key", ""), each.get("operator", "")
        values = each.get("values") or []
        if of_fields and not key:
            wrong.required(f"{where}.key", "must be specified")
        if operator in ("In", "NotIn") and not values:
            wrong.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            told = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            wrong.forbidden(f"{where}.values", told)
        if not of_fields:
            validate_label_name(wrong, f"{where}.key", key)
            for j, value in enumerate(values):
                wrong.invalid_each(f"{where}.values[{j}]", value, label_value(value))
