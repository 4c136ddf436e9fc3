"""The server's certificate: names, validity, and replacement of a stored one."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kubeloop.devcluster.server.tls import ServerCertificate, create_certificate, stored_certificate
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def parsed(certificate: ServerCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.certificate_pem)


def test_certificate_is_valid_for_loopback_names_for_a_year():
    certificate = create_certificate(SetClock(NOW))
    names = parsed(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert parsed(certificate).not_valid_before_utc == NOW - timedelta(hours=1)
    assert parsed(certificate).not_valid_after_utc == NOW + timedelta(days=365)


def test_certificate_pem_contains_no_key_and_can_be_trusted():
    certificate = create_certificate(SetClock(NOW))
    assert b"PRIVATE KEY" not in certificate.certificate_pem
    client = ssl.create_default_context(cadata=certificate.certificate_pem.decode())
    assert len(client.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("days", "is_same"),
    [
        pytest.param(0, True, id="new"),
        pytest.param(334, True, id="more than 30 days left"),
        pytest.param(336, False, id="less than 30 days left"),
        pytest.param(400, False, id="expired"),
    ],
)
def test_stored_certificate_is_replaced_before_it_expires(tmp_path: Path, days: int, is_same: bool):
    clock = SetClock(NOW)
    first = stored_certificate(tmp_path, clock)
    clock.moment += timedelta(days=days)
    second = stored_certificate(tmp_path, clock)
    assert (first.certificate_pem == second.certificate_pem) == is_same
    assert parsed(second).not_valid_after_utc > clock.moment + timedelta(days=30)
