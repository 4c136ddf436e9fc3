import io
import json
import sys
from pathlib import Path

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.manifests import last_applied, read_manifests

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_read_manifests_keeps_the_order(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "2.yml", POD.replace("a}", "d}"))
    write(
        folder / "1.json",
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod",'
        ' "metadata": {"name": "c"}}]}',
    )
    write(folder / "notes.txt", "not a manifest")
    two = write(tmp_path / "two.yaml", POD + "---\n" + POD.replace("a}", "b}") + "---\n# nothing\n")
    manifests = read_manifests([two, folder])
    assert [manifest.name for manifest in manifests] == ["a", "b", "c", "d"]
    assert manifests[1].source == f"{two}, document 2"


def test_json_surrogate_pairs_are_read(tmp_path):
    path = write(
        tmp_path / "a.json",
        r'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"a": "\ud83d\ude00"}}}',
    )
    (manifest,) = read_manifests([path])
    assert manifest.body["metadata"]["annotations"] == {"a": "\U0001f600"}


@pytest.mark.parametrize("separator", ["", " ", "\n", "\r\n\n"], ids=["none", "space", "line", "lines"])
def test_stream_of_json_objects_is_read(tmp_path, separator):
    objects = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in ("a", "b", "c")]
    path = write(tmp_path / "a.json", separator + separator.join(map(json.dumps, objects)) + separator)
    manifests = read_manifests([path])
    assert [manifest.body for manifest in manifests] == objects
    assert manifests[2].source == f"{path}, document 3"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("kustomization.yaml", "kubectl kustomize {}"),
        ("kustomization.yml", "kubectl kustomize {}"),
        ("Kustomization", "kubectl kustomize {}"),
        ("Chart.yaml", "helm template {}"),
    ],
)
@pytest.mark.parametrize("as_folder", [True, False], ids=["folder", "file"])
def test_folder_to_be_rendered_has_its_command_as_hint(tmp_path, name, command, as_folder):
    path = write(tmp_path / name, "resources: [a.yaml]\n")
    write(tmp_path / "a.yaml", POD)
    with pytest.raises(UserError, match="has to be rendered first") as raised:
        read_manifests([tmp_path if as_folder else path])
    assert raised.value.hint.startswith(f"{command.format(tmp_path)} writes the manifests: pipe them into kubeloop up")


@pytest.mark.parametrize("url", ["https://example.com/web.yaml", "http://10.0.0.1:8000/a/b.yaml?x=1"])
def test_url_error_has_the_download_command(url):
    with pytest.raises(UserError, match="is a URL") as raised:
        read_manifests([Path(url)])
    assert str(raised.value).startswith(f"{url} ")
    assert f"curl -fsSL {url} " in raised.value.hint


def test_yaml_scalars_are_read_as_by_kubectl(tmp_path):
    path = write(tmp_path / "a.yaml", POD + "spec: {since: 2026-01-01, at: 12:30, mode: 0o17, many: 1e3, flag: y}\n")
    (manifest,) = read_manifests([path])
    assert manifest.body["spec"] == {"since": "2026-01-01", "at": "12:30", "mode": 15, "many": 1000, "flag": True}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("kind: Pod\nmetadata: {name: a}", "apiVersion not set", id="no apiVersion"),
        pytest.param("apiVersion: v1\nmetadata: {name: a}", "kind not set", id="no kind"),
        pytest.param("apiVersion: v1\nkind: Pod", "metadata.name not set", id="no metadata"),
        pytest.param("apiVersion: v1\nkind: Pod\nmetadata: {labels: {}}", "metadata.name not set", id="no name"),
        pytest.param("a: [1", "bad.yaml: line 2, column 1: ", id="YAML that is not closed"),
        pytest.param(f"a: {'[' * 3000}{']' * 3000}", "bad.yaml: it is nested too deeply", id="a list in a list in..."),
        pytest.param("a: 1\na: 2", 'key "a" already set', id="a key twice"),
        pytest.param('{"a": 1}\n{"a": }', "bad.yaml: line 2, column 7: ", id="the second object of a JSON stream"),
        pytest.param('{"a": 1}{"b": 1, "b": 2}', 'key "b" already set', id="a key twice in a JSON stream"),
        pytest.param('{"a": 1}{"b": "\\ud800"}', "bad.yaml: line 1: ", id="half a surrogate pair"),
        pytest.param('{"a": 1}' + '{"a":' * 100_000, "bad.yaml: line 1", id="a JSON object in an object in..."),
        pytest.param("- 1", "not a Kubernetes object but a list", id="a list"),
        pytest.param("", "no objects in", id="an empty file"),
        pytest.param("{{ .Values.name }}: x", "a key must be a string", id="a template"),
    ],
)
def test_invalid_manifest_error_has_its_place(tmp_path, text, problem):
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(UserError) as raised:
        read_manifests([path])
    assert problem in str(raised.value)
    assert "bad.yaml" in str(raised.value)
    assert raised.value.hint


def test_missing_file_error_has_its_path(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*missing\.yaml: No such file"):
        read_manifests([tmp_path / "missing.yaml"])


def test_binary_file_is_rejected(tmp_path):
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UserError, match="is not text"):
        read_manifests([path])


def test_binary_stdin_is_rejected(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    with pytest.raises(UserError, match="stdin is not text"):
        read_manifests([Path("-")])


def test_last_applied_annotation_equals_kubectls():
    body = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "annotations": {}},
        "data": {"k": "<&>é"},
    }
    assert last_applied(body) == (
        '{"apiVersion":"v1","data":{"k":"\\u003c\\u0026\\u003eé"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{},"name":"a"}}\n'
    )
