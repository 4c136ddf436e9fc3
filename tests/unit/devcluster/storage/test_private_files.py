"""Private files of the data directory: token, certificate and signing key."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.server.tls import stored_certificate
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.private_files import (
    SERVICE_ACCOUNT_KEY,
    check_owner,
    read_or_create_token,
    write_private_file,
)
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError


class LaterClock(SystemClock):
    def now(self):
        return super().now() + timedelta(days=340)


def test_private_files_survive_restarts_with_mode_0600(tmp_path: Path):
    folder, clock = tmp_path / "data", SystemClock()
    token, certificate = read_or_create_token(folder), stored_certificate(folder / "ca.pem", clock).pem
    signed = TokenKey(folder / SERVICE_ACCOUNT_KEY).sign({"sub": "a"})
    assert read_or_create_token(folder) == token
    assert stored_certificate(folder / "ca.pem", clock).pem == certificate
    assert TokenKey(folder / SERVICE_ACCOUNT_KEY).claims(signed) == {"sub": "a"}
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["ca.pem", "server.pem", "service-account.key", "token"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert read_or_create_token(None) != token


def test_expiring_or_invalid_certificate_is_replaced(tmp_path: Path):
    first = stored_certificate(tmp_path / "ca.pem", SystemClock()).pem
    second = stored_certificate(tmp_path / "ca.pem", LaterClock()).pem
    assert second != first
    (tmp_path / "server.pem").write_text("spoilt")
    assert stored_certificate(tmp_path / "ca.pem", SystemClock()).pem not in (first, second)


def test_invalid_signing_key_is_an_error(tmp_path: Path):
    (tmp_path / "service-account.key").write_text("spoilt")
    with pytest.raises(UserError, match="holds no P-256 key"):
        TokenKey(tmp_path / SERVICE_ACCOUNT_KEY).sign({})


def test_private_file_ignores_the_umask_and_prepared_drafts(tmp_path: Path):
    before = os.umask(0)
    try:
        write_private_file(tmp_path / "token", b"one")
        write_private_file(tmp_path / "token", b"two")
        DataDirectory(tmp_path / "data").close()
    finally:
        os.umask(before)
    assert (tmp_path / "token").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*") if file.is_file()} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "token"]


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    if owner == 0:
        tmp_path.chmod(0o777)  # root's folders are used, for example volumes of containers
        check_owner(tmp_path)
        os.chown(tmp_path, 7, -1)
    for use in (read_or_create_token, DataDirectory):
        with pytest.raises(UserError, match="belongs to another user"):
            use(tmp_path)


def test_unusable_folder_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot use the data directory .*/file: token: "):
        read_or_create_token(tmp_path / "file")
