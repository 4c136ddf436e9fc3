"""Certificates that the API server presents to aggregated API servers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeloop.devcluster.aggregation.proxy_settings import read_client_pem
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.user_error import UserError
from support.objects.client_certificates import client_certificate


def test_certificate_and_key_are_joined(tmp_path: Path):
    pem = client_certificate(CertificateAuthority.create(datetime.now(UTC)), "proxy").pem
    (tmp_path / "both").write_bytes(pem)
    assert read_client_pem(tmp_path / "both", tmp_path / "both") == pem + b"\n" + pem


@pytest.mark.parametrize("name", ["missing", "key"])
def test_file_without_certificate_is_a_user_error(tmp_path: Path, name: str):
    (tmp_path / "key").write_text("none")
    with pytest.raises(UserError, match=f"--proxy-client-cert-file: no certificate and key in {tmp_path}/{name} and "):
        read_client_pem(tmp_path / name, tmp_path / "key")
