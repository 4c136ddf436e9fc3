"""TLS of clients: verification of certificates with the rules and the error texts of Go's crypto/x509.

OpenSSL refuses certificates that every Kubernetes component accepts: a certificate that is itself among the trusted
ones, and one with the subject of its issuer and no key identifiers (Knative and Tekton create these). Where no
certificates are given, the system's are used, and OpenSSL verifies.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, TypeVar

from kubeloop.kube.clock import SystemClock, rfc3339
from kubeloop.kube.validation.field_errors import quoted

if TYPE_CHECKING:
    from cryptography import x509

E = TypeVar("E", bound="x509.ExtensionType")

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAX_SIGNATURE_CHECKS = 100
_MAX_LISTED_NAMES = 100
_OPENSSL_EXPIRED = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_OPENSSL_HOSTNAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def client_context(ca_pem: str | None, *, verify: bool = True, openssl_first: bool = False) -> ssl.SSLContext:
    """Return a context for connections to servers. ca_pem: trusted certificates; None or "": those of the system.

    openssl_first: OpenSSL verifies until apply_go_rules() is called, without the import of cryptography (40 ms, 12 MB).

    A handshake with a certificate that cannot be verified raises ssl.SSLCertVerificationError; its `verify_message` is
    Go's text if its rules apply. Raises ssl.SSLError if `ca_pem` contains no certificate.
    """
    if ca_pem and verify:
        return _Context(ca_pem, openssl_first=openssl_first)
    context = ssl.create_default_context()
    # Python 3.13 and later require certificate extensions that Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def apply_go_rules(context: ssl.SSLContext | None, error: ssl.SSLCertVerificationError | None = None) -> bool:
    """Verify the next handshakes with the rules of Go. Return False if these were the ones that led to `error`."""
    if not isinstance(context, _Context) or (error is not None and error.verify_message.startswith("x509: ")):
        return False
    context.apply_go_rules()
    return True


def verification_message(error: ssl.SSLCertVerificationError) -> str:
    """Return Go's text for a failed verification."""
    if error.verify_message.startswith("x509: "):
        return error.verify_message
    if error.verify_code in _OPENSSL_EXPIRED:
        return "x509: certificate has expired or is not yet valid"
    if error.verify_code in _OPENSSL_HOSTNAME:
        return f"x509: certificate is not valid for the name: {error.verify_message}"
    return "x509: certificate signed by unknown authority"


class _Context(ssl.SSLContext):
    """A context with the rules of Go: it verifies after the handshake of OpenSSL, before the first byte is sent."""

    def __new__(cls, ca_pem: str, *, openssl_first: bool) -> _Context:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, ca_pem: str, *, openssl_first: bool) -> None:
        self.load_verify_locations(cadata=ca_pem)  # raises SSLError for an invalid one
        self.hostname_checks_common_name = False
        self._ca_pem = ca_pem
        if not openssl_first:
            self.apply_go_rules()

    def apply_go_rules(self) -> None:
        self.check_hostname, self.verify_mode = False, ssl.CERT_NONE
        self.sslobject_class = _VerifiedObject

    @cached_property
    def roots(self) -> Sequence[x509.Certificate]:
        return load_certificates(self._ca_pem)


class _VerifiedObject(ssl.SSLObject):
    """A TLS connection of a `_Context`."""

    def do_handshake(self) -> None:
        super().do_handshake()
        context = self.context
        assert isinstance(context, _Context)
        try:
            verify_certificate(_parsed_chain(self), context.roots, SystemClock().now(), host=self.server_hostname or "")
        except (CertificateError, ValueError) as error:  # ValueError: it cannot be parsed
            failure = ssl.SSLCertVerificationError(
                1, f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {error}"
            )
            failure.verify_code, failure.verify_message = 1, str(error)
            raise failure from error


def _parsed_chain(connection: ssl.SSLObject) -> list[x509.Certificate]:
    """Return the certificates that the server has sent, its own first."""
    from cryptography import x509

    if hasattr(connection, "get_unverified_chain"):  # Python 3.13
        return [x509.load_der_x509_certificate(der) for der in connection.get_unverified_chain()]
    inner: Any = connection._sslobj  # type: ignore[attr-defined]
    return [x509.load_pem_x509_certificate(entry.public_bytes().encode()) for entry in inner.get_unverified_chain()]


def load_certificates(pem: str) -> list[x509.Certificate]:
    """Return the certificates of a bundle, without those that cannot be parsed."""
    from cryptography import x509

    certificates = []
    for block in _PEM.findall(pem):
        try:
            certificates.append(x509.load_pem_x509_certificate(block.encode()))
        except ValueError:  # Go skips these as well
            continue
    return certificates


# --- crypto/x509 ------------------------------------------------------------------------------------------------------


class CertificateError(Exception):
    """A certificate cannot be verified. The text is Go's."""


def verify_certificate(
    chain: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    now: datetime,
    *,
    host: str = "",
    client: bool = False,
) -> None:
    """Verify the first certificate of `chain`, with the others as intermediates. Raises CertificateError.

    host: name or address of the server, "" for none. client: it is the certificate of a client. Not checked:
    policies, and constraints of names other than DNS names and addresses. Source: Go's crypto/x509 Certificate.Verify.
    """
    leaf = chain[0]
    _check_validity(leaf, now)
    if host:
        _check_host(leaf, host)
    chains = [[leaf]] if leaf in roots else _Chains(roots, chain[1:], now).build([leaf])
    permitted = [candidate for candidate in chains if _permits_usage(candidate, client=client)]
    if not permitted:
        raise CertificateError("x509: certificate specifies an incompatible key usage")
    problems = [_constraint_problem(candidate) for candidate in permitted]
    if all(problems):
        raise CertificateError(
            f"x509: a root or intermediate certificate is not authorized to sign for this name: {problems[0]}"
        )


class _Chains:
    """Search for chains from a certificate to a trusted one."""

    def __init__(
        self, roots: Sequence[x509.Certificate], intermediates: Sequence[x509.Certificate], now: datetime
    ) -> None:
        self._candidates = [*((root, True) for root in roots), *((other, False) for other in intermediates)]
        self._now = now
        self._checks = 0

    def build(self, chain: list[x509.Certificate]) -> list[list[x509.Certificate]]:
        """Return the chains that begin with `chain`. Raises CertificateError if there is none."""
        chains: list[list[x509.Certificate]] = []
        hint, failure = "", None
        for parent, is_root in self._candidates:
            if parent.subject != chain[-1].issuer or parent in chain:
                continue
            self._checks += 1
            if self._checks > _MAX_SIGNATURE_CHECKS:
                raise CertificateError("x509: signature check attempts limit reached while verifying certificate chain")
            try:
                _check_signature(chain[-1], parent)
                self._check_authority(chain, parent, is_root=is_root)
            except CertificateError as error:
                reason = f"possibly because of {quoted(str(error))}"
                authority = quoted(_common_name(parent))
                hint = hint or f" ({reason} while trying to verify candidate authority certificate {authority})"
                continue
            if is_root:
                chains.append([*chain, parent])
                continue
            try:
                chains += self.build([*chain, parent])
            except CertificateError as error:
                failure = error
        if not chains:
            raise failure or CertificateError(f"x509: certificate signed by unknown authority{hint}")
        return chains

    def _check_authority(self, chain: list[x509.Certificate], parent: x509.Certificate, *, is_root: bool) -> None:
        from cryptography import x509

        _check_validity(parent, self._now)
        constraints = _extension(parent, x509.BasicConstraints)
        if not is_root and not (constraints is not None and constraints.ca):
            raise CertificateError("x509: certificate is not authorized to sign other certificates")
        if constraints is not None and constraints.path_length is not None and len(chain) - 1 > constraints.path_length:
            raise CertificateError("x509: too many intermediates for path length constraint")


def _extension(certificate: x509.Certificate, kind: type[E]) -> E | None:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _check_validity(certificate: x509.Certificate, now: datetime) -> None:
    from cryptography import x509

    for extension in certificate.extensions:
        if extension.critical and isinstance(extension.value, x509.UnrecognizedExtension):
            raise CertificateError("x509: unhandled critical extension")
    expired = "x509: certificate has expired or is not yet valid: current time"
    if now < certificate.not_valid_before_utc:
        raise CertificateError(f"{expired} {rfc3339(now)} is before {rfc3339(certificate.not_valid_before_utc)}")
    if now > certificate.not_valid_after_utc:
        raise CertificateError(f"{expired} {rfc3339(now)} is after {rfc3339(certificate.not_valid_after_utc)}")


def _check_signature(certificate: x509.Certificate, parent: x509.Certificate) -> None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    constraints, usage = _extension(parent, x509.BasicConstraints), _extension(parent, x509.KeyUsage)
    is_authority = parent.version is x509.Version.v1 if constraints is None else constraints.ca
    if not is_authority or (usage is not None and not usage.key_cert_sign):
        raise CertificateError("x509: invalid signature: parent certificate cannot sign this kind of certificate")
    try:
        algorithm = certificate.signature_hash_algorithm
        if algorithm is not None and algorithm.name in ("md5", "sha1"):
            raise CertificateError(f"x509: cannot verify signature: insecure algorithm {algorithm.name.upper()}")
        certificate.verify_directly_issued_by(parent)
    except InvalidSignature:
        raise CertificateError("x509: signature verification failure") from None
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"x509: cannot verify signature: {error}") from None


def _common_name(certificate: x509.Certificate) -> str:
    """Return the name of an authority in an error."""
    from cryptography.x509.oid import NameOID

    for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        if attributes := certificate.subject.get_attributes_for_oid(oid):
            return str(attributes[0].value)
    return f"serial:{certificate.serial_number}"


# --- names ------------------------------------------------------------------------------------------------------------


Address = IPv4Address | IPv6Address


def _names(certificate: x509.Certificate) -> tuple[list[str], list[Address]]:
    """Return the DNS names and the addresses that a certificate is valid for."""
    from cryptography import x509

    names = _extension(certificate, x509.SubjectAlternativeName) or ()
    addresses = [name.value for name in names if isinstance(name, x509.IPAddress)]
    return (
        [name.value for name in names if isinstance(name, x509.DNSName)],
        [address for address in addresses if isinstance(address, Address)],
    )


def _check_host(certificate: x509.Certificate, host: str) -> None:
    from cryptography import x509

    names, addresses = _names(certificate)
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        if any(_matches(name, host) for name in names):
            return
        names_listed, kind = names, "names"
    else:
        if address in addresses:
            return
        if not addresses:
            problem = f"cannot validate certificate for {address} because it doesn't contain any IP SANs"
            raise CertificateError(f"x509: {problem}")
        names_listed, kind = [str(listed) for listed in addresses], "IP SANs"
    has_names = _extension(certificate, x509.SubjectAlternativeName) is not None
    if not has_names and _matches(_common_name(certificate), host):
        raise CertificateError("x509: certificate relies on legacy Common Name field, use SANs instead")
    if len(names_listed) >= _MAX_LISTED_NAMES:
        raise CertificateError(f"x509: certificate is valid for {len(names_listed)} {kind}, but none matched {host}")
    if not names_listed:
        raise CertificateError(f"x509: certificate is not valid for any names, but wanted to match {host}")
    raise CertificateError(f"x509: certificate is valid for {', '.join(names_listed)}, not {host}")


def _matches(pattern: str, host: str) -> bool:
    """Return True if a DNS name, possibly with a wildcard as its first label, matches a host."""
    labels, host_labels = pattern.lower().split("."), host.lower().removesuffix(".").split(".")
    if labels[0] == "*" and len(labels) > 1 and all(host_labels):
        return labels[1:] == host_labels[1:]
    return labels == host_labels


def _constraint_problem(chain: Sequence[x509.Certificate]) -> str:
    """Return which name the name constraints of an authority in the chain do not permit; "" if all are."""
    from cryptography import x509

    for index, certificate in enumerate(chain):
        names, addresses = _names(certificate)
        for authority in chain[index + 1 :]:
            constraints = _extension(authority, x509.NameConstraints)
            if constraints is None:
                continue
            for name in (*names, *addresses):
                kind, subtree = ("DNS name", x509.DNSName) if isinstance(name, str) else ("IP address", x509.IPAddress)
                permitted, excluded = (
                    [entry.value for entry in subtrees or () if isinstance(entry, subtree)]
                    for subtrees in (constraints.permitted_subtrees, constraints.excluded_subtrees)
                )
                if permitted and not any(_is_within(name, value) for value in permitted):
                    return f"{kind} {quoted(str(name))} is not permitted by any constraint"
                for value in excluded:
                    if _is_within(name, value):
                        return f"{kind} {quoted(str(name))} is excluded by constraint {quoted(str(value))}"
    return ""


def _is_within(name: str | Address, subtree: str | Address | IPv4Network | IPv6Network) -> bool:
    if isinstance(name, str):
        domain = str(subtree).lower().removeprefix(".")
        return not domain or name.lower() == domain or name.lower().endswith(f".{domain}")
    return not isinstance(subtree, str | Address) and name in subtree


def _permits_usage(chain: Sequence[x509.Certificate], *, client: bool) -> bool:
    """Return True if every certificate of a chain may be used for servers, or for clients."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    usages = (_extension(certificate, x509.ExtendedKeyUsage) for certificate in chain)
    return all(
        usage is None or purpose in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage for usage in usages
    )
