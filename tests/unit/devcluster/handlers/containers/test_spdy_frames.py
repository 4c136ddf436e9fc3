"""SPDY/3.1 frames, in the form that Go's spdystream sends."""

from __future__ import annotations

import zlib

import pytest

from kubeloop.devcluster.handlers.containers.spdy_frames import (
    _DICTIONARY,
    Pinged,
    SpdyError,
    SpdyFrames,
    StreamData,
    StreamOpened,
    StreamReset,
)
from support.apiserver.spdy_client import SpdyClient, control_frame


def test_streams_are_opened_with_compressed_headers():
    client, frames = SpdyClient(), SpdyFrames()
    first = client.open(1, streamtype="error", port="80")
    second = client.open(3, streamtype="data", port="80", is_last=True)  # continues the compression
    assert list(frames.receive(first + second)) == [
        StreamOpened(1, {"streamtype": "error", "port": "80"}, False),
        StreamOpened(3, {"streamtype": "data", "port": "80"}, True),
    ]


def test_frames_may_arrive_in_parts():
    frame = SpdyFrames.data(5, b"hello", is_last=True)
    frames = SpdyFrames()
    events = [event for byte in frame for event in frames.receive(bytes([byte]))]
    assert events == [StreamData(5, b"hello", True)]


def test_reset_and_ping_are_reported_and_others_ignored():
    ping = control_frame(6, b"\x00\x00\x00\x01")
    frames = SpdyFrames()
    received = control_frame(3, b"\x00\x00\x00\x07\x00\x00\x00\x05") + control_frame(4, bytes(4)) + ping
    assert list(frames.receive(received)) == [StreamReset(7), Pinged(ping)]


def test_reply_accepts_stream():
    frame = SpdyFrames().reply(9)
    assert frame[:4] == b"\x80\x03\x00\x02"
    assert int.from_bytes(frame[8:12], "big") == 9
    assert zlib.decompressobj(zdict=_DICTIONARY).decompress(frame[12:]) == bytes(4)  # no headers


@pytest.mark.parametrize(
    "received",
    [
        b"\x80\x02\x00\x01" + bytes(4),
        control_frame(1, bytes(10) + b"not zlib"),
        control_frame(1, b"\x00"),
        b"\x00\x00\x00\x01\x00\xff\xff\xff",
    ],
    ids=["another version", "invalid headers", "too short", "too large"],
)
def test_broken_frame_is_an_error(received: bytes):
    with pytest.raises(SpdyError):
        list(SpdyFrames().receive(received))


def test_large_headers_are_an_error():
    with pytest.raises(SpdyError, match="too large"):
        list(SpdyFrames().receive(SpdyClient().open(1, bomb="x" * 1_000_000)))
