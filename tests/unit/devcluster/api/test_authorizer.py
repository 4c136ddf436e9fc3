"""The 403 of requests that are not allowed."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes, forbidden, is_privileged

USER = {"username": "a<b>"}


@pytest.mark.parametrize(
    ("attributes", "message", "details"),
    [
        pytest.param(
            AccessAttributes(USER, "get", "apps", "deployments", "scale", "n", "d"),
            'deployments.apps "d" is forbidden: User "a&lt;b&gt;" cannot get resource "deployments/scale"'
            ' in API group "apps" in the namespace "n": why',
            {"name": "d", "group": "apps", "kind": "deployments"},
            id="subresource",
        ),
        pytest.param(
            AccessAttributes(USER, "list", "", "nodes"),
            'nodes is forbidden: User "a&lt;b&gt;" cannot list resource "nodes" in API group "" at the cluster scope:'
            " why",
            {"kind": "nodes"},
            id="cluster scope",
        ),
        pytest.param(
            AccessAttributes(USER, "get", path="/x"),
            'forbidden: User "a&lt;b&gt;" cannot get path "/x": why',
            {},
            id="path",
        ),
    ],
)
def test_message_names_user_verb_and_resource(attributes: AccessAttributes, message: str, details: dict[str, str]):
    error = forbidden(attributes, "why")
    assert (error.code, error.reason, error.message, error.details) == (403, "Forbidden", message, details)


def test_members_of_system_masters_are_privileged():
    assert is_privileged({"username": "a", "groups": ["x", "system:masters"]})
    assert not is_privileged({"username": "system:masters"})
