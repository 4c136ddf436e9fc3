"""kubeloop replay: outputs and errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from kubeloop.cli.main import commands
from kubeloop.cli.options.recording_options import ChangeOptions
from kubeloop.cli.options.replay_options import ReplayOptions
from kubeloop.cli.replay.replay import replay
from kubeloop.cli.replay.trace_file import TraceFile
from kubeloop.kube.user_error import UserError
from kubeloop.recording.writer import Header, RecordingWriter


class _Clock:
    seconds = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 0, 0, self.seconds, tzinfo=UTC)

    def time_ns(self) -> int:
        return round(self.now().timestamp() * 1e9)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Return a recording of one node on which a user creates a pod."""
    path, clock = tmp_path / "day.kubeloop", _Clock()
    writer = RecordingWriter.create(path, Header(), clock=clock)
    size = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "1"},
        "status": {"capacity": size, "allocatable": size},
    }
    for name, objects in (("nodes", [node]), ("pods", [])):
        writer.start_list(name)
        for obj in objects:
            writer.put(name, obj)
        writer.end_list(name)
    clock.seconds = 2
    metadata = {"name": "web", "namespace": "default", "uid": "2"}
    spec = {"containers": [{"name": "a", "image": "a"}]}
    writer.put("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    clock.seconds = 20
    writer.close()
    return path


def test_replay_writes_text_page_and_traces(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page, traces = tmp_path / "page.html", tmp_path / "traces.json"
    assert replay([recording], ReplayOptions(html=page, traces=traces), ChangeOptions()) == 0
    assert "pods bound" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    found = CliRunner().invoke(commands, ["trace", "--from", str(traces), "pod/web"])
    assert found.exit_code == 0, found.output
    assert "pod default/web" in found.output


def test_json_report_has_recording_and_replay(recording: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    assert replay([recording], ReplayOptions(as_json=True), ChangeOptions()) == 0
    report = json.loads(capfdbinary.readouterr().out)
    assert [(run["name"], run["created"], run["bound"]) for run in report["runs"]] == [
        ("recorded", 1, 0),
        ("default", 1, 1),
    ]


def test_configurations_of_one_name_are_refused(recording: Path, tmp_path: Path):
    configuration = tmp_path / "a.yaml"
    configuration.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    with pytest.raises(UserError, match="name of another configuration"):
        replay([recording], ReplayOptions(config=configuration, compare=(configuration,)), ChangeOptions())


def test_invalid_configuration_is_refused_before_the_recording_is_read(tmp_path: Path):
    configuration = tmp_path / "a.yaml"
    configuration.write_text("kind: Other\n")
    with pytest.raises(UserError, match="Other"):
        replay([tmp_path / "missing"], ReplayOptions(config=configuration), ChangeOptions())


def test_file_that_cannot_be_written_is_named(recording: Path, tmp_path: Path):
    with pytest.raises(UserError, match="cannot write"):
        replay([recording], ReplayOptions(traces=tmp_path / "missing" / "traces.json"), ChangeOptions())


def test_trace_file_confirms_delivery(tmp_path: Path):
    with (tmp_path / "traces").open("wb") as file:
        assert TraceFile(file).delivered() == []


def test_report_names_the_changes(recording: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    arguments = ["replay", str(recording), "--add-nodes", "2", "--like", "n", "--cordon", "n", "--html", str(page)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    changes = "seed 0, with --cordon=n --add-nodes=2 --like=n"
    assert changes in result.output
    assert changes in page.read_text()
    assert "n-new-1" not in result.output
    assert "3      1" in next(line for line in result.output.splitlines() if "4 cpu, 8Gi  default" in line)


def test_exit_code_is_1_if_no_number_of_nodes_is_enough(
    recording: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: large}, "
        "spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 5}}}]}}"
    )
    assert replay([recording], ReplayOptions(), ChangeOptions(files=(manifest,), fit="n")) == 1
    assert b"default: no number of nodes like n is enough (1 pending with 0)" in capfdbinary.readouterr().out
    assert replay([recording], ReplayOptions(as_json=True), ChangeOptions(fit="n")) == 0
    fit = json.loads(capfdbinary.readouterr().out)["runs"][1]["fit"]
    assert fit == {"like": "n", "nodes": 0, "runs": [{"nodes": 0, "pending": 0}]}


def test_changes_are_checked_before_the_recording_is_read(tmp_path: Path):
    with pytest.raises(UserError, match="--add-nodes needs --like"):
        replay([tmp_path / "missing"], ReplayOptions(), ChangeOptions(add_nodes=1))
    with pytest.raises(UserError, match="--traces and --fit are mutually exclusive"):
        replay([tmp_path / "missing"], ReplayOptions(traces=tmp_path / "traces"), ChangeOptions(fit="n"))


def test_recording_larger_than_memory_is_refused(recording: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kubeloop.recording.memory.available_memory", lambda: 2_000)
    with pytest.raises(UserError, match=r"day\.kubeloop: the cluster is larger than memory"):
        replay([recording], ReplayOptions(), ChangeOptions())


def test_trace_of_simkube_and_its_nodes_are_replayed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    trace, nodes = tmp_path / "t.sktrace", tmp_path / "nodes.csv"
    spec = {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "3"}}}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}

    def web(replicas: int) -> dict[str, Any]:
        metadata = {"name": "web", "namespace": "shop"}
        labels = {"matchLabels": {"app": "web"}}
        spec = {"replicas": replicas, "selector": labels, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "short", "namespace": "shop"}, "spec": spec}
    events: list[dict[str, Any]] = [
        {"ts": 100, "applied_objs": [web(1)], "deleted_objs": []},
        {"ts": 160, "applied_objs": [pod], "deleted_objs": []},
        {"ts": 220, "applied_objs": [web(2)], "deleted_objs": [pod]},
        {"ts": 280, "applied_objs": [pod], "deleted_objs": []},
    ]
    trace.write_bytes(msgspec.msgpack.encode({"events": events, "version": 2, "pod_lifecycles": {}}))
    nodes.write_text("name,cpu_milli,memory_mib,gpu,model\nn-1,4000,8000,0,\nn-2,4000,8000,0,\n")
    assert replay([trace, nodes], ReplayOptions(as_json=True), ChangeOptions()) == 0
    report = json.loads(capfdbinary.readouterr().out)
    assert report["seconds"] == 240.0
    (_, run) = report["runs"]
    assert {it["name"]: (it["created"], it["bound"]) for it in run["workloads"]} == {
        "deployment shop/web": (2, 2),
        "pod shop/short": (2, 1),  # the second one has no room
    }
