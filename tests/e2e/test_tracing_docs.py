"""docs/tracing.md: its commands run in order with the documented output."""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.cli_processes import MIXED, ROOT, WEB, Kubeloop, running_cluster

PAGE = (ROOT / "docs" / "tracing.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)[1:] for line in re.findall(r"^ {4}(kubeloop trace.*)$", PAGE, re.MULTILINE)
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Iterator[tuple[Kubeloop, Path]]:
    """The cluster of the page's first command, and a folder for the files of the other commands."""
    folder = tmp_path_factory.mktemp("mixed")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", MIXED) as (up, _):
        assert up.wait_for(r"in a browser: http://127\.0\.0\.1:\d+/traces")
        yield kubeloop, folder


def test_commands_run_in_the_order_of_the_page(mixed):
    kubeloop, folder = mixed
    files = set()
    assert len(COMMANDS) > 8
    for command in COMMANDS:
        words = [str(folder / word) if re.search(r"\.(json|html)$", word) else word for word in command]
        files |= {Path(word) for word in words if word.startswith(str(folder))}
        if "--watch" in command:
            with kubeloop.running(*words) as watching:
                watching.wait_for(r"pods: .*bound/s")
                assert watching.stop() in (0, -15)
            continue
        result = kubeloop.run(*words)
        assert result.returncode == 0, (command, result.stderr)
        assert result.stdout or "wrote" in result.stderr, command
    for file in files:
        content = file.read_text()
        if file.suffix == ".html":
            assert content.startswith("<!doctype html>")
        elif "perfetto" in " ".join(next(c for c in map(" ".join, COMMANDS) if file.name in c).split()):
            events = json.loads(content)["traceEvents"]
            assert {"M", "X"} <= {event["ph"] for event in events}
        else:
            assert json.loads(content)["resourceSpans"]


def test_exported_file_gives_the_same_output_as_the_process(mixed):
    kubeloop, folder = mixed
    path = folder / "same.json"
    assert kubeloop.run("trace", "--otlp", path).returncode == 0
    live, exported = (kubeloop.json("trace", "deploy/frontend", "--json", *source) for source in ([], ["--from", path]))
    for rollout in (live, exported):
        for pod in rollout["pods"]:
            del pod["stage"], pod["stageAfterUs"]  # only the process has the pod's readiness
        del rollout["stages"]
    assert exported == live
    name = live["slowest"][0]
    live, exported = (kubeloop.json("trace", f"pod/{name}", "--json", *source) for source in ([], ["--from", path]))
    assert {span["spanId"] for span in exported["spans"]} == {span["spanId"] for span in live["spans"]}


def test_file_of_one_pod_contains_all_causes(mixed):
    kubeloop, folder = mixed
    path = folder / "one.json"
    name = kubeloop.json("trace", "deploy/frontend", "--json")["slowest"][0]
    for source in ([], ["--from", path]):
        result = kubeloop.run("trace", f"pod/{name}", *source, "--otlp", path)
        assert "wrote" in result.stderr
        (resource,) = json.loads(path.read_text())["resourceSpans"]
        spans = resource["scopeSpans"][0]["spans"]
        roots = sorted(span["name"] for span in spans if "parentSpanId" not in span)
        assert roots == ["apply", "pod", "reconcile deployment", "reconcile replicaset"]


def test_watch_of_a_pod_prints_each_span_once(mixed):
    kubeloop, _ = mixed
    name = kubeloop.json("trace", "deploy/frontend", "--json")["slowest"][0]
    result = kubeloop.run("trace", f"pod/{name}", "--watch")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert len(lines) == len({*lines})
    assert sum("scheduling attempt 1" in line for line in lines) == 1
    assert "pod mixed/" in lines[-1]


def test_watch_with_json_prints_one_document_per_line(mixed):
    kubeloop, _ = mixed
    with kubeloop.running("trace", "deploy/frontend", "--watch", "--json") as watching:
        watching.wait_for(r"^\{")
        watching.stop()
    complete_lines = [line for line in watching.lines if line.endswith("\n")]  # the last line may be truncated
    assert {json.loads(line)["owner"] for line in complete_lines} == {"deployment/frontend"}


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["pod/impossibel"], "no pod impossibel in any namespace", "did you mean impossible?"),
        (["pod/impossible", "-n", "default"], "no pod impossible in namespace default", "exists in namespace mixed"),
        (["deploy/fronted"], "no deployment fronted in any namespace", "did you mean frontend?"),
        (["--from", "/nowhere.json"], "cannot read /nowhere.json", "OTLP"),
        (["--watch", "--html", "x.html"], "--watch writes no file", "remove --watch"),
        (["--endpoint", "http://127.0.0.1:9"], "does not respond", "is kubeloop running?"),
    ],
)  # fmt: skip
def test_errors_have_hints(mixed, arguments, problem, hint):
    kubeloop, _ = mixed
    result = kubeloop.run("trace", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    error, hint_line = result.stderr.splitlines()
    assert problem in error
    assert hint in hint_line


def test_missing_traces_are_reported(tmp_path):
    kubeloop = Kubeloop(tmp_path)
    with kubeloop.running("up", "--nodes", "3", "-f", WEB, OTEL_TRACES_SAMPLER="always_off") as up:
        up.wait_for("runs until Ctrl-C")
        for arguments in (["trace"], ["trace", "deploy/web"], ["trace", "deploy/web", "--json"]):
            result = kubeloop.run(*arguments)
            assert (result.returncode, result.stdout) == (2, "")
            assert re.search(r"none of the \d+ pods .* has a trace", result.stderr)
            assert "OTEL_TRACES_SAMPLER" in result.stderr


def test_screenshots_have_desktop_and_phone_sizes():
    sizes = {}
    for name in re.findall(r"\]\(images/([\w-]+\.png)\)", PAGE):
        content = (ROOT / "docs" / "images" / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < 250_000
        sizes[name] = struct.unpack(">II", content[16:24])
    assert {*sizes.values()} == {(1440, 900), (390, 844)}
    assert {path.name for path in (ROOT / "docs" / "images").glob("*.png")} == sizes.keys()
