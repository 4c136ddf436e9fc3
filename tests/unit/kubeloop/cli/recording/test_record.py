"""`kubeloop record`: options, keys, and the permissions of deploy/record."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kubeloop.cli.options.recording_options import RecordOptions
from kubeloop.cli.recording.record import record
from kubeloop.kube.user_error import UserError
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.resources import RECORDED
from kubeloop.testing import Cluster
from support.comparison.audited_permissions import granted_permissions

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture(scope="module")
def kubeconfig():
    with Cluster(nodes=1, controllers="deployment") as cluster:
        yield cluster.kubeconfig


def record_once(path, kubeconfig, **options):
    return record(path, RecordOptions(kubeconfig=kubeconfig, once=True, **options))


def test_cluster_is_recorded_once(kubeconfig, tmp_path, capsys):
    path = tmp_path / "now.kubeloop"
    assert record_once(path, kubeconfig) == 0
    assert "recorded 1 nodes, 0 pods and" in capsys.readouterr().err
    header = RecordingFile(path).header
    assert header.kubernetes.startswith("v1.")
    assert header.server.startswith("https://")
    with pytest.raises(UserError, match="exists"):
        record_once(path, kubeconfig)


def test_key_is_created_and_used_again(kubeconfig, tmp_path):
    key = tmp_path / "key"
    for name in ("one", "two"):
        record_once(tmp_path / name, kubeconfig, anonymize=key)
    one, two = (RecordingFile(tmp_path / name) for name in ("one", "two"))
    assert one.header.key_id == two.header.key_id != ""
    assert key.stat().st_mode & 0o777 == 0o600
    assert "127.0.0.1" not in one.header.server
    nodes = [{change.key for change in recording.changes() if change.resource == "nodes"} for recording in (one, two)]
    assert nodes[0] == nodes[1] != {"node-1"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"append": True}, "--once and --append are mutually exclusive"),
        ({"anonymize": Path("/none/key")}, "cannot read or create /none/key"),
        ({"kubeconfig": Path("/none")}, "no kubeconfig"),
    ],
)
def test_invalid_options_are_refused(kubeconfig, tmp_path, options, problem):
    with pytest.raises(UserError, match=problem):
        record(tmp_path / "x", RecordOptions(**{"kubeconfig": kubeconfig, "once": True} | options))


def test_short_key_is_refused(kubeconfig, tmp_path):
    (tmp_path / "key").write_text("abc\n")
    with pytest.raises(UserError, match="too short"):
        record_once(tmp_path / "x", kubeconfig, anonymize=tmp_path / "key")


def test_recording_of_another_cluster_is_not_continued(kubeconfig, tmp_path):
    path = tmp_path / "now.kubeloop"
    record_once(path, kubeconfig, namespace="default")
    with pytest.raises(UserError, match="is a recording with namespace default, not none"):
        record(path, RecordOptions(kubeconfig=kubeconfig, append=True))


def test_manifest_grants_what_is_recorded_and_nothing_else():
    documents = yaml.safe_load_all((ROOT / "deploy" / "record" / "record.yaml").read_text())
    (role,) = (document for document in documents if document["kind"] == "ClusterRole")
    assert granted_permissions(role["rules"]) == {
        (resource.group, resource.plural, verb) for resource in RECORDED for verb in ("list", "watch")
    }
