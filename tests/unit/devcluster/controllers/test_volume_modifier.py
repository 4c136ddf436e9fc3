"""Modification of bound claims by VolumeAttributesClasses."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import VOLUME_ATTRIBUTES_CLASSES
from kubeloop.devcluster.controllers.volume_modifier import is_waiting_for_class
from kubeloop.devcluster.controllers.volume_provisioner import PROVISIONER, VolumeProvisioner
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
MODIFY, FAILED, SUCCESSFUL = "VolumeModify", "VolumeModifyFailed", "VolumeModifySuccessful"


class Cluster:
    """A bound claim with the class "silver", and its provisioned volume."""

    def __init__(self, **status: Any) -> None:
        self.store = ObjectStore(seconds=asyncio.get_running_loop().time)
        claim = persistent_volume_claim(volumeName="disk", volumeAttributesClassName="silver")
        claim["status"] = {
            "phase": "Bound",
            "capacity": {"storage": "1Gi"},
            "currentVolumeAttributesClassName": "silver",
            **status,
        }
        self.store.create(PERSISTENT_VOLUME_CLAIMS, claim)
        annotations = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
        volume = persistent_volume(
            {"name": "disk", "uid": "v", "annotations": annotations},
            claimRef={"uid": "c"},
            volumeAttributesClassName="silver",
        )
        self.store.create(PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Bound"}})
        self.provisioner = VolumeProvisioner(self.store, clock=VirtualClock(), rng=random.Random(1))

    def add_class(self, name: str) -> None:
        body = {"kind": "VolumeAttributesClass", "metadata": {"name": name, "uid": name}, "driverName": PROVISIONER}
        self.store.create(VOLUME_ATTRIBUTES_CLASSES, body)

    async def select(self, name: str | None) -> None:
        claim = self.store.list(PERSISTENT_VOLUME_CLAIMS)[0]
        spec = {**claim["spec"], "volumeAttributesClassName": name}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "spec": spec})
        await asyncio.sleep(1)

    @property
    def status(self) -> JSON:
        status = self.store.list(PERSISTENT_VOLUME_CLAIMS)[0]["status"]
        return {name: value for name, value in status.items() if name not in ("phase", "capacity")}

    @property
    def class_of_volume(self) -> str:
        return str(self.store.list(PERSISTENT_VOLUMES)[0]["spec"]["volumeAttributesClassName"])

    def events(self) -> list[tuple[str, str]]:
        events = sorted(self.store.list(EVENTS), key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in events]


async def test_volume_gets_the_class_of_the_claim(start):
    cluster = await start(Cluster())
    assert cluster.events() == []
    cluster.add_class("gold")
    changes: list[JSON] = []
    cluster.store.subscribe(PERSISTENT_VOLUME_CLAIMS, lambda change: changes.append(change.now.object["status"]))
    await cluster.select("gold")
    assert cluster.class_of_volume == "gold"
    assert cluster.status == {"currentVolumeAttributesClassName": "gold"}
    assert cluster.events() == [
        (MODIFY, "external resizer is modifying volume data with vac gold"),
        (SUCCESSFUL, "external resizer modified volume data with vac gold successfully"),
    ]
    began = changes[1]
    assert began["modifyVolumeStatus"] == {"targetVolumeAttributesClassName": "gold", "status": "InProgress"}
    condition = {name: began["conditions"][0][name] for name in ("type", "status", "message")}
    message = 'Modifying volume to "gold" is in progress.'
    assert condition == {"type": "ModifyingVolume", "status": "True", "message": message}


async def test_missing_class_is_pending_until_it_exists(start):
    cluster = await start(Cluster())
    await cluster.select("gold")
    pending = {"currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": {"status": "Pending"}}
    assert cluster.status == pending
    assert cluster.events() == [(FAILED, 'VAC "gold" does not exist.')]
    cluster.add_class("other")
    await asyncio.sleep(1)
    assert cluster.status == pending
    cluster.add_class("gold")
    await asyncio.sleep(1)
    assert cluster.status == {"currentVolumeAttributesClassName": "gold"}
    assert cluster.class_of_volume == "gold"


async def test_another_missing_class_has_another_event(start):
    cluster = await start(Cluster())
    for name in ("gold", "platinum"):
        await cluster.select(name)
    assert cluster.events() == [(FAILED, f'VAC "{name}" does not exist.') for name in ("gold", "platinum")]


async def test_interrupted_modification_ends_first(start):
    interrupted = {"targetVolumeAttributesClassName": "gold", "status": "InProgress"}
    cluster = Cluster(modifyVolumeStatus=interrupted)
    for name in ("gold", "silver"):
        cluster.add_class(name)
    targets: list[str] = []
    cluster.store.subscribe(
        PERSISTENT_VOLUMES, lambda change: targets.append(change.now.object["spec"]["volumeAttributesClassName"])
    )
    await start(cluster)
    assert targets == ["gold", "silver"]
    assert cluster.status == {"currentVolumeAttributesClassName": "silver"}


async def test_cancelled_modification_loses_its_condition(start):
    condition = {"type": "ModifyingVolume", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    failed = {"targetVolumeAttributesClassName": "gold", "status": "Infeasible"}
    cluster = Cluster(modifyVolumeStatus=failed, conditions=[condition])
    await cluster.select(None)
    await start(cluster)
    assert cluster.status == {"currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": failed}
    assert cluster.events() == [("VolumeModifyCanceled", "Cancelled modify.")]


@pytest.mark.parametrize(
    ("state", "name", "waits"),
    [("Pending", "silver", True), ("Pending", "gold", False), ("InProgress", "silver", False), (None, "silver", False)],
)
async def test_claim_waits_for_the_class_that_it_names(state, name, waits):
    cluster = Cluster(**({"modifyVolumeStatus": {"status": state}} if state else {}))
    assert is_waiting_for_class(cluster.store.list(PERSISTENT_VOLUME_CLAIMS)[0], name) is waits
