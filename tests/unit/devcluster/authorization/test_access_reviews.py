"""Access and token reviews as kube-apiserver v1.36 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import SUBJECT_ACCESS_REVIEWS
from kubeloop.devcluster.authorization import access_reviews
from support.apiserver.api_requests import InProcessApi
from support.objects.validation_causes import cause_texts

JSON = dict[str, Any]
AUTHORIZATION, AUTHENTICATION = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
LOCAL_REVIEWS = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
PODS_ATTRIBUTES: JSON = {"verb": "get", "resource": "pods", "namespace": "default"}


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(token="right")


def review(api: InProcessApi, path: str, body: JSON) -> tuple[int, JSON]:
    status, response = api("POST", path, body, authorization="Bearer right")
    return status, response


async def test_local_review_uses_the_namespace_of_its_path(api: InProcessApi):
    status, response = review(api, LOCAL_REVIEWS, {"spec": {"user": "u", "resourceAttributes": PODS_ATTRIBUTES}})
    assert (status, response["metadata"]["namespace"], response["status"]) == (201, "default", {"allowed": False})
    status, response = review(
        api, LOCAL_REVIEWS, {"spec": {"user": "u", "resourceAttributes": {**PODS_ATTRIBUTES, "namespace": "x"}}}
    )
    assert (status, response["details"]["causes"][0]["message"]) == (
        422,
        'Invalid value: "x": must match metadata.namespace',
    )
    status, response = review(api, LOCAL_REVIEWS, {"metadata": {"namespace": "x"}, "spec": {"user": "u"}})
    assert (status, "does not match the namespace" in response["message"]) == (400, True)


@pytest.mark.parametrize("plural", ["subjectaccessreviews", "selfsubjectaccessreviews"])
async def test_cluster_scoped_review_drops_the_namespace(api: InProcessApi, plural: str):
    body = {"metadata": {"namespace": "x"}, "spec": {"resourceAttributes": PODS_ATTRIBUTES, "groups": ["g"]}}
    status, response = review(api, f"{AUTHORIZATION}/{plural}", body)
    assert (status, "namespace" in response["metadata"]) == (201, False)


async def test_unknown_fields_warn_even_if_the_review_is_invalid(api: InProcessApi):
    status, _ = review(api, f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"foo": 1}})
    assert (status, api.warnings) == (422, ['299 - "unknown field \\"spec.foo\\""'])


async def test_token_review_of_valid_and_invalid_tokens(api: InProcessApi):
    for token, status in (("right", {"authenticated": True}), ("wrong", {"error": "invalid bearer token"})):
        response = review(api, f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token}})[1]
        assert status.items() <= response["status"].items()


async def test_token_bound_to_an_empty_reference_is_rejected(api: InProcessApi):
    account = {"metadata": {"name": "robot"}}
    api("POST", "/api/v1/namespaces/default/serviceaccounts", account, authorization="Bearer right")
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    status, response = review(api, path, {"spec": {"boundObjectRef": {}}})
    assert (status, response["message"]) == (400, "cannot bind token to object of type /, Kind=")


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(
            {"user": "u"},
            [
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
                "resourceAttributes must be specified"
            ],
            id="no attributes",
        ),
        pytest.param(
            {"resourceAttributes": PODS_ATTRIBUTES},
            ['spec.user: Invalid value: "": at least one of user or group must be specified'],
            id="no subject",
        ),
        pytest.param(
            {"user": "u", "resourceAttributes": {"labelSelector": {}}},
            [
                "spec.resourceAttributes.labelSelector.requirements: Required value: when "
                "spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"
            ],
            id="empty selector",
        ),
        pytest.param(
            {
                "user": "u",
                "resourceAttributes": {
                    "fieldSelector": {
                        "requirements": [{"operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]}]
                    }
                },
            },
            [
                "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
                "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when "
                "`operator` is 'In' or 'NotIn'",
                "spec.resourceAttributes.fieldSelector.requirements[1].values: Forbidden: may not be specified when "
                "`operator` is 'Exists' or 'DoesNotExist'",
            ],
            id="values that do not fit the operator",
        ),
    ],
)
def test_invalid_subject_access_review(spec: JSON, causes: list[str]):
    with pytest.raises(StatusError) as raised:
        access_reviews.check_review(SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
    assert raised.value.code == 422
    assert cause_texts((raised.value.details or {})["causes"]) == causes
