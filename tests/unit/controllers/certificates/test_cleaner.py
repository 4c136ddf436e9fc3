"""The CertificateSigningRequest cleaner with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.certificates.cleaner import CertificateSigningRequestCleaner
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS
from support.objects.certificate_requests import signing_request

pytestmark = pytest.mark.virtual_time


async def test_pending_request_is_deleted_at_the_next_poll_after_a_day(fake_apiserver, start):
    fake_apiserver.api.create(CERTIFICATE_SIGNING_REQUESTS.path(), signing_request())
    await start(fake_apiserver.informers, CertificateSigningRequestCleaner(fake_apiserver.context))
    await asyncio.sleep(24 * 3600 + 10)
    assert fake_apiserver.names(CERTIFICATE_SIGNING_REQUESTS) == ["csr"]
    await asyncio.sleep(3600)
    assert fake_apiserver.names(CERTIFICATE_SIGNING_REQUESTS) == []


async def test_failed_deletion_is_logged_and_repeated(fake_apiserver, start, caplog):
    fake_apiserver.api.create(CERTIFICATE_SIGNING_REQUESTS.path(), signing_request())
    await start(fake_apiserver.informers, CertificateSigningRequestCleaner(fake_apiserver.context))
    fake_apiserver.transport.reject = lambda method, path: errors.bad_request("no") if method == "DELETE" else None
    await asyncio.sleep(25 * 3600 + 10)
    assert "cannot delete CertificateSigningRequest csr: no" in caplog.text
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(3600)
    assert fake_apiserver.names(CERTIFICATE_SIGNING_REQUESTS) == []
