"""Signing of service account tokens: JSON Web Tokens with an RSA or elliptic-curve key.

PyJWT and cryptography are imported on first use: they take 60 ms. Source: kubernetes pkg/serviceaccount/jwt.go.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurve,
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey

SignToken = Callable[[Mapping[str, Any]], str]
"""Return a signed token with these claims."""

_encode = msgspec.json.Encoder(order="sorted").encode
_CURVE_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class TokenSigner:
    """Signs tokens with one private key: RS256 for RSA, ES256, ES384 or ES512 for an elliptic curve."""

    def __init__(self, private_key: RSAPrivateKey | EllipticCurvePrivateKey) -> None:
        self.private_key = private_key

    @cached_property
    def algorithm(self) -> str:
        return signature_algorithm(self.private_key.public_key())

    @cached_property
    def key_id(self) -> str:
        return key_id(self.private_key.public_key())

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with these claims."""
        from jwt import PyJWS

        headers = {"typ": "", "kid": self.key_id}  # an empty type is omitted, as in Kubernetes
        return PyJWS().encode(_encode(claims), self.private_key, self.algorithm, headers)


def signature_algorithm(key: PublicKey) -> str:
    """Return the algorithm of signatures with a key."""
    curve = getattr(key, "curve", None)
    return "RS256" if curve is None else _CURVE_ALGORITHMS[curve.name]


def can_sign(curve: EllipticCurve) -> bool:
    """Return True if tokens can be signed with keys on this curve."""
    return curve.name in _CURVE_ALGORITHMS


def key_id(key: PublicKey) -> str:
    """Return the SHA-256 of a public key, as in the header of each token."""
    from cryptography.hazmat.primitives import serialization

    der, public_format = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return urlsafe_b64encode(hashlib.sha256(key.public_bytes(der, public_format)).digest()).rstrip(b"=").decode()


def read_token_signer(path: Path) -> TokenSigner:
    """Return the signer with the private key of a PEM file. Raises UserError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private_key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="name a file with a private key in PEM") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private_key = None
    is_supported = isinstance(private_key, rsa.RSAPrivateKey) or (
        isinstance(private_key, ec.EllipticCurvePrivateKey) and can_sign(private_key.curve)
    )
    if not is_supported:
        raise UserError(
            f"{path} holds no private key that can sign service account tokens",
            hint="it takes an unencrypted RSA, P-256, P-384 or P-521 key in PEM",
        )
    assert isinstance(private_key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    return TokenSigner(private_key)
