"""Logs of simulated containers: lines of a file or text, selected by PodLogOptions.

Lines may have the form of CRI (`TIME stdout F TEXT`) or of Docker's JSON log; others are plain text, without a time.
Source: cri-client/pkg/logs of v1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.kubelet.containers.container_answers import LogAnswer
from kubeloop.devcluster.serializer.decoding import decode_time
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.times import parse_time, time_plus

_POLL_SECONDS = 0.2
_MAX_LOG_BYTES = 64 << 20  # read from the end of a larger file
_CRI_LINE = re.compile(rb"(\d{4}-\d\d-\d\dT\S+) (stdout|stderr) ([FP])(?::\S*)? ?(.*)", re.DOTALL)


class LogLine(NamedTuple):
    """A line with its end. time: RFC 3339, "" if the log has none. stream: "stdout" or "stderr"."""

    time: str
    text: bytes
    stream: str = "stdout"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log request that has been checked.

    since: lines before this time are left out. stream: "stdout", "stderr", or "all".
    """

    previous: bool
    follow: bool
    timestamps: bool
    tail_lines: int | None
    limit_bytes: int | None
    since: datetime | None
    stream: str = "all"

    @classmethod
    def of(cls, request: ApiRequest, now: datetime) -> LogOptions:
        def number(name: str) -> int | None:
            text = request.option(name)
            return parse_integer(text) if text else None

        since_time, since_seconds = request.option("sinceTime"), number("sinceSeconds")
        since_text = decode_time(since_time) if since_time else None
        since = parse_time(since_text) if since_text else None
        if since_seconds is not None:
            since = time_plus(now, -since_seconds)
        return cls(
            previous=request.flag("previous"),
            follow=request.flag("follow"),
            timestamps=request.flag("timestamps"),
            tail_lines=number("tailLines"),
            limit_bytes=number("limitBytes"),
            since=since,
            stream=request.option("stream").lower() or "all",
        )


def log_chunks(
    answer: LogAnswer, options: LogOptions, container: str, is_running: Callable[[], bool]
) -> bytes | AsyncIterator[bytes]:
    """Return the selected part of the log; if it is followed, an iterator that ends after the container.

    Raises StatusError 400 for a log that is missing or cannot be read.
    """
    file = answer.previous_file if options.previous else answer.file
    if file is None:
        text = b"" if options.previous else _selected(_lines((answer.text or "").encode()), options)
        follows = options.follow and not options.previous and answer.text is None
        return _until_end(text, is_running) if follows else text
    try:
        content, end = _read(file)
    except OSError as error:
        raise errors.bad_request(f"the configured log of container {container} cannot be read: {error}") from error
    selected = _selected(_lines(content), options)
    if not options.follow or options.previous or not answer.follows:
        return selected
    return _followed(file_additions(file, end, is_running), selected, options)


def _read(file: Path) -> tuple[bytes, int]:
    """Return the content and the position of its end."""
    with file.open("rb") as stream:
        end = stream.seek(0, 2)
        start = max(0, end - _MAX_LOG_BYTES)
        stream.seek(start)
        content = stream.read(end - start)
    return content, start + len(content)


def _lines(content: bytes) -> Iterator[LogLine]:
    for line in content.splitlines(keepends=True):
        yield _line(line)


def _line(line: bytes) -> LogLine:
    if match := _CRI_LINE.fullmatch(line):
        text = match[4].rstrip(b"\n") if match[3] == b"P" else match[4]  # a partial line continues in the next one
        return LogLine(match[1].decode(), text, match[2].decode())
    if line.startswith(b'{"log":'):
        with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
            entry = msgspec.json.decode(line)
            return LogLine(str(entry["time"]), str(entry["log"]).encode(), str(entry.get("stream", "stdout")))
    return LogLine("", line)


def _selected(lines: Iterable[LogLine], options: LogOptions) -> bytes:
    """Return the lines since a time, the last of them, up to a number of bytes."""
    chosen = [line for line in _of_stream(lines, options) if options.since is None or _is_since(line, options.since)]
    if options.tail_lines is not None:
        chosen = chosen[-options.tail_lines :] if options.tail_lines else []
    return b"".join(_formatted(chosen, options))[: options.limit_bytes]


def _of_stream(lines: Iterable[LogLine], options: LogOptions) -> Iterator[LogLine]:
    return (line for line in lines if options.stream in ("all", line.stream))


def _is_since(line: LogLine, since: datetime) -> bool:
    """Return True for a line that is not older; one without a time is never left out."""
    try:
        time = parse_time(line.time)
    except ValueError:
        return True
    return time >= since


def _formatted(lines: Iterable[LogLine], options: LogOptions) -> Iterator[bytes]:
    for line in lines:
        yield f"{line.time} ".encode() + line.text if options.timestamps and line.time else line.text


async def _until_end(text: bytes, is_running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the text of a container that adds nothing to it, and wait for its end."""
    if text:
        yield text
    while is_running():
        await asyncio.sleep(_POLL_SECONDS)


async def _followed(additions: AsyncIterator[bytes], first: bytes, options: LogOptions) -> AsyncIterator[bytes]:
    remaining = None if options.limit_bytes is None else options.limit_bytes - len(first)
    if first:
        yield first
    rest = b""
    async for data in additions:
        complete, newline, rest = (rest + data).rpartition(b"\n")
        chunk = b"".join(_formatted(_of_stream(_lines(complete + newline), options), options))
        if remaining is not None:
            chunk = chunk[:remaining]
            remaining -= len(chunk)
        if chunk:
            yield chunk
        if remaining == 0:
            return


async def file_additions(
    file: Path, position: int | None = None, is_running: Callable[[], bool] = lambda: True
) -> AsyncIterator[bytes]:
    """Yield what is added to a file after `position`, by default its present end, while the container runs.

    A file that has become shorter is read anew.
    """
    is_last = False
    while not is_last:
        is_last = not is_running()  # the file is read once more
        data, position = _added(file, position)
        if data:
            yield data
        if not is_last:
            await asyncio.sleep(_POLL_SECONDS)


def _added(file: Path, position: int | None) -> tuple[bytes, int | None]:
    """Return what follows `position`, and its end; nothing for a file that does not exist (yet)."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            start = size if position is None else position if position <= size else 0
            stream.seek(start)
            data = stream.read(_MAX_LOG_BYTES)
    except OSError:
        return b"", position
    return data, start + len(data)
