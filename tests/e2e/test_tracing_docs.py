"""docs/tracing.md holds: its commands run, one after the other, and say what the page says they say."""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_processes import MIXED, ROOT, WEB, Kubeloop, running_cluster

PAGE = (ROOT / "docs" / "tracing.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)[1:] for line in re.findall(r"^ {4}(kubeloop trace.*)$", PAGE, re.MULTILINE)
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Iterator[tuple[Kubeloop, Path]]:
    """The cluster of the page's first command, and a folder for the files of the others."""
    folder = tmp_path_factory.mktemp("mixed")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", MIXED) as (up, _):
        assert up.wait_for(r"in a browser: http://127\.0\.0\.1:\d+/traces")
        yield kubeloop, folder


def test_every_command_runs_in_the_order_of_the_page(mixed):
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
        done = kubeloop.run(*words)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout or "wrote" in done.stderr, command
    for file in files:
        content = file.read_text()
        if file.suffix == ".html":
            assert content.startswith("<!doctype html>")
        elif "perfetto" in " ".join(next(c for c in map(" ".join, COMMANDS) if file.name in c).split()):
            events = json.loads(content)["traceEvents"]
            assert {"M", "X"} <= {event["ph"] for event in events}
        else:
            assert json.loads(content)["resourceSpans"]


def test_a_file_shows_what_the_process_showed(mixed):
    kubeloop, folder = mixed
    path = folder / "same.json"
    assert kubeloop.run("trace", "--otlp", path).returncode == 0
    live, again = (kubeloop.json("trace", "deploy/frontend", "--json", *more) for more in ([], ["--from", path]))
    for rollout in (live, again):
        for pod in rollout["pods"]:
            del pod["stage"]  # the process knows more than the trace: whether the pod is ready
        del rollout["stages"]
    assert again == live
    name = live["slowest"][0]
    live, again = (kubeloop.json("trace", f"pod/{name}", "--json", *more) for more in ([], ["--from", path]))
    assert {span["spanId"] for span in again["spans"]} == {span["spanId"] for span in live["spans"]}


def test_a_file_of_one_pod_has_all_that_caused_it(mixed):
    kubeloop, folder = mixed
    path = folder / "one.json"
    name = kubeloop.json("trace", "deploy/frontend", "--json")["slowest"][0]
    for source in ([], ["--from", path]):
        done = kubeloop.run("trace", f"pod/{name}", *source, "--otlp", path)
        assert "wrote" in done.stderr
        (resource,) = json.loads(path.read_text())["resourceSpans"]
        spans = resource["scopeSpans"][0]["spans"]
        roots = sorted(span["name"] for span in spans if "parentSpanId" not in span)
        assert roots == ["apply", "pod", "reconcile deployment", "reconcile replicaset"]


def test_a_watched_pod_ends_with_its_trace_and_tells_each_span_once(mixed):
    kubeloop, _ = mixed
    name = kubeloop.json("trace", "deploy/frontend", "--json")["slowest"][0]
    done = kubeloop.run("trace", f"pod/{name}", "--watch")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len({*lines})
    assert sum("scheduling attempt 1" in line for line in lines) == 1
    assert "pod mixed/" in lines[-1]


def test_with_json_there_is_a_document_a_line(mixed):
    kubeloop, _ = mixed
    with kubeloop.running("trace", "deploy/frontend", "--watch", "--json") as watching:
        watching.wait_for(r"^\{")
        watching.stop()
    whole = [line for line in watching.lines if line.endswith("\n")]  # it may have been stopped within one
    assert {json.loads(line)["owner"] for line in whole} == {"deployment/frontend"}


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
def test_errors_say_what_to_try(mixed, arguments, problem, hint):
    kubeloop, _ = mixed
    done = kubeloop.run("trace", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    error, told = done.stderr.splitlines()
    assert problem in error
    assert hint in told


def test_without_traces_it_is_told_that_there_are_none(tmp_path):
    kubeloop = Kubeloop(tmp_path)
    with kubeloop.running("up", "--nodes", "3", "-f", WEB, OTEL_TRACES_SAMPLER="always_off") as up:
        up.wait_for("runs until Ctrl-C")
        for arguments in (["trace"], ["trace", "deploy/web"], ["trace", "deploy/web", "--json"]):
            done = kubeloop.run(*arguments)
            assert (done.returncode, done.stdout) == (2, "")
            assert re.search(r"none of the \d+ pods .* has a trace", done.stderr)
            assert "OTEL_TRACES_SAMPLER" in done.stderr


def test_the_pictures_are_there_at_the_sizes_of_a_desk_and_of_a_phone():
    sizes = {}
    for name in re.findall(r"\]\(images/([\w-]+\.png)\)", PAGE):
        content = (ROOT / "docs" / "images" / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < 250_000
        sizes[name] = struct.unpack(">II", content[16:24])
    assert {*sizes.values()} == {(1440, 900), (390, 844)}
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} == sizes.keys()
