"""Simulated volumes on the real store, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.devcluster.controllers.persistent_volume_binder import PersistentVolumeController
from kubeloop.devcluster.controllers.volume_matching import best_match, mismatch_message
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.objects.resources import (
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kubeloop.testing.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
SELECTED = "volume.kubernetes.io/selected-node"


class Cluster:
    """A store with simulated volumes, and what tests do to it in place of an API server."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = Store(seconds=asyncio.get_running_loop().time)
        self.volumes = PersistentVolumeController(self.store, clock=self.clock, rng=random.Random(1))
        self._uids = 0

    def _metadata(self, name: str, **more: Any) -> JSON:
        self._uids += 1
        return {"name": name, "uid": f"uid-{self._uids}", **more}

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> JSON:
        content = {"provisioner": provisioner, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete", **more}
        head = {"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": self._metadata(name)}
        return self.store.create(STORAGE_CLASSES, {**head, **content})

    def claim(
        self, name: str = "data", storage_class: str = "manual", metadata: JSON | None = None, **spec: Any
    ) -> JSON:
        head = self._metadata(
            name, namespace="default", finalizers=["kubernetes.io/pvc-protection"], **(metadata or {})
        )
        return self.store.create(PERSISTENT_VOLUME_CLAIMS, claim(head, storageClassName=storage_class, **spec))

    def volume(self, name: str = "disk", storage_class: str = "manual", **spec: Any) -> JSON:
        head = self._metadata(name, finalizers=["kubernetes.io/pv-protection"])
        made = volume(head, storageClassName=storage_class, **spec)
        return self.store.create(PERSISTENT_VOLUMES, {**made, "status": {"phase": "Pending"}})

    def pod(self, name: str = "web", claim: str = "data", node: str = "", **spec: Any) -> JSON:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        spec = {"volumes": volumes, **({"nodeName": node} if node else {}), **spec}
        head = {"kind": "Pod", "apiVersion": "v1", "metadata": self._metadata(name, namespace="default")}
        return self.store.create(PODS, {**head, "spec": spec, "status": {"phase": "Pending"}})

    def node(self, name: str) -> JSON:
        metadata = self._metadata(name, labels={"kubernetes.io/hostname": f"{name}.host"})
        return self.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": metadata})

    def annotate(self, name: str, **annotations: str) -> None:
        found = self.the_claim(name)
        merged = {**found["metadata"].get("annotations", {}), **annotations}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**found, "metadata": {**found["metadata"], "annotations": merged}})

    def delete_claim(self, name: str = "data") -> None:
        """As `kubectl delete pvc`: the finalizer keeps it."""
        found = self.the_claim(name)
        metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**found, "metadata": metadata})

    def the_claim(self, name: str = "data") -> JSON:
        found = self.store.get(PERSISTENT_VOLUME_CLAIMS, "default", name)
        assert found is not None
        return found

    def the_volume(self, name: str = "disk") -> JSON:
        found = self.store.get(PERSISTENT_VOLUMES, "", name)
        assert found is not None
        return found

    def phases(self) -> dict[str, str]:
        objects = [*self.store.list(PERSISTENT_VOLUME_CLAIMS), *self.store.list(PERSISTENT_VOLUMES)]
        return {each["metadata"]["name"]: each["status"]["phase"] for each in objects}

    def events(self) -> list[tuple[str, str]]:
        found = sorted(self.store.list(EVENTS), key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["reason"], each["message"]) for each in found]


def claim(
    metadata: JSON | None = None, size: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> JSON:
    content = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    head = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    metadata = metadata or {"name": "data", "namespace": "default", "uid": "c"}
    return {**head, "metadata": metadata, "spec": content, "status": {"phase": "Pending"}}


def volume(
    metadata: JSON | None = None, size: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> JSON:
    content = {"accessModes": list(modes), "capacity": {"storage": size}, **spec}
    head = {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": metadata or {"name": "disk", "uid": "v"}}
    return {**head, "spec": content, "status": {"phase": "Available"}}


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.volumes.run())
        await settled()
        yield cluster
        await settled()
        task.cancel()


async def settled() -> None:
    await asyncio.sleep(0.01)


# --- which volume -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        pytest.param({}, "small", id="the smallest that is large enough"),
        pytest.param({"size": "3Gi"}, "large", id="a larger one for more"),
        pytest.param({"size": "9Gi"}, None, id="none is large enough"),
        pytest.param({"modes": ("ReadWriteMany",)}, "shared", id="access mode"),
        pytest.param({"storageClassName": "other"}, None, id="class"),
        pytest.param({"volumeMode": "Block"}, None, id="mode"),
        pytest.param({"selector": {"matchLabels": {"tier": "gold"}}}, "large", id="selector"),
    ],
)
def test_a_claim_gets_the_smallest_volume_that_serves_it(spec, chosen):
    volumes = [
        volume({"name": "large", "uid": "1", "labels": {"tier": "gold"}}, "5Gi"),
        volume({"name": "small", "uid": "2"}, "2Gi"),
        volume({"name": "tiny", "uid": "3"}, "1Mi"),
        volume({"name": "shared", "uid": "4"}, "1Gi", ("ReadWriteOnce", "ReadWriteMany")),
        volume({"name": "taken", "uid": "5"}, "1Gi", claimRef={"namespace": "default", "name": "else", "uid": "x"}),
        volume({"name": "going", "uid": "6", "deletionTimestamp": "now"}, "1Gi"),
    ]
    found = best_match(claim(**spec), volumes, delayed=False)
    assert (found and found["metadata"]["name"]) == chosen


def test_a_claim_that_waits_for_its_consumer_takes_only_a_volume_that_names_it():
    mine = volume({"name": "mine", "uid": "1"}, "5Gi", claimRef={"namespace": "default", "name": "data", "uid": "c"})
    assert best_match(claim(), [volume()], delayed=True) is None
    assert best_match(claim(), [volume(), mine], delayed=True) is mine


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({}, "", id="fits"),
        pytest.param({"size": "2Gi"}, "requested PV is too small", id="size"),
        pytest.param({"storageClassName": "x"}, "storageClassName does not match", id="class"),
        pytest.param({"volumeMode": "Block"}, "incompatible volumeMode", id="mode"),
        pytest.param({"modes": ("ReadOnlyMany",)}, "incompatible accessMode", id="access"),
        pytest.param({"volumeAttributesClassName": "g"}, "VolumeAttributesClassName does not match", id="attributes"),
    ],
)
def test_a_volume_asked_for_by_name_is_checked(spec, why):
    assert mismatch_message(volume(), claim(**spec)) == why


# --- static volumes ---------------------------------------------------------------------------------------------------


async def test_an_immediate_claim_is_bound_to_a_free_volume_and_both_say_so():
    async with running() as cluster:
        cluster.storage_class("manual")
        cluster.volume(size="2Gi")
        await settled()
        assert cluster.phases() == {"disk": "Available"}
        cluster.claim()
        await settled()
        claim, volume = cluster.the_claim(), cluster.the_volume()
        assert claim["spec"]["volumeName"] == "disk"
        assert claim["metadata"]["annotations"] == {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }
        assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
        assert volume["status"]["phase"] == "Bound"
        assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        ref = volume["spec"]["claimRef"]
        assert (ref["kind"], ref["namespace"], ref["name"], ref["uid"]) == (
            "PersistentVolumeClaim",
            "default",
            "data",
            claim["metadata"]["uid"],
        )


async def test_a_pending_claim_is_bound_as_soon_as_its_volume_is_created():
    async with running() as cluster:
        cluster.storage_class("manual")
        cluster.claim()
        await settled()
        assert cluster.phases() == {"data": "Pending"}
        assert cluster.events() == [
            ("ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner")
        ]
        cluster.volume()
        await settled()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}


async def test_volumes_of_others_are_waited_for_where_others_provision():
    cluster = Cluster()
    cluster.volumes = PersistentVolumeController(
        cluster.store, clock=cluster.clock, rng=random.Random(1), only_own=True
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.volumes.run())
        cluster.storage_class("staged", provisioner="kwok.x-k8s.io/volume")
        cluster.storage_class("own", provisioner="kubeloop.dev/simulated")
        cluster.claim("staged", storage_class="staged")
        cluster.claim("own", storage_class="own")
        await settled()
        phases = cluster.phases()
        task.cancel()
    assert (phases["staged"], phases["own"]) == ("Pending", "Bound")


async def test_what_existed_before_the_start_is_bound():
    cluster = Cluster()
    cluster.claim(storage_class="")
    cluster.volume(storage_class="")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.volumes.run())
        await settled()
        task.cancel()
    assert cluster.phases() == {"data": "Bound", "disk": "Bound"}


async def test_a_claim_that_waits_for_its_consumer_says_for_whom_and_takes_what_the_scheduler_reserved():
    async with running() as cluster:
        cluster.storage_class("local", volumeBindingMode="WaitForFirstConsumer")
        cluster.volume(storage_class="local")
        cluster.claim(storage_class="local")
        await settled()
        cluster.pod()
        await settled()
        assert cluster.phases() == {"data": "Pending", "disk": "Available"}
        assert cluster.events() == [
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            ("WaitForPodScheduled", "waiting for pod web to be scheduled"),
        ]
        volume, claim = cluster.the_volume(), cluster.the_claim()
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
        cluster.store.update(PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "claimRef": ref}})
        await settled()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}
        assert cluster.the_volume()["spec"]["claimRef"] == ref


async def test_a_claim_without_class_or_with_an_unknown_one_says_so():
    async with running() as cluster:
        cluster.claim("none", storage_class="")
        cluster.claim("unknown", storage_class="x")
        await settled()
        assert cluster.events() == [
            ("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "x" not found'),
        ]
        cluster.storage_class("x", "example.com/disks")
        await settled()
        assert cluster.phases()["unknown"] == "Bound"


async def test_a_volume_asked_for_by_name_that_does_not_serve_is_refused():
    async with running() as cluster:
        cluster.volume(size="1Mi")
        cluster.claim(volumeName="disk")
        await settled()
        assert cluster.events() == [
            ("VolumeMismatch", 'Cannot bind to requested volume "disk": requested PV is too small')
        ]
        cluster.volume("other", claimRef={"namespace": "default", "name": "else", "uid": "x"})
        cluster.claim("second", volumeName="other")
        await settled()
        assert cluster.events()[1:] == [("FailedBinding", 'volume "other" already bound to a different claim.')]


async def test_a_claim_whose_volume_is_gone_is_lost():
    async with running() as cluster:
        cluster.volume()
        cluster.claim()
        await settled()
        cluster.store.delete(PERSISTENT_VOLUMES, "", "disk")
        await settled()
        assert cluster.phases() == {"data": "Lost"}
        assert cluster.events()[-1] == (
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        )


# --- provisioning -----------------------------------------------------------------------------------------------------


async def test_an_immediate_claim_of_a_class_with_a_provisioner_gets_a_volume_made_for_it():
    async with running() as cluster:
        cluster.storage_class("fast", "example.com/disks")
        claim = cluster.claim(storage_class="fast", size="3Gi")
        await settled()
        name = f"pvc-{claim['metadata']['uid']}"
        assert cluster.phases() == {"data": "Bound", name: "Bound"}
        volume = cluster.the_volume(name)
        assert volume["spec"]["capacity"] == {"storage": "3Gi"}
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert "nodeAffinity" not in volume["spec"]
        assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "example.com/disks"}
        assert [reason for reason, _ in cluster.events()] == [
            "ExternalProvisioning",
            "Provisioning",
            "ProvisioningSucceeded",
        ]
        assert cluster.events()[-1][1] == f"Successfully provisioned volume {name}"


async def test_a_claim_of_the_default_class_is_provisioned_on_the_node_that_the_scheduler_selected():
    async with running() as cluster:
        cluster.node("node-1")
        claim = cluster.claim(storage_class="standard")
        await settled()
        assert cluster.phases() == {"data": "Pending"}
        cluster.annotate("data", **{SELECTED: "node-1"})
        await settled()
        volume = cluster.the_volume(f"pvc-{claim['metadata']['uid']}")
        assert volume["status"]["phase"] == "Bound"
        assert volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1.host"]}]}
        ]


async def test_the_selection_of_a_node_that_is_gone_is_taken_back():
    async with running() as cluster:
        cluster.claim(storage_class="standard", metadata={"annotations": {SELECTED: "gone"}})
        await settled()
        assert SELECTED not in cluster.the_claim()["metadata"].get("annotations", {})
        assert ("ProvisioningFailed", 'failed to get target node: node "gone" not found') in cluster.events()


async def test_a_pods_ephemeral_volume_gets_a_claim_that_the_pod_owns():
    async with running() as cluster:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": claim()["spec"]}
        source = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        pod = cluster.pod(volumes=[source])
        await settled()
        made = cluster.the_claim("web-scratch")
        assert made["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert made["metadata"]["labels"] == {"a": "b"}
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert made["spec"]["storageClassName"] == "standard"


# --- going ------------------------------------------------------------------------------------------------------------


async def test_a_deleted_claim_goes_and_its_provisioned_volume_with_it():
    async with running() as cluster:
        cluster.storage_class("fast", "example.com/disks")
        cluster.claim(storage_class="fast")
        await settled()
        cluster.delete_claim()
        await settled()
        assert cluster.phases() == {}


async def test_a_retained_volume_is_released_and_may_then_be_deleted():
    async with running() as cluster:
        cluster.volume(persistentVolumeReclaimPolicy="Retain")
        cluster.claim()
        await settled()
        volume = cluster.the_volume()
        doomed = {**volume["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        cluster.store.update(PERSISTENT_VOLUMES, {**volume, "metadata": doomed})
        await settled()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}  # in use: it must wait
        cluster.delete_claim()
        await settled()
        assert cluster.phases() == {}
        cluster.volume("kept", persistentVolumeReclaimPolicy="Retain")
        cluster.claim("again")
        await settled()
        cluster.delete_claim("again")
        await settled()
        assert cluster.phases() == {"kept": "Released"}


async def test_a_static_volume_that_nobody_can_delete_fails():
    async with running() as cluster:
        cluster.volume(persistentVolumeReclaimPolicy="Delete", hostPath={"path": "/data"})
        cluster.claim()
        await settled()
        cluster.delete_claim()
        await settled()
        assert cluster.phases() == {"disk": "Failed"}
        assert cluster.events()[-1][0] == "VolumeFailedDelete"


async def test_a_claim_in_use_stays_until_its_pod_is_gone():
    async with running() as cluster:
        cluster.volume()
        cluster.claim()
        cluster.pod(node="node-0")
        await settled()
        cluster.delete_claim()
        await settled()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}
        cluster.store.delete(PODS, "default", "web")
        await settled()
        assert cluster.phases() == {"disk": "Released"}


async def test_a_finalizer_of_somebody_else_keeps_the_claim():
    async with running() as cluster:
        cluster.claim(metadata={})
        found = cluster.the_claim()
        both = {**found["metadata"], "finalizers": ["kubernetes.io/pvc-protection", "example.com/mine"]}
        cluster.store.update(PERSISTENT_VOLUME_CLAIMS, {**found, "metadata": both})
        cluster.delete_claim()
        await settled()
        assert cluster.the_claim()["metadata"]["finalizers"] == ["example.com/mine"]


async def test_registering_twice_makes_one_default_class():
    cluster = Cluster()
    cluster.volumes.register()
    cluster.volumes.register()
    (only,) = cluster.store.list(STORAGE_CLASSES)
    assert only["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert only["volumeBindingMode"] == "WaitForFirstConsumer"
