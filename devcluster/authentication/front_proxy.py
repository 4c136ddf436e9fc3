"""Front proxies: clients whose certificates allow them to name the user of a request in headers.

Source: apiserver pkg/authentication/request/headerrequest of v1.36.
"""

from __future__ import annotations

import ssl
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authentication.client_certificates import (
    COMMON_NAME,
    ClientCertificates,
    InvalidCertificate,
    subject_attributes,
)
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.kube.auth.certificate_authority import CertificateAuthority

_CLIENT_NAME = "front-proxy-client"
_VALIDITY = timedelta(days=365)


class FrontProxySettings(msgspec.Struct, frozen=True):
    """Settings of front proxies, with the defaults of kubeadm.

    ca: authorities of their certificates, in PEM; "" for one that the server creates. allowed_names: common names of
    the certificates; () for all. The others are names of headers, and the prefixes of those with extra fields.
    """

    ca: str = ""
    allowed_names: tuple[str, ...] = (_CLIENT_NAME,)
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


class FrontProxy:
    """Authenticates requests of front proxies. The server's own authority for them is created when it is needed."""

    def __init__(self, settings: FrontProxySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    @cached_property
    def _authority(self) -> CertificateAuthority:
        from kubeloop.kube.auth.certificate_authority import CertificateAuthority

        return CertificateAuthority.create(self._clock.now())

    @property
    def ca_pem(self) -> str:
        return self._settings.ca or self._authority.certificate_pem

    @cached_property
    def _certificates(self) -> ClientCertificates:
        return ClientCertificates(self.ca_pem, self._clock)

    def user(self, request: ApiRequest) -> JSON | None:
        """Return the user that a front proxy names, and remove the headers that name it; None for other requests.

        Raises InvalidCertificate for a client that is no front proxy.
        """
        settings, headers = self._settings, request.headers
        names = _values(request, settings.username_headers)
        if not names or not request.certificates:
            return None
        certificate = self._certificates.verified(request.certificates)
        allowed = settings.allowed_names
        if allowed and not {*subject_attributes(certificate, COMMON_NAME)[-1:]} & {*allowed}:
            raise InvalidCertificate("the common name is not in the allowed list")
        user: JSON = {"username": names[0]}
        if uids := _values(request, settings.uid_headers):
            user["uid"] = uids[0]
        user["groups"] = _values(request, settings.group_headers)
        extra: dict[str, list[str]] = {}
        prefixes = tuple(prefix.lower() for prefix in settings.extra_prefixes)
        for prefix in prefixes:
            for name in headers:
                if name.startswith(prefix):
                    extra.setdefault(unquote(name.removeprefix(prefix)), []).extend(_values(request, (name,)))
        if extra:
            user["extra"] = extra
        used = {name.lower() for name in (*settings.username_headers, *settings.uid_headers, *settings.group_headers)}
        request.headers = {
            name: value for name, value in headers.items() if name not in used and not name.startswith(prefixes)
        }
        return user

    def load_client_certificate(self, context: ssl.SSLContext) -> None:
        """Let connections with `context` present a certificate of this server as a front proxy.

        With authorities of others, whose keys the server does not have, it presents none.
        """
        if not self._settings.ca:
            from kubeloop.kube.auth.certificate_authority import load_certificate

            load_certificate(context, self._client_pem)

    @cached_property
    def _client_pem(self) -> bytes:
        """Certificate and key of this server as a front proxy."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        from kubeloop.kube.auth.certificate_authority import BACKDATE, Extension, private_key_pem

        key, now = ec.generate_private_key(ec.SECP256R1()), self._clock.now()
        certificate = self._authority.sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CLIENT_NAME)]),
            key.public_key(),
            (now - BACKDATE, now + _VALIDITY),
            [Extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))],
        )
        return certificate.public_bytes(Encoding.PEM) + private_key_pem(key)

    def config_map_data(self) -> dict[str, str]:
        """Return what extension API servers must know to accept this server as their front proxy."""
        settings = self._settings
        lists = {
            "requestheader-allowed-names": settings.allowed_names,
            "requestheader-extra-headers-prefix": settings.extra_prefixes,
            "requestheader-group-headers": settings.group_headers,
            "requestheader-uid-headers": settings.uid_headers,
            "requestheader-username-headers": settings.username_headers,
        }
        data = {
            name: msgspec.json.encode(texts).decode()
            for name, texts in lists.items()
            if texts or name != "requestheader-uid-headers"
        }
        return {**data, "requestheader-client-ca-file": self.ca_pem}


def _values(request: ApiRequest, names: tuple[str, ...]) -> list[str]:
    """Return the values that are not empty of all headers with these names."""
    joined = (request.headers.get(name.lower(), "") for name in names)
    return [value for text in joined for value in text.split(", ") if value]
