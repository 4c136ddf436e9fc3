"""Root CA publisher: the ConfigMap `kube-root-ca.crt` of every active namespace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.rootcacertpublisher.publisher import RootCACertificatePublisher
from kubeloop.devcluster.api import errors
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import Namespace, convert
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time
NAME = "kube-root-ca.crt"


def published(server: FakeApiServer, namespace: str = "ns") -> Any:
    return server.store.get(CONFIG_MAPS, namespace, NAME)


@pytest.fixture
async def publisher(fake_apiserver, start) -> RootCACertificatePublisher:
    publisher = RootCACertificatePublisher(structs.replace(fake_apiserver.context, root_ca="PEM"))
    await start(fake_apiserver.informers, publisher)
    return publisher


async def test_every_namespace_gets_the_certificates(fake_apiserver, publisher):
    fake_apiserver.add(NAMESPACES, "new")
    await asyncio.sleep(1)
    for namespace in ("ns", "new"):
        config_map = published(fake_apiserver, namespace)
        assert config_map["data"] == {"ca.crt": "PEM"}
        assert config_map["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")


async def test_deleted_or_changed_config_map_is_restored(fake_apiserver, publisher):
    await fake_apiserver.client.delete(CONFIG_MAPS, NAME, "ns")
    await asyncio.sleep(1)
    assert published(fake_apiserver)["data"] == {"ca.crt": "PEM"}
    body = {"data": {"ca.crt": "other", "more": "x"}, "metadata": {"annotations": {"kubernetes.io/description": None}}}
    await fake_apiserver.client.patch(CONFIG_MAPS, NAME, body, PatchType.MERGE, "ns")
    await asyncio.sleep(1)
    assert published(fake_apiserver)["data"] == {"ca.crt": "PEM"}
    assert published(fake_apiserver)["metadata"]["annotations"]["kubernetes.io/description"]


async def test_unchanged_config_map_is_not_written(fake_apiserver, publisher):
    await fake_apiserver.client.patch(NAMESPACES, "ns", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)
    revision = fake_apiserver.store.revision
    await asyncio.sleep(60)
    assert fake_apiserver.store.revision == revision


async def test_terminating_namespace_gets_no_config_map(fake_apiserver, publisher):
    await fake_apiserver.client.delete(NAMESPACES, "ns")
    await fake_apiserver.client.delete(CONFIG_MAPS, NAME, "ns")
    await asyncio.sleep(60)
    assert published(fake_apiserver) is None


async def test_namespace_that_is_gone_needs_no_config_map(fake_apiserver, publisher):
    before = fake_apiserver.metrics.values("root_ca_cert_publisher_sync_total")[",200"]
    fake_apiserver.transport.reject = lambda method, path: (
        errors.not_found(NAMESPACES, "gone") if path.startswith(CONFIG_MAPS.path("gone")) else None
    )
    fake_apiserver.add(NAMESPACES, "gone")
    await asyncio.sleep(60)
    assert published(fake_apiserver, "gone") is None
    assert fake_apiserver.metrics.values("root_ca_cert_publisher_sync_total") == {",200": before + 1}


async def test_syncs_are_counted_by_code(fake_apiserver, publisher):
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(CONFIG_MAPS, "", "no") if path.startswith(CONFIG_MAPS.path("refused")) else None
    )
    before = fake_apiserver.metrics.values("root_ca_cert_publisher_sync_total")[",200"]
    fake_apiserver.add(NAMESPACES, "new")
    fake_apiserver.add(NAMESPACES, "refused")
    await asyncio.sleep(0.001)
    values = fake_apiserver.metrics.values("root_ca_cert_publisher_sync_")
    assert values["total,403"] == values["duration_seconds_count,403"] == 1
    assert values["total,200"] == values["duration_seconds_count,200"] > before


@pytest.mark.parametrize(
    ("verb", "phase", "keys"),
    [
        pytest.param("ADDED", "Active", ["team"], id="added"),
        pytest.param("MODIFIED", "Active", ["team"], id="changed"),
        pytest.param("MODIFIED", "Terminating", [], id="terminating"),
    ],
)
async def test_namespace_event_enqueues_an_active_namespace(fake_apiserver, verb, phase, keys):
    publisher = RootCACertificatePublisher(fake_apiserver.context)
    namespaces = fake_apiserver.informers.informer(NAMESPACES)
    body = {"metadata": {"name": "team", "resourceVersion": "2"}, "status": {"phase": phase}}
    if verb == "MODIFIED":
        namespaces.store.put("team", convert(Namespace, {"metadata": {"name": "team", "resourceVersion": "1"}}))
    namespaces.apply(verb, convert(Namespace, body), 0)
    assert [publisher.queue.take() for _ in range(len(publisher.queue))] == keys


async def test_refused_config_map_is_published_when_the_server_accepts_it(fake_apiserver, publisher):
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(CONFIG_MAPS, "", "no") if path.startswith(CONFIG_MAPS.path("new")) else None
    )
    fake_apiserver.add(NAMESPACES, "new")
    await asyncio.sleep(1)
    assert published(fake_apiserver, "new") is None
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(10)
    assert published(fake_apiserver, "new") is not None
