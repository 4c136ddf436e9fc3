"""Signing key of service account tokens: header, signature, published key, and tokens that it refuses."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kubeloop.devcluster.authentication.service_account_token_key import TokenKey, TokenSettings
from kubeloop.kube.user_error import UserError

CLAIMS = {"sub": "system:serviceaccount:ns:robot", "aud": ["a"], "exp": 1}


def decoded(segment: str) -> bytes:
    return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def test_header_names_algorithm_and_key_only():
    key = TokenKey()
    header, claims, _ = key.sign(CLAIMS).split(".")
    assert decoded(header) == json.dumps({"alg": "ES256", "kid": key.key_id}, separators=(",", ":")).encode()
    assert decoded(claims) == json.dumps(CLAIMS, separators=(",", ":"), sort_keys=True).encode()


def test_signature_is_valid_for_the_published_key():
    key = TokenKey()
    signing_input, _, signature = key.sign(CLAIMS).rpartition(".")
    (web_key,) = key.web_keys()
    assert list(web_key) == ["use", "kty", "kid", "crv", "alg", "x", "y"]
    x, y = (int.from_bytes(decoded(web_key[name]), "big") for name in "xy")
    public_key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    raw = decoded(signature)
    r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    public_key.verify(utils.encode_dss_signature(r, s), signing_input.encode(), ec.ECDSA(hashes.SHA256()))


def test_published_coordinates_have_a_fixed_length():
    # one key in 256 has a coordinate with a leading zero byte
    assert {len(TokenKey().web_keys()[0][name]) for _ in range(600) for name in "xy"} == {43}


def test_expired_token_has_claims():
    key = TokenKey()
    assert key.claims(key.sign(CLAIMS)) == CLAIMS


ALGORITHM_NONE = encoded(b'{"alg":"none"}')


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("a.b", id="two segments"),
        pytest.param("ä.ö.ü", id="not base64"),
        pytest.param(TokenKey().sign(CLAIMS), id="signed by another key"),
        pytest.param(f"{encoded(b'{}')}.{encoded(b'{}')}.", id="no algorithm"),
        pytest.param(f"{ALGORITHM_NONE}.{encoded(b'{}')}.", id="algorithm none"),
        pytest.param(f"{encoded(b'[' * 5000)}.{encoded(b'{}')}.{encoded(b'x' * 64)}", id="nested header"),
    ],
)
def test_token_of_others_is_refused(token: str):
    key = TokenKey()
    key.sign(CLAIMS)
    assert key.claims(token) is None


def test_key_that_signed_nothing_refuses_tokens_without_being_created(tmp_path):
    assert TokenKey(tmp_path / "key").claims(TokenKey().sign(CLAIMS)) is None
    assert not list(tmp_path.iterdir())


def key_files(folder: Path, private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, name: str) -> tuple[Path, Path]:
    """Write a private key and its public key."""
    paths = folder / f"{name}.key", folder / f"{name}.pub"
    paths[0].write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    paths[1].write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return paths


def test_tokens_of_all_verification_keys_are_accepted(tmp_path):
    old_private, old_public = key_files(tmp_path, rsa.generate_private_key(65537, 2048), "old")
    new_private, _ = key_files(tmp_path, ec.generate_private_key(ec.SECP384R1()), "new")
    settings = TokenSettings(
        issuers=("https://new.example", "https://old.example"),
        signing_key=new_private,
        verification_keys=(new_private, old_public),
    )
    key, old_key = TokenKey(settings=settings), TokenKey(settings=TokenSettings(signing_key=old_private))
    assert key.claims(key.sign(CLAIMS)) == key.claims(old_key.sign(CLAIMS)) == CLAIMS
    assert old_key.claims(key.sign(CLAIMS)) is None
    assert [(web_key["alg"], web_key["kid"]) for web_key in key.web_keys()] == [
        ("ES384", key.key_id),
        ("RS256", old_key.key_id),
    ]
    assert key.open_id_configuration() == {
        "issuer": "https://new.example",
        "jwks_uri": "https://new.example/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES384", "RS256"],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(None, "cannot read .*: No such file or directory", id="missing"),
        pytest.param(b"no key", "holds no key in PEM", id="no PEM"),
        pytest.param(
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            "holds a key that cannot verify service account tokens",
            id="damaged",
        ),
    ],
)
def test_file_without_verification_key_is_refused(tmp_path, text: bytes | None, problem: str):
    path = tmp_path / "key"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError, match=problem):
        TokenKey(settings=TokenSettings(verification_keys=(path,)))
