"""Certificate authorities of signers, from the options --cluster-signing-*."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.signing_authorities import authority_in_files, signing_authority

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"
SIGNERS = (CLIENT, SERVING, "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/legacy-unknown")


def write(path: Path) -> str:
    path.write_bytes(CertificateAuthority.create(datetime.now(UTC)).pem())
    return str(path)


def test_no_option_means_no_authority():
    assert signing_authority({"cluster_signing_cert_file": "", "cluster_signing_key_file": ""}) is None


@pytest.mark.parametrize("signer", SIGNERS)
def test_one_authority_signs_for_all_signers(tmp_path: Path, signer: str):
    path = write(tmp_path / "ca.pem")
    options = {"cluster_signing_cert_file": path, "cluster_signing_key_file": path}
    for authority in (signing_authority(options), authority_in_files(Path(path))):
        assert authority is not None
        signing = authority(signer)
        assert signing is not None
        assert signing.pem() == Path(path).read_bytes()
        assert authority("example.com/own") is None


def test_single_signers_have_authorities_of_their_own(tmp_path: Path):
    path = write(tmp_path / "ca.pem")
    options = {"cluster_signing_kubelet_serving_cert_file": path, "cluster_signing_kubelet_serving_key_file": path}
    authority = signing_authority(options)
    assert authority is not None
    assert authority(SERVING) is not None
    assert authority(CLIENT) is None


def test_replaced_file_counts_for_the_next_certificate(tmp_path: Path):
    path = tmp_path / "ca.pem"
    write(path)
    authority = authority_in_files(path)
    before = authority(CLIENT)
    write(path)
    after = authority(CLIENT)
    assert before is not None
    assert after is not None
    assert before.certificate != after.certificate


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        pytest.param(["cert"], "--cluster-signing-cert-file needs --cluster-signing-key-file", id="no key"),
        pytest.param(["key"], "--cluster-signing-key-file needs --cluster-signing-cert-file", id="no certificate"),
        pytest.param(
            ["cert", "key", "kubelet_client_cert", "kubelet_client_key"], "mutually exclusive", id="all and one"
        ),
    ],
)
def test_incomplete_options_are_an_error(names: list[str], problem: str):
    with pytest.raises(UserError, match=problem):
        signing_authority({f"cluster_signing_{name}_file": "/ca.pem" for name in names})


@pytest.mark.parametrize("content", [None, "spoilt"])
def test_unreadable_file_is_an_error(tmp_path: Path, content: str | None):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match="cannot read a certificate authority from"):
        authority_in_files(path)(CLIENT)
