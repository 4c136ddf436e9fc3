"""Credentials of the API server for webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.outgoing.webhook_credentials import WebhookCredentials
from kubeloop.kube.user_error import UserError

USERS = ("web.a.svc:8443", "web.a.svc", "*.a.svc", "*.svc", "*", "current", "10.0.0.1:80")


def credentials(folder: Path, *names: str, current: str = "") -> WebhookCredentials:
    users = "".join(f"- {{name: '{name}', user: {{token: 'of {name}'}}}}\n" for name in names)
    context = f"current-context: c\ncontexts: [{{name: c, context: {{user: {current}}}}}]\n" if current else ""
    (folder / "kubeconfig").write_text(f"apiVersion: v1\nkind: Config\n{context}users:\n{users}")
    return WebhookCredentials(str(folder / "kubeconfig"))


@pytest.mark.parametrize(
    ("host", "port", "names", "expected"),
    [
        ("web.a.svc", 8443, USERS, "web.a.svc:8443"),
        ("web.a.svc", 443, USERS, "web.a.svc"),
        ("other.a.svc", 443, USERS, "*.a.svc"),
        ("web.b.svc", 443, USERS, "*.svc"),
        ("web.a.svc", 8444, USERS, "*"),  # names without a port are of port 443
        ("web.a.svc", 8444, ("*.svc:8444", "*"), "*.svc:8444"),
        ("10.0.0.1", 80, USERS, "10.0.0.1:80"),
        ("example.com", 443, ("current",), "current"),
        ("example.com", 443, ("other",), None),
    ],
)
def test_most_specific_user_is_selected(
    tmp_path: Path, host: str, port: int, names: tuple[str, ...], expected: str | None
):
    user = credentials(tmp_path, *names, current="current").user(host, port)
    assert (None if user is None else user.name) == expected
    if user is not None:
        assert user.headers() == {"authorization": f"Bearer of {expected}"}


def test_kinds_of_credentials(tmp_path: Path):
    (tmp_path / "token").write_text("from a file\n")
    users = (
        "- {name: file, user: {tokenFile: token}}\n- {name: basic, user: {username: u, password: p}}\n- {name: none}"
    )
    (tmp_path / "kubeconfig").write_text(f"kind: Config\nusers:\n{users}")
    users_by_name = WebhookCredentials(str(tmp_path / "kubeconfig"))
    headers = {name: user.headers() for name in ("file", "basic", "none") if (user := users_by_name.user(name, 443))}
    assert headers == {
        "file": {"authorization": "Bearer from a file"},
        "basic": {"authorization": "Basic dTpw"},
        "none": {},
    }


def test_user_with_a_plugin_is_refused(tmp_path: Path):
    (tmp_path / "kubeconfig").write_text("users: [{name: a, user: {exec: {command: x}}}]")
    with pytest.raises(UserError, match="user 'a' has exec, which is not supported for webhooks"):
        WebhookCredentials(str(tmp_path / "kubeconfig"))
