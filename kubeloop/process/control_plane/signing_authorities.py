"""Certificate authorities of the signers of CertificateSigningRequests, from the options --cluster-signing-*.

Source: v1.36 cmd/kube-controller-manager/app/options/csrsigningcontroller.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from kubeloop.kube.auth.certificate_authority import CertificateAuthority, SigningAuthority

_SIGNERS = {
    "kubernetes.io/kubelet-serving": "kubelet-serving-",
    "kubernetes.io/kube-apiserver-client-kubelet": "kubelet-client-",
    "kubernetes.io/kube-apiserver-client": "kube-apiserver-client-",
    "kubernetes.io/legacy-unknown": "legacy-unknown-",
}


def signing_authority(options: Mapping[str, Any]) -> SigningAuthority | None:
    """Return the authorities of the signers, None if no option names one. Raises UserError.

    options: values of the options of controllers by key. The files are read again for each certificate.
    """
    shared = _files(options, "")
    files = {signer: pair for signer, infix in _SIGNERS.items() if (pair := _files(options, infix)) is not None}
    if shared is not None and files:
        raise UserError(
            "--cluster-signing-cert-file and those of single signers are mutually exclusive",
            hint="name one authority for all signers, or one for each",
        )
    if shared is not None:
        files = dict.fromkeys(_SIGNERS, shared)
    return authority_in_files(files) if files else None


def authority_in_files(files: Mapping[str, tuple[Path, Path]] | Path) -> SigningAuthority:
    """Return the authorities of signers. files: certificate and key by signer, or one file with both for all.

    Raises UserError if one cannot be read.
    """
    if isinstance(files, Path):
        files = dict.fromkeys(_SIGNERS, (files, files))

    def authority(signer: str) -> CertificateAuthority | None:
        from kubeloop.kube.auth.certificate_authority import read_authority

        return read_authority(*files[signer]) if signer in files else None

    return authority


def _files(options: Mapping[str, Any], infix: str) -> tuple[Path, Path] | None:
    certificate, key = (f"cluster-signing-{infix}{kind}-file" for kind in ("cert", "key"))
    paths = [options.get(name.replace("-", "_")) or "" for name in (certificate, key)]
    if all(paths):
        return Path(paths[0]), Path(paths[1])
    if any(paths):
        given, missing = (certificate, key) if paths[0] else (key, certificate)
        raise UserError(f"--{given} needs --{missing}", hint="name the files of certificate and key")
    return None
