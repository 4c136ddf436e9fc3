"""Signing of service account tokens with keys of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from kubeloop.kube.auth.token_signer import read_token_signer
from kubeloop.kube.user_error import UserError

FORMATS = serialization.PrivateFormat


def write_key(path: Path, key: Any, private_format: Any = FORMATS.PKCS8, password: bytes = b"") -> Path:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, private_format, encryption))
    return path


@pytest.mark.parametrize(
    ("key", "private_format", "algorithm"),
    [
        pytest.param(rsa.generate_private_key(65537, 2048), FORMATS.TraditionalOpenSSL, "RS256", id="RSA, PKCS 1"),
        pytest.param(rsa.generate_private_key(65537, 2048), FORMATS.PKCS8, "RS256", id="RSA, PKCS 8"),
        pytest.param(ec.generate_private_key(ec.SECP256R1()), FORMATS.TraditionalOpenSSL, "ES256", id="P-256"),
        pytest.param(ec.generate_private_key(ec.SECP384R1()), FORMATS.PKCS8, "ES384", id="P-384"),
        pytest.param(ec.generate_private_key(ec.SECP521R1()), FORMATS.PKCS8, "ES512", id="P-521"),
    ],
)
def test_token_is_signed_with_the_algorithm_of_the_key(tmp_path: Path, key: Any, private_format: Any, algorithm: str):
    signer = read_token_signer(write_key(tmp_path / "key", key, private_format))
    token = signer.sign({"sub": "a", "aud": ["b"]})
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "kid": signer.key_id}
    assert jwt.decode(token, key.public_key(), [algorithm], audience="b") == {"sub": "a", "aud": ["b"]}


def test_key_after_curve_parameters_is_read(tmp_path: Path):
    path = write_key(tmp_path / "key", ec.generate_private_key(ec.SECP256R1()), FORMATS.TraditionalOpenSSL)
    parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    path.write_text(parameters + path.read_text())  # as openssl ecparam -genkey writes it
    assert read_token_signer(path).algorithm == "ES256"


@pytest.mark.parametrize("content", ["missing", "text", "encrypted", "unsupported curve", "Ed25519"])
def test_file_without_a_usable_key_is_an_error(tmp_path: Path, content: str):
    path = tmp_path / "key"
    match content:
        case "text":
            path.write_text("no key")
        case "encrypted":
            write_key(path, ec.generate_private_key(ec.SECP256R1()), password=b"x")
        case "unsupported curve":
            write_key(path, ec.generate_private_key(ec.SECP256K1()))
        case "Ed25519":
            write_key(path, ed25519.Ed25519PrivateKey.generate())
    problem = "No such file" if content == "missing" else "holds no private key that can sign"
    with pytest.raises(UserError, match=problem):
        read_token_signer(path)
