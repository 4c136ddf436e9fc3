import base64
import stat

import pytest
import yaml

from kubeloop.kube.user_error import UserError
from kubeloop.kube.yaml import read_first
from kubeloop.process.development_cluster.kubeconfig_file import write_kubeconfig

CLUSTER = {"server": "https://127.0.0.1:1", "token": "secret", "certificate_pem": "PEM"}


def test_kubeconfig_is_complete_and_private(tmp_path):
    path = tmp_path / "deeper" / "config"
    write_kubeconfig(path, **CLUSTER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "kubeloop"
    assert config["clusters"] == [
        {
            "name": "kubeloop",
            "cluster": {
                "server": "https://127.0.0.1:1",
                "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            },
        }
    ]
    assert config["users"] == [{"name": "kubeloop", "user": {"token": "secret"}}]
    assert [path.name for path in path.parent.iterdir()] == ["config"]


@pytest.mark.parametrize("token", ["secret", "1e3", "yes", 'a"b: c'])
def test_new_file_equals_an_empty_one_that_is_extended(tmp_path, token):
    new, extended = tmp_path / "new", tmp_path / "extended"
    extended.touch()
    for path in (new, extended):
        write_kubeconfig(path, **CLUSTER | {"token": token})
    assert read_first(new.read_text()) == read_first(extended.read_text())
    assert read_first(new.read_text())[0]["users"] == [{"name": "kubeloop", "user": {"token": token}}]


def test_write_preserves_other_clusters(tmp_path):
    path = tmp_path / "config"
    other = {"name": "prod", "cluster": {"server": "https://prod"}}
    old = {"name": "kubeloop", "cluster": {"server": "https://old"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [other, old], "users": None, "contexts": []}
    path.write_text(yaml.safe_dump(config))
    write_kubeconfig(path, **CLUSTER)
    clusters = yaml.safe_load(path.read_text())["clusters"]
    assert [(cluster["name"], cluster["cluster"]["server"]) for cluster in clusters] == [
        ("prod", "https://prod"),
        ("kubeloop", "https://127.0.0.1:1"),
    ]


def test_write_preserves_strings_that_look_like_numbers(tmp_path):
    path = tmp_path / "config"
    path.write_text("kind: Config\nusers:\n- name: 'y'\n  user: {token: '1e3', username: '0o17'}\n")
    write_kubeconfig(path, **CLUSTER)
    users = read_first(path.read_text())[0]["users"]
    assert users[0] == {"name": "y", "user": {"token": "1e3", "username": "0o17"}}


def test_write_follows_a_symlink(tmp_path):
    (tmp_path / "dotfiles").mkdir()
    target, link = tmp_path / "dotfiles" / "kubeconfig", tmp_path / "config"
    link.symlink_to(target)
    for token in ("one", "two"):  # the first write creates it
        write_kubeconfig(link, **CLUSTER | {"token": token})
        assert link.is_symlink()
        assert yaml.safe_load(target.read_text())["users"] == [{"name": "kubeloop", "user": {"token": token}}]
    assert [path.name for path in target.parent.iterdir()] == ["kubeconfig"]


@pytest.mark.parametrize(
    "content",
    ["just text", "kind: Pod", "a: [", "\x00", "- 1", "{kind: Config, clusters: {a: b}}", "{kind: Config, users: [a]}"],
)
def test_write_rejects_a_file_that_is_not_a_kubeconfig(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(UserError, match="is not a kubeconfig"):
        write_kubeconfig(path, **CLUSTER)
    assert path.read_text() == content


def test_write_reports_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the kubeconfig"):
        write_kubeconfig(tmp_path / "file" / "config", **CLUSTER)
