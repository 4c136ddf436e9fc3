"""Configured logs of simulated containers: formats, options, and files that grow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeloop.devcluster.handlers.containers.container_logs import file_additions
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers, Entry, LogAnswer, Rule
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import PODS
from support.apiserver.stream_server import StreamServer, stream_server

CRI = (
    "2026-01-01T00:00:00.1Z stdout F first\n2026-01-01T00:00:01Z stderr P se\n2026-01-01T00:00:01Z stderr F cond\n"
    "2026-01-01T00:00:02Z stdout F third\n"
)


def answers_in(tmp_path: Path) -> ContainerAnswers:
    (tmp_path / "cri.log").write_text(CRI)
    (tmp_path / "previous.log").write_text('{"log":"before\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}\n')
    logs = (
        Entry(LogAnswer(tmp_path / "cri.log", tmp_path / "previous.log"), ("web",)),
        Entry(LogAnswer(text="a\nb\nc\n"), ("side",)),
    )
    return ContainerAnswers(logs=[Rule(logs)])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[StreamServer]:
    async with stream_server(answers_in(tmp_path)) as server:
        yield server


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("container=web", "first\nsecond\nthird\n"),
        ("container=web&tailLines=1", "third\n"),
        ("container=web&tailLines=0", ""),
        ("container=web&limitBytes=7", "first\ns"),
        ("container=web&sinceTime=2026-01-01T00:00:02Z", "third\n"),
        ("container=web&sinceSeconds=60", ""),
        ("container=web&tailLines=1&timestamps=true", "2026-01-01T00:00:02Z third\n"),
        ("container=web&previous=true", "before\n"),
        ("container=side&previous=true", ""),
        ("container=side", "a\nb\nc\n"),
        ("container=side&sinceSeconds=60&timestamps=true", "a\nb\nc\n"),  # its lines have no time
        ("container=side&follow=true", "a\nb\nc\n"),
    ],
)
async def test_log_options(server: StreamServer, query: str, text: str):
    assert await server.get(f"log?{query}") == (200, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("container=web", "first\nsecond\nthird\n"),
        ("container=web&stream=All&tailLines=1", "third\n"),
        ("container=web&stream=Stdout", "first\nthird\n"),
        ("container=web&stream=Stderr", "second\n"),
        ("container=web&previous=true&stream=Stderr", ""),
        ("container=side&stream=Stdout", "a\nb\nc\n"),
    ],
)
async def test_log_of_one_stream(tmp_path: Path, query: str, text: str):
    gates = FeatureGates({"PodLogsQuerySplitStreams": True})
    async with stream_server(answers_in(tmp_path), gates) as server:
        assert await server.get(f"log?{query}") == (200, text)


async def test_unreadable_log_is_refused(tmp_path: Path):
    answers = ContainerAnswers(logs=[Rule((Entry(LogAnswer(tmp_path / "none")),))])
    async with stream_server(answers) as server:
        status, text = await server.get("log?container=web")
    assert (status, "cannot be read" in text) == (400, True)


async def test_followed_log_grows_and_ends_with_the_pod(server: StreamServer, tmp_path: Path):
    async with server.following("log?container=web&follow=true&tailLines=1") as log:
        assert await log.readline() == b"third\n"
        with (tmp_path / "cri.log").open("a") as file:
            file.write("2026-01-01T00:00:03Z stdout F fourth\n")
        assert await log.readline() == b"fourth\n"
        server.api.store.delete(PODS, "default", "p")
        assert await log.read() == b""


async def test_file_that_becomes_shorter_is_read_anew(tmp_path: Path):
    (tmp_path / "log").write_text("long text\n")
    additions = file_additions(tmp_path / "log", position=10)
    (tmp_path / "log").write_text("new\n")
    assert await anext(additions) == b"new\n"
    with (tmp_path / "log").open("a") as stream:
        stream.write("more\n")
    assert await anext(additions) == b"more\n"


async def test_missing_file_has_no_additions(tmp_path: Path):
    assert [data async for data in file_additions(tmp_path / "none", 0, lambda: False)] == []
