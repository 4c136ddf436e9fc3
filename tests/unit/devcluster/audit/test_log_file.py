"""Rotation of the audit log's file."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.devcluster.audit.log_file import AuditOutput, Rotation, open_log
from kubeloop.kube.user_error import UserError
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HALF_MEGABYTE = b"x" * (1 << 19)


def append(output: AuditOutput) -> None:
    output.write(b"line\n")
    output.close()


def test_full_file_is_renamed_with_the_time(tmp_path):
    output = open_log(str(tmp_path / "logs" / "audit.log"), Rotation(max_megabytes=1), SetClock(NOW))
    for _ in range(3):
        output.write(HALF_MEGABYTE)
    output.close()
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sizes == {"audit-2026-05-01T12-00-00.000.log": 1 << 20, "audit.log": 1 << 19}


def test_existing_file_is_continued_and_private(tmp_path):
    path = tmp_path / "audit.log"
    path.write_bytes(HALF_MEGABYTE)
    append(open_log(str(path), Rotation(max_megabytes=1), SetClock(NOW)))
    assert path.stat().st_size == (1 << 19) + 5
    append(open_log(str(tmp_path / "new"), Rotation(), SetClock(NOW)))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_size_without_limit_is_never_rotated(tmp_path):
    output = open_log(str(tmp_path / "audit.log"), Rotation(max_megabytes=0), SetClock(NOW))
    for _ in range(3):
        output.write(HALF_MEGABYTE)
    output.close()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]


@pytest.mark.parametrize(
    ("rotation", "remaining"),
    [
        pytest.param(Rotation(1, max_backups=2, max_days=0), ["05-05", "05-04"], id="number"),
        pytest.param(Rotation(1, max_backups=0, max_days=2), ["05-05", "05-04", "05-03"], id="age"),
        pytest.param(Rotation(1, max_backups=0, max_days=0), ["05-05", "05-04", "05-03", "05-02"], id="no limit"),
    ],
)
def test_old_files_are_deleted(tmp_path, rotation: Rotation, remaining: list[str]):
    clock = SetClock(NOW)
    for day in range(5):
        clock.moment = NOW + timedelta(days=day)
        output = open_log(str(tmp_path / "audit.log"), rotation, clock)
        for _ in range(2):
            output.write(HALF_MEGABYTE)
        output.close()
    names = sorted((path.name for path in tmp_path.glob("audit-*")), reverse=True)
    assert names == [f"audit-2026-{day}T12-00-00.000.log" for day in remaining]


def test_old_files_are_compressed(tmp_path):
    output = open_log(str(tmp_path / "audit.log"), Rotation(1, compress=True), SetClock(NOW))
    for _ in range(3):
        output.write(HALF_MEGABYTE)
    output.close()
    (old,) = tmp_path.glob("audit-*")
    assert old.name == "audit-2026-05-01T12-00-00.000.log.gz"
    assert gzip.decompress(old.read_bytes()) == HALF_MEGABYTE * 2


def test_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot write the audit log"):
        open_log(str(tmp_path), Rotation(), SetClock(NOW))


def test_dash_is_stdout(capfdbinary):
    append(open_log("-", Rotation(), SetClock(NOW)))
    assert capfdbinary.readouterr().out == b"line\n"
