"""Attributes by which requests are authorized."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes, FieldRequirement
from kubeloop.devcluster.authorization.access_attributes import access_attributes
from support.apiserver.api_requests import request

USER = {"username": "alice"}


def attributes(verb: str, *fields: str, selector: tuple[FieldRequirement, ...] = ()) -> AccessAttributes:
    """Return attributes; fields: group, resource, subresource, namespace, name."""
    return AccessAttributes(USER, verb, *fields, field_selector=selector)


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        pytest.param(
            "GET", "/api/v1/namespaces/a/pods/b/log", attributes("get", "", "pods", "log", "a", "b"), id="subresource"
        ),
        pytest.param(
            "POST", "/apis/x.io/v1/namespaces/a/b", attributes("create", "x.io", "b", "", "a"), id="not served"
        ),
        pytest.param(
            "GET",
            "/api/v1/pods?watch=1&fieldSelector=a%3Db,c!%3Dd",
            attributes(
                "watch", "", "pods", selector=(FieldRequirement("a", "=", "b"), FieldRequirement("c", "!=", "d"))
            ),
            id="field selector",
        ),
        pytest.param("GET", "/api/v1/pods?fieldSelector=a", attributes("list", "", "pods"), id="invalid selector"),
        pytest.param("POST", "/metrics", AccessAttributes(USER, "post", path="/metrics"), id="no API"),
    ],
)
async def test_attributes_of_requests(method: str, target: str, expected: AccessAttributes):
    sent = request(method, target)
    sent.user = USER
    assert access_attributes(sent) == expected
