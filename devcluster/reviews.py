"""Reviews: questions about who asks and what they may do. One user, the administrator, may do everything."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.registry import (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
)
from kubeloop.kube.resources import Resource

JSON = dict[str, Any]

USER: JSON = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}


def review(resource: Resource[Any], obj: JSON, token: str | None) -> JSON:
    """The answer to one review: the object with its status. Raises StatusError 422."""
    if resource is SELF_SUBJECT_REVIEWS:
        status: JSON = {"userInfo": USER}
    elif resource is TOKEN_REVIEWS:
        given = obj.get("spec", {}).get("token", "")
        known = bool(given) and (token is None or given == token)
        status = {"authenticated": True, "user": USER} if known else {"user": {}}
    elif resource in (SELF_SUBJECT_ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, LOCAL_SUBJECT_ACCESS_REVIEWS):
        spec = obj.get("spec", {})
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            causes = [errors.cause("FieldValueInvalid", "spec.resourceAttributes", f"Invalid value: null: {why}")]
            raise errors.invalid(resource.group, "", "", causes)
        status = {"allowed": True}
    else:
        assert resource is SELF_SUBJECT_RULES_REVIEWS, resource
        everything = ["*"]
        status = {
            "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
            "incomplete": False,
        }
    return {**obj, "status": status}
