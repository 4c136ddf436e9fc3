"""Files of static tokens: users by token, and files that are refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kubeloop.devcluster.authentication.static_tokens import read_static_tokens
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi


def test_users_are_read_with_their_groups(tmp_path: Path):
    (tmp_path / "tokens").write_text('a,alice,1,"dev,ops"\n\n"b,c",bob,\nd,carol,3,dev,more\n')
    assert read_static_tokens(tmp_path / "tokens") == {
        "a": {"username": "alice", "uid": "1", "groups": ["dev", "ops"]},
        "b,c": {"username": "bob", "groups": []},
        "d": {"username": "carol", "uid": "3", "groups": ["dev"]},
    }


def test_empty_and_duplicate_tokens_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "tokens").write_text(",nobody,1\na,first,2\na,second,3\n")
    with caplog.at_level(logging.WARNING):
        tokens = read_static_tokens(tmp_path / "tokens")
    assert tokens == {"a": {"username": "second", "uid": "3", "groups": []}}
    assert [record.getMessage().split(" token")[0] for record in caplog.records] == ["empty", "duplicate"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"a,b\n", "must have at least 3 columns (token, user name, user uid), found 2", id="two columns"),
        pytest.param(b'a,"b,c\n', "cannot read", id="open quote"),
        pytest.param(b"\xff\n", "cannot read", id="no UTF-8"),
        pytest.param(None, "cannot read", id="no file"),
    ],
)
def test_invalid_file_is_an_error(tmp_path: Path, content: bytes | None, problem: str):
    if content is not None:
        (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(UserError) as raised:
        read_static_tokens(tmp_path / "tokens")
    assert problem in str(raised.value)


async def test_token_authenticates_its_user_beside_that_of_the_administrator():
    users = {"a": {"username": "alice", "groups": ["dev"]}}
    api = InProcessApi(token="right", settings=ServingSettings(static_tokens=users))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = api("POST", path, body, authorization="Bearer a")[1]["status"]["userInfo"]
    assert user == {"username": "alice", "groups": ["dev", "system:authenticated"]}
    assert api("POST", path, body, authorization="Bearer right")[1]["status"]["userInfo"]["username"] == "admin"
    assert api("POST", path, body, authorization="Bearer b")[0] == 401
