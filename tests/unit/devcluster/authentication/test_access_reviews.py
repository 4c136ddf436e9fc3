"""Reviews and granted tokens as kube-apiserver v1.36 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import InProcessApi

JSON = dict[str, Any]
AUTHORIZATION, AUTHENTICATION = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
LOCAL = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
ABOUT_PODS: JSON = {"verb": "get", "resource": "pods", "namespace": "default"}


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(token="right")


def review(api: InProcessApi, path: str, body: JSON) -> tuple[int, JSON]:
    status, answer = api("POST", path, body, authorization="Bearer right")
    return status, answer


async def test_a_local_review_is_of_its_paths_namespace(api: InProcessApi):
    status, told = review(api, LOCAL, {"spec": {"user": "u", "resourceAttributes": ABOUT_PODS}})
    assert (status, told["metadata"]["namespace"], told["status"]) == (201, "default", {"allowed": True})
    status, told = review(api, LOCAL, {"spec": {"user": "u", "resourceAttributes": {**ABOUT_PODS, "namespace": "x"}}})
    assert (status, told["details"]["causes"][0]["message"]) == (
        422,
        'Invalid value: "x": must match metadata.namespace',
    )
    status, told = review(api, LOCAL, {"metadata": {"namespace": "x"}, "spec": {"user": "u"}})
    assert (status, "does not match the namespace" in told["message"]) == (400, True)


@pytest.mark.parametrize("plural", ["subjectaccessreviews", "selfsubjectaccessreviews"])
async def test_a_review_of_the_cluster_has_no_namespace(api: InProcessApi, plural: str):
    body = {"metadata": {"namespace": "x"}, "spec": {"resourceAttributes": ABOUT_PODS, "groups": ["g"]}}
    status, told = review(api, f"{AUTHORIZATION}/{plural}", body)
    assert (status, "namespace" in told["metadata"]) == (201, False)


async def test_unknown_fields_are_told_even_if_the_review_is_refused(api: InProcessApi):
    status, _ = review(api, f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"foo": 1}})
    assert (status, api.warnings) == (422, ['299 - "unknown field \\"spec.foo\\""'])


async def test_a_token_is_reviewed(api: InProcessApi):
    for token, status in (("right", {"authenticated": True}), ("wrong", {"error": "invalid bearer token"})):
        told = review(api, f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token}})[1]
        assert status.items() <= told["status"].items()


async def test_a_token_bound_to_nothing_in_particular_is_refused(api: InProcessApi):
    account = {"metadata": {"name": "robot"}}
    api("POST", "/api/v1/namespaces/default/serviceaccounts", account, authorization="Bearer right")
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    status, told = review(api, path, {"spec": {"boundObjectRef": {}}})
    assert (status, told["message"]) == (400, "cannot bind token to object of type /, Kind=")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic YTpi", "right", "bearer  "])
async def test_who_is_not_known_is_told_so(api: InProcessApi, header: str):
    given = {"authorization": header} if header else {}
    status, told = api("GET", "/api/v1/namespaces", **given)
    assert (status, told) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )
    assert api("GET", "/healthz", **given)[0] == api("GET", "/version", **given)[0] == 200
