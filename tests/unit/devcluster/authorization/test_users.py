"""User names of ServiceAccounts and nodes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.authorization.users import identified_node, node_in, split_account


@pytest.mark.parametrize(
    ("username", "account"),
    [
        ("system:serviceaccount:default:robot", ("default", "robot")),
        ("system:serviceaccount:default:robot.a-b", ("default", "robot.a-b")),
        ("system:serviceaccount:default:Robot", None),
        ("system:serviceaccount:default:", None),
        ("system:serviceaccount:a.b:robot", None),
        ("alice", None),
    ],
)
def test_account_of_a_user_name(username: str, account: tuple[str, str] | None):
    assert split_account(username) == account


@pytest.mark.parametrize(
    ("username", "node"), [("system:node:n.x", "n.x"), ("system:node:", ""), ("system:node:N", ""), ("n", "")]
)
def test_node_of_a_user_name(username: str, node: str):
    assert node_in(username) == node


def test_node_is_identified_by_name_and_group():
    assert identified_node({"username": "system:node:n", "groups": ["system:nodes"]}) == "n"
    assert identified_node({"username": "system:node:n"}) is None
