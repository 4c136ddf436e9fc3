"""Signing key of service account tokens: JSON Web Tokens with ES256, as kube-apiserver issues with an EC key.

The key comes from the operating system's random source, not from the seed: the seed determines UIDs, which clients see,
and must not determine the key. It is created on first use and lives as long as the server or its file.
PyJWT signs and verifies. Sources: kubernetes pkg/serviceaccount/jwt.go, openidmetadata.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.devcluster.storage.private_files import read_or_create
from kubeloop.kube.auth.token_signer import TokenSigner
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_ALGORITHM = "ES256"


class TokenKey:
    """Key that signs service account tokens and verifies its own signatures."""

    def __init__(self, path: Path | None = None) -> None:
        """path: file of the key, which other processes may share; None: it is lost with the process."""
        self._path = path
        # verifying a signature takes 0.1 ms, and a client sends the same token with every request
        self.claims = lru_cache(maxsize=1024)(self._claims)

    @cached_property
    def _private(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives import serialization  # imported on first use, as PyJWT: takes 60 ms
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        if self._path is None:
            return key
        private_format, no_encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = read_or_create(
            self._path, lambda: key.private_bytes(serialization.Encoding.PEM, private_format, no_encryption)
        )
        try:
            key_from_file = serialization.load_pem_private_key(pem, password=None)
        except ValueError:
            key_from_file = None
        if not isinstance(key_from_file, ec.EllipticCurvePrivateKey) or not isinstance(
            key_from_file.curve, ec.SECP256R1
        ):
            raise UserError(f"{self._path} holds no P-256 key in PEM", hint="remove it; the server creates a new one")
        return key_from_file

    @cached_property
    def _signer(self) -> TokenSigner:
        return TokenSigner(self._private)

    @property
    def key_id(self) -> str:
        return self._signer.key_id

    def web_key(self) -> JSON:
        """Return the public key as a JSON Web Key."""
        from jwt.algorithms import ECAlgorithm

        jwk = ECAlgorithm.to_jwk(self._private.public_key(), as_dict=True)
        usage = {"use": "sig", "kty": jwk["kty"], "kid": self.key_id, "crv": jwk["crv"], "alg": _ALGORITHM}
        return {**usage, "x": jwk["x"], "y": jwk["y"]}

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with these claims."""
        return self._signer.sign(claims)

    def _claims(self, token: str) -> JSON | None:
        """Return the claims of a token, or None if this key did not sign it; expiry is not checked."""
        if "_private" not in self.__dict__ and (self._path is None or not self._path.exists()):
            return None  # nothing has been signed yet
        from jwt import InvalidTokenError, PyJWS

        try:
            payload = PyJWS().decode(token, self._private.public_key(), [_ALGORITHM])
        except InvalidTokenError:
            return None
        claims: JSON = msgspec.json.decode(payload)
        return claims
