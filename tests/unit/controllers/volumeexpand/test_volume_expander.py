"""Volume expander: events and the resizer annotation of claims whose volume has to grow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.volumeexpand.volume_expander import VolumeExpander
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
RESIZER = "volume.kubernetes.io/storage-resizer"
WAITING = "waiting for an external controller to expand this PVC"


@pytest.fixture
async def expander(fake_apiserver, start) -> VolumeExpander:
    expander = VolumeExpander(fake_apiserver.context)
    await start(fake_apiserver.informers, expander)
    return expander


def create(server: FakeApiServer, size: str = "1Gi", phase: str = "Bound", **volume: Any) -> None:
    """Create a claim that requests a size and has 1Gi, and its volume."""
    server.store.create(PERSISTENT_VOLUMES, persistent_volume(**volume))
    claim = persistent_volume_claim(size=size, volumeName="disk")
    status = {"phase": phase, "capacity": {"storage": "1Gi"}}
    server.store.create(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status})


def update(server: FakeApiServer, size: str = "", **status: Any) -> None:
    claim = server.store.list(PERSISTENT_VOLUME_CLAIMS)[0]
    spec = {**claim["spec"], "resources": {"requests": {"storage": size}}} if size else claim["spec"]
    server.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "spec": spec, "status": {**claim["status"], **status}})


def messages(server: FakeApiServer) -> list[str]:
    events: Any = server.context.events
    assert {(event.type, event.reason) for event in events.events} <= {("Normal", "ExternalExpanding")}
    return [event.message for event in events.events]


async def test_larger_request_has_an_event(fake_apiserver, expander):
    create(fake_apiserver)
    await asyncio.sleep(1)
    assert messages(fake_apiserver) == []
    update(fake_apiserver, "2Gi")
    await asyncio.sleep(1)
    update(fake_apiserver, conditions=[])
    await asyncio.sleep(1)
    assert messages(fake_apiserver) == [WAITING]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"size": "2Gi"}, [WAITING], id="larger request"),
        pytest.param({"size": "1024Mi"}, [], id="same size in another unit"),
        pytest.param({"size": "2Gi", "phase": "Pending"}, [], id="not bound"),
        pytest.param(
            {"metadata": {"name": "disk", "annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"}}},
            [WAITING],
            id="file system not expanded",
        ),
    ],
)
async def test_claim_at_start_has_an_event_if_it_grows(fake_apiserver, expander, options, expected):
    create(fake_apiserver, **options)
    await asyncio.sleep(1)
    assert messages(fake_apiserver) == expected


async def test_migrated_volume_has_the_name_of_its_resizer(fake_apiserver, expander):
    create(fake_apiserver, "2Gi", **EBS)
    await asyncio.sleep(1)
    text = "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc"
    assert messages(fake_apiserver) == [text]
    claim = fake_apiserver.store.list(PERSISTENT_VOLUME_CLAIMS)[0]
    assert claim["metadata"]["annotations"] == {RESIZER: "ebs.csi.aws.com"}
