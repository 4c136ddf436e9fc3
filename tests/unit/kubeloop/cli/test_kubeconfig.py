"""`kubeloop kubeconfig`: certificates from a cluster in memory, and clusters that issue none."""

from __future__ import annotations

import random
from base64 import b64decode

import pytest
from cryptography import x509

from kubeloop.cli.kubeconfig import _credentials
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS
from kubeloop.kube.user_error import UserError
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.memory_transport import MemoryTransport

pytestmark = pytest.mark.virtual_time


async def test_cluster_issues_the_certificate_of_a_user_and_groups():
    async with memory_cluster(nodes=0) as cluster:
        credentials = await _credentials(cluster.plane.client, "alice", ["dev", "ops"], 3600)
        certificate = x509.load_pem_x509_certificate(b64decode(credentials["client-certificate-data"]))
        certificate.verify_directly_issued_by(cluster.api.signing_authority("").certificate)
        assert cluster.api.store.list(CERTIFICATE_SIGNING_REQUESTS) == []
    assert certificate.subject.rfc4514_string() == "CN=alice,O=dev+O=ops"
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds() == 3900
    assert b"PRIVATE KEY" in b64decode(credentials["client-key-data"])


async def test_cluster_without_the_signing_controller_is_an_error():
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    client = ApiClient(MemoryTransport(api.handle), clock=SystemClock(), rng=random.Random(2))
    with pytest.raises(UserError, match="no controller signs certificate requests"):
        await _credentials(client, "alice", [], 3600)
    assert api.store.list(CERTIFICATE_SIGNING_REQUESTS) == []


@pytest.mark.parametrize("user", ["", "x" * 65])
async def test_name_that_no_certificate_can_contain_is_an_error(user: str):
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    client = ApiClient(MemoryTransport(api.handle), clock=SystemClock(), rng=random.Random(2))
    with pytest.raises(UserError, match="no certificate can name this user"):
        await _credentials(client, user, [], 3600)
