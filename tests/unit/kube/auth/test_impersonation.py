"""Impersonation headers of a kubeconfig."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.auth.impersonation import impersonation_headers
from kubeloop.kube.auth.kubeconfig import KubeconfigEntry
from kubeloop.kube.user_error import UserError
from support.apiserver.kubeconfig_server import fetch_version, require_token

IMPERSONATION = {
    "as": "jané",
    "as-uid": "u-1",
    "as-groups": ["system:masters", "b, c"],
    "as-user-extra": {"example.com/Team b%": ["x", "y"], "Ä": ["z"]},
}


@pytest.mark.usefixtures("http")
@pytest.mark.parametrize("by_plugin", [False, True], ids=["token", "exec plugin"])
async def test_impersonation_headers_are_sent(serving, kubeconfig, plugin, by_plugin):
    async with serving(require_token) as server:
        user = (plugin("right") if by_plugin else {"token": "right"}) | IMPERSONATION
        transport = await connect(kubeconfig(server.url, user))
        assert (await fetch_version(transport)).status == 200
        (request,) = server.requests
        sent = [(name.lower(), value) for name, value in request.header_lines if name.lower().startswith("imp")]
        assert sent == [
            ("impersonate-user", "jané".encode().decode("latin-1")),
            ("impersonate-uid", "u-1"),
            ("impersonate-group", "system:masters"),
            ("impersonate-group", "b, c"),
            ("impersonate-extra-example.com%2fteam%20b%25", "x"),
            ("impersonate-extra-example.com%2fteam%20b%25", "y"),
            ("impersonate-extra-%c3%84", "z"),
        ]


async def test_no_headers_without_impersonation(serving, kubeconfig):
    async with serving(require_token) as server:
        user = {"token": "right", "as": "", "as-uid": "", "as-groups": [], "as-user-extra": {}}
        await fetch_version(await connect(kubeconfig(server.url, user)))
        assert not [name for name in server.requests[0].headers if name.startswith("impersonate")]


@pytest.mark.parametrize(
    ("user", "problem", "hint"),
    [
        ({"as-groups": ["a"]}, "need a user", "users[].user.as"),
        ({"as-uid": "a"}, "need a user", "users[].user.as"),
        ({"as-user-extra": {"a": ["b"]}}, "need a user", "users[].user.as"),
        ({"as": 5}, "as must be a string", "quotes"),
        ({"as": "a", "as-groups": "b"}, "as-groups must be a list of strings", "quotes"),
        ({"as": "a", "as-groups": [1]}, "as-groups must be a list of strings", "quotes"),
        ({"as": "a", "as-user-extra": ["b"]}, "as-user-extra is not a mapping", "list of strings"),
        ({"as": "a", "as-user-extra": {"b": "c"}}, "as-user-extra.b must be a list of strings", "quotes"),
        ({"as": "a\r\nauthorization: b"}, "cannot be sent", "one line"),
    ],
    ids=str,
)
async def test_invalid_impersonation_is_user_error(kubeconfig, user, problem, hint):
    with pytest.raises(UserError) as raised:
        await connect(kubeconfig("http://127.0.0.1:1", user))
    assert problem in str(raised.value)
    assert hint in raised.value.hint


def test_headers_of_user_entry():
    entry = KubeconfigEntry({"as": "jane", "as-groups": ["a"]}, Path("config"))
    assert impersonation_headers(entry) == (("impersonate-user", "jane"), ("impersonate-group", "a"))
