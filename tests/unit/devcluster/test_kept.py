"""What a server keeps of itself in its data directory: token, certificate, signing key."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest

from kubeloop.devcluster.authentication.token_signing import TokenKey
from kubeloop.devcluster.server.tls import kept_certificate
from kubeloop.devcluster.storage.private_files import administrator_token
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import UserError


class Later(SystemClock):
    def now(self):
        return super().now() + timedelta(days=340)


def test_token_certificate_and_key_are_the_same_after_a_restart_and_for_their_owner_only(tmp_path: Path):
    folder, clock = tmp_path / "data", SystemClock()
    token, certificate = administrator_token(folder), kept_certificate(folder, clock).certificate_pem
    signed = TokenKey(folder).sign({"sub": "a"})
    assert administrator_token(folder) == token
    assert kept_certificate(folder, clock).certificate_pem == certificate
    assert TokenKey(folder).claims(signed) == {"sub": "a"}
    files = sorted(folder.iterdir())
    assert [each.name for each in files] == ["server.pem", "service-account.key", "token"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert administrator_token(None) != token


def test_a_certificate_that_ends_soon_or_cannot_be_read_is_made_anew(tmp_path: Path):
    first = kept_certificate(tmp_path, SystemClock()).certificate_pem
    second = kept_certificate(tmp_path, Later()).certificate_pem
    assert second != first
    (tmp_path / "server.pem").write_text("spoilt")
    assert kept_certificate(tmp_path, SystemClock()).certificate_pem not in (first, second)


def test_a_key_that_is_none_is_told(tmp_path: Path):
    (tmp_path / "service-account.key").write_text("spoilt")
    with pytest.raises(UserError, match="holds no P-256 key"):
        TokenKey(tmp_path).sign({})


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot use the data directory .*/file: token: "):
        administrator_token(tmp_path / "file")
