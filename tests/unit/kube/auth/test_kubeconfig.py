"""Kubeconfig files: merging, and errors with hints."""

from __future__ import annotations

import os

import pytest
import yaml

from kubeloop.kube.auth.credentials import connect, context_names, runs_plugin
from kubeloop.kube.auth.kubeconfig import read_kubeconfig
from kubeloop.kube.user_error import UserError
from support.apiserver.kubeconfig_server import fetch_version, require_token


async def test_first_entry_counts_and_paths_are_relative_to_file(serving, tmp_path, monkeypatch):
    first, second = tmp_path / "first" / "config", tmp_path / "second" / "config"
    for path in (first, second):
        path.parent.mkdir()
    (second.parent / "token").write_text("right")
    async with serving(require_token) as server:
        contexts = [{"name": "dev", "context": {"cluster": "c", "user": "u"}}]
        clusters = [{"name": "c", "cluster": {"server": server.url}}]
        first.write_text(yaml.safe_dump({"current-context": "dev", "contexts": contexts, "clusters": clusters}))
        clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
        users = [{"name": "u", "user": {"tokenFile": "token"}}]
        second.write_text(yaml.safe_dump({"current-context": "other", "clusters": clusters, "users": users}))
        monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
        assert (await fetch_version(await connect())).status == 200


@pytest.mark.parametrize("has_plugin", [False, True], ids=["token", "exec plugin"])
async def test_path_with_a_colon_is_one_file(serving, kubeconfig, plugin, has_plugin):
    async with serving(require_token) as server:
        path = kubeconfig(server.url, plugin("right") if has_plugin else {"token": "right"})
        os.rename(path, f"{path}:b")
        assert (await fetch_version(await connect(f"{path}:b"))).status == 200


INVALID = [
    pytest.param("a: [1", "config is not valid YAML: line ", "check the file", id="not YAML"),
    pytest.param("just text", "is not a kubeconfig", "clusters", id="something else"),
    pytest.param("{}", "has no current-context", "it has no contexts", id="empty"),
    pytest.param(
        "{current-context: a, contexts: [{name: b, context: {}}]}", "no context 'a'", "contexts there: b", id="context"
    ),
    pytest.param(
        "{current-context: a, clusters: [], contexts: [{name: a, context: {cluster: c}}]}",
        "context 'a' names the cluster 'c', which does not exist",
        "it has no clusters",
        id="cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {}}], contexts: [{name: a, context: {cluster: c}}]}",
        "names no server",
        "clusters[].cluster.server",
        id="nothing about the cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c}], users: [{name: v}], contexts: [{name: a, context: {cluster: c,"
        " user: u}}]}",
        "context 'a' names the user 'u', which does not exist",
        "users there: v",
        id="user",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'http://x', proxy-url: 'socks5://y'}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "'socks5://y' is not an HTTP proxy",
        "proxy-url looks like http://HOST:PORT",
        id="proxy",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'http://x'}}],"
        " users: [{name: u, user: {tokenFile: missing}}], contexts: [{name: a, context: {cluster: c, user: u}}]}",
        "tokenFile: cannot read missing: No such file",
        "check the path",
        id="token file",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: ä}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "certificate-authority-data is not base64",
        "check",
        id="data",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 8080}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "server must be a string",
        "quotes",
        id="a number",
    ),
    pytest.param("{current-context: a, contexts: {a: {}}}", "is not a kubeconfig", "a list of entries", id="mapping"),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {tls-server-name: x}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "names no server",
        "clusters[].cluster.server",
        id="server",
    ),
]


@pytest.mark.parametrize(("content", "problem", "hint"), INVALID)
async def test_invalid_kubeconfig_is_user_error_in_one_line(tmp_path, content, problem, hint):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UserError) as raised:
        await connect(str(path))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert hint in raised.value.hint


async def test_missing_kubeconfig_or_context_is_user_error(kubeconfig, tmp_path):
    with pytest.raises(UserError, match="no kubeconfig at /nowhere") as raised:
        await connect("/nowhere")
    assert "--kubeconfig" in raised.value.hint
    with pytest.raises(UserError, match=r"no kubeconfig at .*home/.kube/config"):
        await connect()
    with pytest.raises(UserError, match="no context 'prod'") as raised:
        await connect(kubeconfig("http://127.0.0.1:1", {}), "prod")
    assert raised.value.hint == "contexts there: dev"


def test_context_without_user_has_empty_user(kubeconfig, tmp_path):
    path = tmp_path / "config"
    path.write_text("{current-context: a, clusters: [{name: c}], contexts: [{name: a, context: {cluster: c}}]}")
    config = read_kubeconfig([str(path)], None)
    assert (config.context, config.user.values) == ("a", {})


def test_context_names_are_those_of_all_files(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("contexts: [{name: b, context: {}}, {name: a, context: {}}]")
    second.write_text("contexts: [{name: c, context: {}}, {name: a, context: {}}]")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:{tmp_path / 'none'}")
    assert context_names() == ["b", "a", "c"]
    assert context_names([str(second)]) == ["c", "a"]
    assert context_names([str(tmp_path / "none")]) == []


def test_runs_plugin_is_true_for_exec_credentials(kubeconfig, plugin, tmp_path):
    assert runs_plugin([kubeconfig("http://127.0.0.1:1", plugin("t"))])
    assert not runs_plugin([kubeconfig("http://127.0.0.1:1", {"token": "t"})])
    assert not runs_plugin([str(tmp_path / "none")])
