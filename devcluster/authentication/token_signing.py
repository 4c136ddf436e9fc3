"""The key that signs service account tokens: JSON Web Tokens with ES256, as kube-apiserver makes them of an EC key.

The key comes from the operating system and not from a seed: who knows the uids that a seed has made must not come to
know the key. It is made when somebody first needs it, and lives as long as its server, or its server's data directory.
Sources: kubernetes pkg/serviceaccount/jwt.go, openidmetadata.go; RFC 7515, 7517, 7518.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.devcluster.storage.private_files import read_or_create
from kubeloop.kube.errors import UserError
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_encode = msgspec.json.Encoder(order="sorted").encode
_NUMBER_BYTES = 32  # of either half of a signature, and of a point's coordinates


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class TokenKey:
    """Signs tokens and knows its own."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: where the key is kept over restarts."""
        self._path = folder / "service-account.key" if folder is not None else None
        # one signature is 0.1 ms to look at, and a client sends the same token with every request
        self.claims = lru_cache(maxsize=1024)(self._claims)

    @cached_property
    def _private(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives import serialization  # 20 ms that a start does without
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        if self._path is None:
            return key
        form, bare = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = read_or_create(self._path, lambda: key.private_bytes(serialization.Encoding.PEM, form, bare))
        try:
            found = serialization.load_pem_private_key(pem, password=None)
        except ValueError:
            found = None
        if not isinstance(found, ec.EllipticCurvePrivateKey) or not isinstance(found.curve, ec.SECP256R1):
            raise UserError(f"{self._path} holds no P-256 key in PEM", hint="remove it: a new one will be made")
        return found

    @cached_property
    def key_id(self) -> str:
        from cryptography.hazmat.primitives import serialization

        der, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return _base64(hashlib.sha256(self._private.public_key().public_bytes(der, form)).digest())

    def web_key(self) -> JSON:
        """The public key as a JSON Web Key."""
        point = self._private.public_key().public_numbers()
        x, y = (_base64(each.to_bytes(_NUMBER_BYTES, "big")) for each in (point.x, point.y))
        return {"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A token of these claims."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signed = f"{_base64(_encode({'alg': 'ES256', 'kid': self.key_id}))}.{_base64(_encode(claims))}"
        r, s = utils.decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64(b''.join(each.to_bytes(_NUMBER_BYTES, 'big') for each in (r, s)))}"

    def _claims(self, token: str) -> JSON | None:
        """What a token says; None if it is not signed with this key. Whether it is still good is not looked at."""
        if "_private" not in self.__dict__ and (self._path is None or not self._path.exists()):
            return None  # nothing has been signed yet
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signed, _, signature = token.rpartition(".")
        try:
            raw = _from_base64(signature)
            halves = (int.from_bytes(raw[:_NUMBER_BYTES], "big"), int.from_bytes(raw[_NUMBER_BYTES:], "big"))
            der = utils.encode_dss_signature(*halves)
            self._private.public_key().verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return None
        claims: JSON = msgspec.json.decode(_from_base64(signed.partition(".")[2]))
        return claims
