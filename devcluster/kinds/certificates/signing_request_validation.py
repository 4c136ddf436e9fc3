"""Validation of CertificateSigningRequests. Source: pkg/apis/certificates/validation of Kubernetes v1.36."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain

_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_DECISIONS = ("Approved", "Denied")
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_MIN_SECONDS = 600
_MAX_SIGNER, _MAX_SIGNER_DOMAIN = 253 + 253 + 63 + 2, 253  # bytes


class _PemBlock(NamedTuple):
    type: str
    has_headers: bool
    text: bytes


def _pem_blocks(text: bytes) -> list[_PemBlock]:
    return [
        _PemBlock(match[1].decode(errors="replace"), b":" in match[2], match[0]) for match in _PEM_BLOCK.finditer(text)
    ]


_PEM_BLOCK = re.compile(rb"^-----BEGIN ([^\n]*)-----[ \t\r]*\n(.*?)^-----END \1-----", re.DOTALL | re.MULTILINE)


def _request_problem(request: str) -> str:
    """Return the reason why spec.request is no signed request, "" if it is one."""
    blocks = _pem_blocks(b64decode(request))
    if not blocks or blocks[0].type != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    from cryptography import x509  # imported late: few servers sign certificates
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        is_signed = x509.load_pem_x509_csr(blocks[0].text).is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        return f"asn1: structure error: {error}"
    return "" if is_signed else "x509: the signature is not that of the public key"


def _certificate_problem(certificate: str) -> str:
    """Return the reason why status.certificate is no list of certificates, "" if it is empty or one."""
    if not certificate:
        return ""
    from cryptography import x509  # imported late, as above

    blocks = _pem_blocks(b64decode(certificate))
    for block in blocks:
        if block.type != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {quoted(block.type)}"
        if block.has_headers:
            return "no PEM block headers are permitted"
        try:
            x509.load_pem_x509_certificate(block.text)
        except ValueError as error:
            return f"x509: malformed certificate: {error}"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _validate_signer_name(errors: ErrorList, path: str, name: str) -> None:
    if not errors.require(path, name):
        return
    segments = name.split("/")
    if len(segments) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.invalid(path, name, detail)
        return
    domain, signer = segments
    if len(domain) > _MAX_SIGNER_DOMAIN:
        errors.too_long(path, _MAX_SIGNER_DOMAIN)
    _validate_labels(errors, path, domain, dns_label)
    if "." not in domain:
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots")
    _validate_labels(errors, path, signer, dns_subdomain)
    if len(name) > _MAX_SIGNER:
        errors.too_long(path, _MAX_SIGNER)


def _validate_labels(errors: ErrorList, path: str, segment: str, check: Callable[[str], Sequence[str]]) -> None:
    """Report the first invalid label of a segment."""
    for label in segment.split("."):
        if problems := check(label):
            errors.invalid_each(path, segment, (f"validating label {quoted(label)}: {problem}" for problem in problems))
            return


def validate_signing_request(errors: ErrorList, obj: JSON) -> None:
    """Validate a new request; its spec cannot change later."""
    spec = obj["spec"]
    if problem := _request_problem(spec.get("request") or ""):
        errors.invalid("spec.request", spec.get("request"), problem)
    usages = spec.get("usages") or ()
    errors.require("spec.usages", usages)
    for i, usage in enumerate(usages):
        if usage not in _USAGES:
            errors.not_supported(f"spec.usages[{i}]", usage, _USAGES)
    for i, usage in enumerate(usages):
        if usage in usages[:i]:
            errors.duplicate(f"spec.usages[{i}]", usage)
    signer = spec.get("signerName", "")
    if signer == _LEGACY_SIGNER:
        errors.invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        _validate_signer_name(errors, "spec.signerName", signer)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.invalid("spec.expirationSeconds", seconds, detail)


def _validate_update(errors: ErrorList, obj: JSON, old: JSON, *, decides: bool, issues: bool) -> None:
    """Validate an update. decides: it may change decisions; issues: it may set the certificate.

    What is wrong with the stored status already is accepted.
    """
    status, before = obj.get("status") or {}, old.get("status") or {}
    types, old_types = (
        [condition.get("type", "") for condition in part.get("conditions") or ()] for part in (status, before)
    )
    path = "status.conditions"
    for i, condition in enumerate(status.get("conditions") or ()):
        kind, value = types[i], condition.get("status", "")
        if not kind and "" not in old_types:
            errors.required(f"{path}[{i}].type")
        allowed = ("True",) if kind in (*_DECISIONS, "Failed") else ("False", "True", "Unknown")
        errors.required_one_of(f"{path}[{i}].status", value, allowed)
        other = {"Approved": "Denied", "Denied": "Approved"}.get(kind, "")
        if other in types[:i] and not {*_DECISIONS} <= {*old_types}:
            errors.invalid(path, kind, "Approved and Denied conditions are mutually exclusive")
        if kind in types[:i] and len({*old_types}) == len(old_types):
            errors.duplicate(f"{path}[{i}].type", kind)
    certificate, old_certificate = status.get("certificate", ""), before.get("certificate", "")
    is_replaced = certificate != old_certificate
    if is_replaced and not _certificate_problem(old_certificate) and (problem := _certificate_problem(certificate)):
        errors.invalid("status.certificate", "<certificate data>", problem)
    for kind in (*_DECISIONS, "Failed"):
        if types.count(kind) < old_types.count(kind):
            errors.forbidden(path, f"updates may not remove a condition of type {quoted(kind)}")
    for kind in () if decides else _DECISIONS:
        if types.count(kind) > old_types.count(kind):
            errors.forbidden(path, f"updates may not add a condition of type {quoted(kind)}")
    if is_replaced and issues and old_certificate:
        errors.forbidden("status.certificate", "updates may not modify existing certificate content")


validate_update = partial(_validate_update, decides=False, issues=False)
validate_status = partial(_validate_update, decides=False, issues=True)
validate_approval = partial(_validate_update, decides=True, issues=False)
