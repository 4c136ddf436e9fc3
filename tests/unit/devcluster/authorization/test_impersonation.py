"""Impersonation headers: the user that a request counts as."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authorization.impersonation import Impersonation
from kubeloop.devcluster.authorization.modes import AllowAll

ADMIN: dict[str, Any] = {"username": "admin", "uid": "admin", "groups": ["system:masters"]}


def impersonated_user(user: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    return Impersonation(AllowAll()).user(ApiRequest("GET", "/api/v1/pods", headers=headers, user=user))


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param({"accept": "x"}, ADMIN, id="no impersonation headers"),
        pytest.param({"impersonate-user": ""}, ADMIN, id="empty user name"),
        pytest.param(
            {"impersonate-user": "u"}, {"username": "u", "groups": ["system:authenticated"]}, id="user name only"
        ),
        pytest.param(
            {
                "impersonate-user": "u",
                "impersonate-uid": "7",
                "impersonate-group": "a, b",
                "impersonate-extra-x%2fy": "v, w",
            },
            {"username": "u", "uid": "7", "groups": ["a", "b", "system:authenticated"], "extra": {"x/y": ["v", "w"]}},
            id="user, uid, groups and extra",
        ),
        pytest.param(
            {"impersonate-user": "system:serviceaccount:ns:name"},
            {
                "username": "system:serviceaccount:ns:name",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            },
            id="service account gets its groups",
        ),
        pytest.param(
            {"impersonate-user": "system:serviceaccount:ns:Bad_N"},
            {"username": "system:serviceaccount:ns:Bad_N", "groups": ["system:authenticated"]},
            id="invalid service account name",
        ),
        pytest.param(
            {"impersonate-user": "system:anonymous"},
            {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
            id="anonymous",
        ),
        pytest.param(
            {"impersonate-user": "u", "impersonate-group": "system:unauthenticated"},
            {"username": "u", "groups": ["system:unauthenticated"]},
            id="unauthenticated group",
        ),
    ],
)
def test_impersonation_headers_set_the_user(headers: dict[str, str], user: dict[str, Any]):
    assert impersonated_user(ADMIN, headers) == user


def test_impersonated_groups_without_a_user_are_rejected():
    with pytest.raises(StatusError) as raised:
        impersonated_user(ADMIN, {"impersonate-group": "g"})
    assert (raised.value.code, raised.value.message) == (
        400,
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'
        " without impersonating a user name",
    )
