"""kubeloop/recording/gzip_lines.py: lines in a gzip stream that is cut off, repaired and continued."""

from __future__ import annotations

import gzip

import pytest

from kubeloop.recording.gzip_lines import DamagedStream, GzipLineReader, GzipLineWriter, repair

LINES = [f"line {number} {'x' * (number % 50)}".encode() for number in range(2_000)]


def write(path, lines, *, flush_every=10, close=True):
    with path.open("ab") as file:
        writer = GzipLineWriter(file)
        for number, line in enumerate(lines, start=1):
            writer.write(line)
            if number % flush_every == 0:
                writer.flush()
        if close:
            writer.close()


def test_closed_file_is_readable_by_gzip(tmp_path):
    path = tmp_path / "lines.gz"
    write(path, LINES)
    assert gzip.decompress(path.read_bytes()).splitlines() == LINES
    reader = GzipLineReader(path)
    assert list(reader) == LINES
    assert (reader.is_cut_off, reader.damage) == (False, "")


@pytest.mark.parametrize("cut_bytes", [0, 1, 5, 100, 4_000])
def test_file_that_was_cut_off_is_repaired_and_continued(tmp_path, cut_bytes):
    path = tmp_path / "lines.gz"
    write(path, LINES[:1_500], flush_every=7, close=False)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut_bytes])
    reader = GzipLineReader(path)
    readable = list(reader)
    assert reader.is_cut_off
    assert readable == LINES[: len(readable)]
    assert repair(path)
    whole = gzip.decompress(path.read_bytes()).splitlines()
    assert len(whole) % 7 == 0  # up to the last flush
    assert len(readable) - len(whole) <= 7
    write(path, LINES[1_500:])
    assert list(GzipLineReader(path)) == whole + LINES[1_500:]
    assert not repair(path)


def test_flushed_lines_survive_without_the_end_of_the_stream(tmp_path):
    path = tmp_path / "lines.gz"
    with path.open("wb") as file:
        writer = GzipLineWriter(file)
        writer.write(b"one")
        writer.flush()
        writer.write(b"two")
        assert list(GzipLineReader(path)) == [b"one"]


def test_repair_removes_a_member_without_a_flush(tmp_path):
    path = tmp_path / "lines.gz"
    write(path, [b"one"])
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x1f\x8b\x08\x00")
    assert repair(path)
    assert path.stat().st_size == size


def test_damaged_bytes_end_the_lines_with_a_reason(tmp_path):
    path = tmp_path / "lines.gz"
    write(path, LINES)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    path.write_bytes(data)
    reader = GzipLineReader(path)
    lines = list(reader)
    assert 0 < len(lines) < len(LINES)  # those before the damage, in the same chunk
    assert lines[0] == LINES[0]
    assert "damaged" in reader.damage
    with pytest.raises(DamagedStream):
        repair(path)


def test_text_that_is_not_compressed_is_read(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nhal")
    reader = GzipLineReader(path)
    assert list(reader) == [b"one", b"two"]
    assert reader.is_cut_off
