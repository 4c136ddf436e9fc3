import base64
import stat

import pytest
import yaml

from kubeloop.kube.errors import UserError
from kubeloop.kube.yaml import read_first
from kubeloop.process.kubeconfig_file import write_kubeconfig

CLUSTER = {"server": "https://127.0.0.1:1", "token": "secret", "certificate_pem": b"PEM"}


def test_the_file_is_for_its_owner_alone_and_complete(tmp_path):
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


def test_other_clusters_in_the_file_are_kept(tmp_path):
    path = tmp_path / "config"
    other = {"name": "prod", "cluster": {"server": "https://prod"}}
    old = {"name": "kubeloop", "cluster": {"server": "https://old"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [other, old], "users": None, "contexts": []}
    path.write_text(yaml.safe_dump(config))
    write_kubeconfig(path, **CLUSTER)
    clusters = yaml.safe_load(path.read_text())["clusters"]
    assert [(each["name"], each["cluster"]["server"]) for each in clusters] == [
        ("prod", "https://prod"),
        ("kubeloop", "https://127.0.0.1:1"),
    ]


def test_text_of_others_that_looks_like_a_number_to_kubectl_stays_text(tmp_path):
    path = tmp_path / "config"
    path.write_text("kind: Config\nusers:\n- name: 'y'\n  user: {token: '1e3', username: '0o17'}\n")
    write_kubeconfig(path, **CLUSTER)
    users = read_first(path.read_text())[0]["users"]
    assert users[0] == {"name": "y", "user": {"token": "1e3", "username": "0o17"}}


def test_a_file_that_is_linked_to_stays_where_it_is(tmp_path):
    (tmp_path / "dotfiles").mkdir()
    target, link = tmp_path / "dotfiles" / "kubeconfig", tmp_path / "config"
    link.symlink_to(target)
    for token in ("one", "two"):  # it is not there at first
        write_kubeconfig(link, **CLUSTER | {"token": token})
        assert link.is_symlink()
        assert yaml.safe_load(target.read_text())["users"] == [{"name": "kubeloop", "user": {"token": token}}]
    assert [path.name for path in target.parent.iterdir()] == ["kubeconfig"]


@pytest.mark.parametrize(
    "content",
    ["just text", "kind: Pod", "a: [", "\x00", "- 1", "{kind: Config, clusters: {a: b}}", "{kind: Config, users: [a]}"],
)
def test_a_file_that_is_no_kubeconfig_is_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(UserError, match="is not a kubeconfig"):
        write_kubeconfig(path, **CLUSTER)
    assert path.read_text() == content


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the kubeconfig"):
        write_kubeconfig(tmp_path / "file" / "config", **CLUSTER)
