"""Requests on behalf of somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.authentication.impersonation import impersonated_user

ADMIN: dict[str, Any] = {"username": "admin", "uid": "admin", "groups": ["system:masters"]}


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param({"accept": "x"}, ADMIN, id="nobody is named"),
        pytest.param({"impersonate-user": ""}, ADMIN, id="an empty name is none"),
        pytest.param(
            {"impersonate-user": "u"}, {"username": "u", "groups": ["system:authenticated"]}, id="a name alone"
        ),
        pytest.param(
            {
                "impersonate-user": "u",
                "impersonate-uid": "7",
                "impersonate-group": "a, b",
                "impersonate-extra-x%2fy": "v, w",
            },
            {"username": "u", "uid": "7", "groups": ["a", "b", "system:authenticated"], "extra": {"x/y": ["v", "w"]}},
            id="all there is",
        ),
        pytest.param(
            {"impersonate-user": "system:serviceaccount:ns:name"},
            {
                "username": "system:serviceaccount:ns:name",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            },
            id="a service account has its groups",
        ),
        pytest.param(
            {"impersonate-user": "system:serviceaccount:ns:Bad_N"},
            {"username": "system:serviceaccount:ns:Bad_N", "groups": ["system:authenticated"]},
            id="no service account has such a name",
        ),
        pytest.param(
            {"impersonate-user": "system:anonymous"},
            {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
            id="nobody in particular",
        ),
        pytest.param(
            {"impersonate-user": "u", "impersonate-group": "system:unauthenticated"},
            {"username": "u", "groups": ["system:unauthenticated"]},
            id="somebody who has not said who he is",
        ),
    ],
)
def test_a_request_counts_as_of_whom_it_names(headers: dict[str, str], user: dict[str, Any]):
    assert impersonated_user(ADMIN, headers) == user


def test_groups_without_a_user_are_refused():
    with pytest.raises(StatusError) as refused:
        impersonated_user(ADMIN, {"impersonate-group": "g"})
    assert (refused.value.code, refused.value.message) == (
        400,
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'
        " without impersonating a user name",
    )
