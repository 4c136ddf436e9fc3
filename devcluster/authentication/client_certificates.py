"""Authentication of clients by their TLS certificates: the user is the common name, the groups the organizations.

Source: apiserver pkg/authentication/request/x509 of v1.36.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from kubeloop.kube.client.tls_verification import CertificateError, load_certificates, verify_certificate
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from cryptography import x509

COMMON_NAME, _ORGANIZATION = "2.5.4.3", "2.5.4.10"
_USER_UID = "1.3.6.1.4.1.57683.2"  # attribute of a subject, defined by Kubernetes


class InvalidCertificate(Exception):
    """The certificate is not accepted, for the reason given in the text."""


class ClientCertificates:
    """Verifies certificates of clients. ca_pem: the authorities whose certificates are accepted.

    reads_uid: a certificate may contain the uid of its user.
    """

    def __init__(self, ca_pem: str, clock: Clock, *, reads_uid: bool = True) -> None:
        self.ca_pem = ca_pem
        self._clock = clock
        self._reads_uid = reads_uid
        self._verified_at = lru_cache(maxsize=256)(self._verify)  # takes 0.3 ms, and validity has whole seconds

    def verified(self, chain: tuple[bytes, ...]) -> x509.Certificate:
        """Return the first of these certificates, in DER; the others are intermediates. Raises InvalidCertificate."""
        return self._verified_at(chain, self._clock.now().replace(microsecond=0))

    def user(self, chain: tuple[bytes, ...]) -> JSON | None:
        """Return the user of a certificate, None if it has no common name. Raises InvalidCertificate."""
        certificate = self.verified(chain)
        names = subject_attributes(certificate, COMMON_NAME)
        if not names or not names[-1]:
            return None
        user: JSON = {"username": names[-1]}
        if self._reads_uid and (uids := subject_attributes(certificate, _USER_UID)):
            if len(uids) > 1 or not uids[0]:
                raise InvalidCertificate(f"expected 1 UID, but found multiple or an empty one: {uids}")
            user["uid"] = uids[0]
        fingerprint = f"X509SHA256={hashlib.sha256(chain[0]).hexdigest()}"
        return {
            **user,
            "groups": subject_attributes(certificate, _ORGANIZATION),
            "extra": {"authentication.kubernetes.io/credential-id": [fingerprint]},
        }

    @cached_property
    def _authorities(self) -> Sequence[x509.Certificate]:
        return load_certificates(self.ca_pem)

    def _verify(self, chain: tuple[bytes, ...], now: datetime) -> x509.Certificate:
        from cryptography import x509

        try:
            certificates = [x509.load_der_x509_certificate(der) for der in chain]
            verify_certificate(certificates, self._authorities, now, client=True)
        except (CertificateError, ValueError) as error:  # ValueError: it cannot be parsed
            raise InvalidCertificate(str(error)) from None
        return certificates[0]


def subject_attributes(certificate: x509.Certificate, oid: str) -> list[str]:
    """Return the values of an attribute of the subject, in their order."""
    return [str(attribute.value) for attribute in certificate.subject if attribute.oid.dotted_string == oid]
