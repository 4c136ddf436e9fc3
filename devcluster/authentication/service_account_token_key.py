"""Keys of service account tokens: JSON Web Tokens signed with an RSA or elliptic-curve key.

Without a file, the key comes from the operating system's random source, not from the seed: the seed determines UIDs,
which clients see, and must not determine the key. It is created on first use and lives as long as the server or its
file. PyJWT signs and verifies. Sources: kubernetes pkg/serviceaccount/jwt.go, openidmetadata.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.devcluster.storage.private_files import read_or_create
from kubeloop.kube.auth.token_signer import TokenSigner, can_sign, key_id, read_token_signer, signature_algorithm
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from kubeloop.kube.auth.token_signer import PublicKey

_WEB_KEY_FIELDS = ("use", "kty", "kid", "crv", "alg", "x", "y", "n", "e")
ISSUER = "https://kubernetes.default.svc"


class TokenSettings(msgspec.Struct, frozen=True):
    """Settings of service account tokens, in the role of kube-apiserver's flags.

    issuers: of accepted tokens; the first one issues. audiences: identifiers of the API server; (): the issuers.
    signing_key: file of the private key; None: one that the server creates. verification_keys: files of the keys and
    certificates, in PEM, that verify tokens; (): the signing key. max_seconds: longest validity of a token, 0 for no
    limit. extends_expiration: tokens of pods that are requested for 3607 s are valid for a year. key_set_uri: URL of
    the public keys in the OpenID configuration, "" for the server's own.
    """

    issuers: tuple[str, ...] = (ISSUER,)
    audiences: tuple[str, ...] = ()
    signing_key: Path | None = None
    verification_keys: tuple[Path, ...] = ()
    max_seconds: int = 0
    extends_expiration: bool = True
    key_set_uri: str = ""


class TokenKey:
    """Keys that sign service account tokens and verify their signatures. audiences: of the API server."""

    def __init__(self, path: Path | None = None, settings: TokenSettings | None = None) -> None:
        """path: file of the key that the server creates, which other processes may share; None: in memory only.

        Raises UserError if a file of the settings holds no key.
        """
        self.settings = settings or TokenSettings()
        self.audiences = self.settings.audiences or self.settings.issuers
        self._path = path
        if self.settings.signing_key is not None:
            self._signer = read_token_signer(self.settings.signing_key)
        if self.settings.verification_keys:
            self._public_keys = [key for file in self.settings.verification_keys for key in _read_public_keys(file)]
        # verifying a signature takes 0.1 ms, and a client sends the same token with every request
        self.claims = lru_cache(maxsize=1024)(self._claims)

    @cached_property
    def _signer(self) -> TokenSigner:
        from cryptography.hazmat.primitives import serialization  # imported on first use, as PyJWT: takes 60 ms
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        if self._path is None:
            return TokenSigner(key)
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
        return TokenSigner(key_from_file)

    @cached_property
    def _public_keys(self) -> list[PublicKey]:
        return [self._signer.private_key.public_key()]

    def audiences_include(self, audiences: Sequence[str]) -> bool:
        """Return True if all of these audiences are the API server's."""
        return set(audiences) <= set(self.audiences)

    @property
    def key_id(self) -> str:
        return self._signer.key_id

    def open_id_configuration(self) -> JSON:
        """Return the document that describes the issuer of tokens."""
        issuer = self.settings.issuers[0]
        return {
            "issuer": issuer,
            "jwks_uri": self.settings.key_set_uri or f"{issuer.rstrip('/')}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({signature_algorithm(key) for key in self._public_keys}),
        }

    def web_keys(self) -> list[JSON]:
        """Return the public keys as JSON Web Keys."""
        from jwt.algorithms import ECAlgorithm, RSAAlgorithm

        keys = []
        for key in self._public_keys:
            algorithm = signature_algorithm(key)
            jwk = (RSAAlgorithm if algorithm == "RS256" else ECAlgorithm).to_jwk(key, as_dict=True)  # type: ignore[call-overload]
            values = {**jwk, "use": "sig", "kid": key_id(key), "alg": algorithm}
            keys.append({name: values[name] for name in _WEB_KEY_FIELDS if name in values})
        return keys

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with these claims."""
        return self._signer.sign(claims)

    def _claims(self, token: str) -> JSON | None:
        """Return the claims of a token, or None if none of the keys signed it; expiry is not checked."""
        has_key = "_public_keys" in self.__dict__ or "_signer" in self.__dict__
        if not has_key and (self._path is None or not self._path.exists()):
            return None  # nothing has been signed yet
        from jwt import InvalidTokenError, PyJWS

        for key in self._public_keys:
            try:
                payload = PyJWS().decode(token, key, [signature_algorithm(key)])
            except InvalidTokenError:
                continue
            claims: JSON = msgspec.json.decode(payload)
            return claims
        return None


def _read_public_keys(path: Path) -> list[PublicKey]:
    """Return the keys of a PEM file with public keys, private keys and certificates. Raises UserError."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    hint = "name a file with RSA or elliptic-curve keys, or certificates, in PEM"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    keys: list[PublicKey] = []
    for block in re.findall(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----", text, re.DOTALL):
        key: object = None
        try:
            if b"BEGIN CERTIFICATE" in block:
                key = x509.load_pem_x509_certificate(block).public_key()
            elif b"PRIVATE KEY" in block:
                key = load_pem_private_key(block, password=None).public_key()
            elif b"PUBLIC KEY" in block:
                key = load_pem_public_key(block)
            else:
                continue  # parameters of a curve
        except (ValueError, TypeError, UnsupportedAlgorithm):
            pass  # reported below
        if not (
            isinstance(key, rsa.RSAPublicKey) or (isinstance(key, ec.EllipticCurvePublicKey) and can_sign(key.curve))
        ):
            raise UserError(f"{path} holds a key that cannot verify service account tokens", hint=hint)
        keys.append(key)
    if not keys:
        raise UserError(f"{path} holds no key in PEM", hint=hint)
    return keys
