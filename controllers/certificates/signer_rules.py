"""The signers of Kubernetes: requests that they accept, and the certificates that they issue. Pure functions.

Source: v1.36 pkg/controller/certificates/signer/signer.go, authority/policies.go, pkg/apis/certificates/helpers.go.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.kube.auth.certificate_authority import BACKDATE, CertificateAuthority, Extension, key_usage
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.values.times import time_plus

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SIGNERS = frozenset(
    {
        "kubernetes.io/kube-apiserver-client",
        KUBELET_CLIENT,
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/legacy-unknown",
    }
)

_OPTIONAL_USAGE = "key encipherment"  # RSA keys only
_SHORT_SECONDS = 8 * 3600.0  # less validity ends at the requested time, a longer one is backdated as a whole
_MIN_SECONDS = 600.0

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_KEY_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": x509.ObjectIdentifier("2.16.840.1.113730.4.1"),
}
_SUBJECT_ATTRIBUTES = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.POSTAL_CODE,
    NameOID.COMMON_NAME,
    NameOID.SERIAL_NUMBER,
)
_NAMES = (x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier)


def parsed_request(request: JSONValue) -> x509.CertificateSigningRequest:
    """Return the content of a CertificateSigningRequest. Raises ValueError if it cannot be read."""
    return x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))


def common_name(content: x509.CertificateSigningRequest) -> str:
    names = content.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def request_problem(signer: str, content: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Return why a signer of Kubernetes does not accept a request, "" if it does."""
    match signer:
        case "kubernetes.io/kube-apiserver-client":
            return _client_problem(usages)
        case "kubernetes.io/kube-apiserver-client-kubelet":
            return _kubelet_client_problem(content, usages)
        case "kubernetes.io/kubelet-serving":
            return _kubelet_serving_problem(content, usages)
    return ""


def _client_problem(usages: Collection[str]) -> str:
    for usage in usages:
        if usage not in ("digital signature", _OPTIONAL_USAGE, "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def _kubelet_client_problem(content: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    dns, email, ip, uri = _has_names(content)
    kinds = {"DNS": dns, "Email": email, "IP": ip, "URI": uri}
    forbidden = [f"{kind} subjectAltNames are not allowed" for kind, is_present in kinds.items() if is_present]
    return _first_problem(
        _organization_problem(content), *forbidden, _node_problem(content), _usage_problem(usages, "client auth")
    )


def _kubelet_serving_problem(content: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    dns, email, ip, uri = _has_names(content)
    return _first_problem(
        _organization_problem(content),
        "" if dns or ip else "DNS or IP subjectAltName is required",
        "Email subjectAltNames are not allowed" if email else "",
        "URI subjectAltNames are not allowed" if uri else "",
        _usage_problem(usages, "server auth"),
        _node_problem(content),
    )


def _first_problem(*problems: str) -> str:
    return next(filter(None, problems), "")


def _organization_problem(content: x509.CertificateSigningRequest) -> str:
    organizations = [name.value for name in content.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return "" if organizations == ["system:nodes"] else "subject organization is not system:nodes"


def _node_problem(content: x509.CertificateSigningRequest) -> str:
    is_node = common_name(content).startswith("system:node:")
    return "" if is_node else "subject common name does not begin with system:node:"


def _usage_problem(usages: Collection[str], purpose: str) -> str:
    is_exact = {*usages, _OPTIONAL_USAGE} == {"digital signature", _OPTIONAL_USAGE, purpose}
    required = " ".join(sorted(("digital signature", _OPTIONAL_USAGE, purpose)))
    return "" if is_exact else f"usages did not match [{required}]"


def _has_names(content: x509.CertificateSigningRequest) -> Sequence[bool]:
    """Return whether a request has DNS names, e-mail addresses, IP addresses, URIs."""
    names = _alternative_names(content)
    return [any(isinstance(name, kind) for name in names) for kind in _NAMES]


def _alternative_names(content: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """Return the names of a request of those kinds that a certificate can have, by kind.

    Raises ValueError for extensions that cannot be read.
    """
    try:
        names = content.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:  # not ValueErrors
        raise ValueError(str(error)) from None
    return [name for kind in _NAMES for name in names if isinstance(name, kind)]


def requested_seconds(expiration_seconds: int | None, longest_seconds: float) -> float:
    """Return the validity of a certificate in seconds.

    expiration_seconds: spec.expirationSeconds. longest_seconds: the validity that the signer gives by default.
    """
    if expiration_seconds is None:
        return longest_seconds
    return min(longest_seconds, max(_MIN_SECONDS, expiration_seconds))


def sign(
    content: x509.CertificateSigningRequest,
    usages: Sequence[str],
    seconds: float,
    authority: CertificateAuthority,
    now: datetime,
) -> str:
    """Return the certificate of a request, in PEM. seconds: its validity. Raises ValueError."""
    if unknown := [usage for usage in usages if usage not in _KEY_USAGES and usage not in _EXTENDED_KEY_USAGES]:
        raise ValueError(f"unrecognized usage values: {unknown}")
    try:
        if not content.is_signature_valid:
            raise ValueError("unable to verify certificate request signature")
    except UnsupportedAlgorithm as error:  # not a ValueError
        raise ValueError(f"unable to verify certificate request signature: {error}") from None
    if now >= (end := authority.certificate.not_valid_after_utc):
        raise ValueError(f"the signer has expired: NotAfter={end}")
    subject, extensions = _subject(content), []
    if uses := [_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES]:
        extensions.append(Extension(key_usage(*uses), critical=True))
    # in the order of the table, once each
    if purposes := dict.fromkeys(oid for usage, oid in _EXTENDED_KEY_USAGES.items() if usage in usages):
        extensions.append(Extension(x509.ExtendedKeyUsage(purposes)))
    if names := _alternative_names(content):
        extensions.append(Extension(x509.SubjectAlternativeName(names), critical=not list(subject)))
    ends_at = time_plus(now if seconds < _SHORT_SECONDS else now - BACKDATE, seconds)
    certificate = authority.sign(subject, content.public_key(), (now - BACKDATE, ends_at), extensions)
    return certificate.public_bytes(Encoding.PEM).decode()


def _subject(content: x509.CertificateSigningRequest) -> x509.Name:
    """Return the subject of a certificate: the attributes that Go's pkix.Name has, those of one kind together."""
    parts = []
    for oid in _SUBJECT_ATTRIBUTES:
        attributes = content.subject.get_attributes_for_oid(oid)
        if oid in (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER):
            attributes = attributes[-1:]
        if attributes:
            parts.append(x509.RelativeDistinguishedName(dict.fromkeys(attributes)))
    return x509.Name(parts)
