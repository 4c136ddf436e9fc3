"""Users of client certificates, and certificates that are not accepted."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.authentication.client_certificates import ClientCertificates, InvalidCertificate
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.objects.client_certificates import SERVER, client_certificate, intermediate_authority
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY, OTHER = CertificateAuthority.create(NOW), CertificateAuthority.create(NOW)
INTERMEDIATE = intermediate_authority(AUTHORITY, NOW)


def authenticator(*, now: datetime = NOW, reads_uid: bool = True) -> ClientCertificates:
    return ClientCertificates(AUTHORITY.certificate_pem, SetClock(now), reads_uid=reads_uid)


@pytest.mark.parametrize(
    ("subject", "reads_uid", "user"),
    [
        pytest.param({"user": "alice"}, True, {"username": "alice", "groups": []}, id="user"),
        pytest.param(
            {"user": "alice", "groups": ["dev", "ops"], "usage": None},
            True,
            {"username": "alice", "groups": ["dev", "ops"]},
            id="groups, any usage",
        ),
        pytest.param({"uids": ["u"]}, True, {"username": "alice", "groups": [], "uid": "u"}, id="uid"),
        pytest.param({"uids": ["u"]}, False, {"username": "alice", "groups": []}, id="gate of the uid is off"),
    ],
)
def test_user_and_groups_come_from_the_subject(subject: Any, reads_uid: bool, user: Any):
    certificate = client_certificate(AUTHORITY, **{"begin": NOW, **subject})
    extra = {
        "authentication.kubernetes.io/credential-id": [f"X509SHA256={hashlib.sha256(certificate.der).hexdigest()}"]
    }
    assert authenticator(reads_uid=reads_uid).user((certificate.der,)) == {**user, "extra": extra}


def test_certificate_without_common_name_has_no_user():
    assert authenticator().user((client_certificate(AUTHORITY, "", ["dev"], begin=NOW).der,)) is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"usage": SERVER}, "incompatible key usage", id="certificate of a server"),
        pytest.param({"uids": ["a", "b"]}, "expected 1 UID", id="two uids"),
        pytest.param({"uids": [""]}, "expected 1 UID", id="empty uid"),
        pytest.param({"authority": OTHER}, "signature verification failure", id="authority of the same name"),
        pytest.param({"begin": NOW + timedelta(seconds=1)}, "not yet valid", id="not valid yet"),
        pytest.param({"begin": NOW - timedelta(days=1, seconds=1)}, "has expired", id="expired"),
    ],
)
def test_invalid_certificate_is_refused(change: Any, error: str):
    certificate = client_certificate(**{"authority": AUTHORITY, "begin": NOW, **change})
    with pytest.raises(InvalidCertificate, match=error):
        authenticator().user((certificate.der,))


def test_bytes_that_are_no_certificate_are_refused():
    with pytest.raises(InvalidCertificate):
        authenticator().user((b"x",))


def test_intermediate_certificates_of_the_client_count():
    certificate = client_certificate(AUTHORITY, begin=NOW, intermediate=INTERMEDIATE)
    intermediate = client_certificate(AUTHORITY)._replace(certificate=INTERMEDIATE.certificate).der
    user = authenticator().user((certificate.der, intermediate))
    assert user is not None
    assert user["username"] == "alice"
    with pytest.raises(InvalidCertificate, match="unknown authority"):
        authenticator().user((certificate.der,))


def test_certificate_is_refused_from_its_last_second_on():
    clock = SetClock(NOW)
    certificates = ClientCertificates(AUTHORITY.certificate_pem, clock)
    chain = (client_certificate(AUTHORITY, begin=NOW).der,)
    clock.moment += timedelta(days=1)
    assert certificates.user(chain)
    clock.moment += timedelta(seconds=1)
    with pytest.raises(InvalidCertificate, match="has expired"):
        certificates.user(chain)
