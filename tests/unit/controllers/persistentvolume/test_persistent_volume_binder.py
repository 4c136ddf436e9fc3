"""Persistent volume binder with provisioner and protection, in virtual time: binding, provisioning, deletion."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.ephemeral.ephemeral_volume_controller import EphemeralVolumeController
from kubeloop.controllers.persistentvolume.persistent_volume_binder import PersistentVolumeBinder
from kubeloop.controllers.pvcprotection.claim_protection_controller import ClaimProtectionController
from kubeloop.controllers.pvprotection.volume_protection_controller import VolumeProtectionController
from kubeloop.devcluster.controllers.volume_provisioner import VolumeProvisioner
from kubeloop.kube.events.event_recorder import EventBroadcaster
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import (
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim, StorageClass
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest, WatchFault
from support.comparison import replay_server
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
CONTROLLERS = (
    PersistentVolumeBinder,
    ClaimProtectionController,
    VolumeProtectionController,
    EphemeralVolumeController,
)
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Cluster:
    """A store with the controller, and methods that write objects like the API server."""

    def __init__(self, *, only_own: bool = False) -> None:
        server = FakeApiServer()
        self.clock, self.store, self.transport = server.clock, server.store, server.transport
        self.metrics = server.metrics
        self.events_recorder = EventBroadcaster(server.client, clock=self.clock, rng=random.Random(2))
        context = structs.replace(server.context, events=self.events_recorder.for_component("test"))
        provisioner = VolumeProvisioner(self.store, clock=self.clock, rng=random.Random(1), only_own=only_own)
        controllers = [new_controller(factory, context) for factory in CONTROLLERS]
        self.binder: Any = controllers[0]
        self.parts: list[Any] = [server.informers, self.events_recorder, provisioner, *controllers]
        self._uids = 0

    def metadata(self, name: str, **more: Any) -> JSON:
        self._uids += 1
        return {"name": name, "uid": f"uid-{self._uids}", **more}

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> JSON:
        content = {"provisioner": provisioner, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete", **more}
        head = {"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": self.metadata(name)}
        return self.store.create(STORAGE_CLASSES, {**head, **content})

    def claim(
        self, name: str = "data", storage_class: str = "manual", metadata: JSON | None = None, **spec: Any
    ) -> JSON:
        head = self.metadata(name, namespace="default", finalizers=["kubernetes.io/pvc-protection"], **(metadata or {}))
        return self.store.create(
            PERSISTENT_VOLUME_CLAIMS,
            persistent_volume_claim(head, **{"storageClassName": storage_class, "volumeMode": "Filesystem", **spec}),
        )

    def volume(
        self, name: str = "disk", storage_class: str = "manual", metadata: JSON | None = None, **spec: Any
    ) -> JSON:
        head = self.metadata(name, finalizers=["kubernetes.io/pv-protection"], **(metadata or {}))
        source = {"hostPath": {"path": "/data", "type": ""}, "persistentVolumeReclaimPolicy": "Retain"}
        volume = persistent_volume(
            head, **{"storageClassName": storage_class, "volumeMode": "Filesystem", **source, **spec}
        )
        return self.store.create(PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Pending"}})

    def pod(self, name: str = "web", claim: str = "data", node: str = "", **spec: Any) -> JSON:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        spec = {"volumes": volumes, **({"nodeName": node} if node else {}), **spec}
        head = {"kind": "Pod", "apiVersion": "v1", "metadata": self.metadata(name, namespace="default")}
        return self.store.create(PODS, {**head, "spec": spec, "status": {"phase": "Pending"}})

    def node(self, name: str) -> JSON:
        metadata = self.metadata(name, labels={"kubernetes.io/hostname": f"{name}.host"})
        return self.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": metadata})

    def annotate(self, name: str, **annotations: str) -> None:
        claim = self.get_claim(name)
        merged = {**claim["metadata"].get("annotations", {}), **annotations}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": {**claim["metadata"], "annotations": merged}})

    def delete_claim(self, name: str = "data") -> None:
        """Set the deletion timestamp, as the API server does for an object with finalizers."""
        claim = self.get_claim(name)
        metadata = {**claim["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})

    def get_claim(self, name: str = "data") -> JSON:
        claim = self.store.get(PERSISTENT_VOLUME_CLAIMS, "default", name)
        assert claim is not None
        return claim

    def get_volume(self, name: str = "disk") -> JSON:
        volume = self.store.get(PERSISTENT_VOLUMES, "", name)
        assert volume is not None
        return volume

    def phases(self) -> dict[str, str]:
        objects = [*self.store.list(PERSISTENT_VOLUME_CLAIMS), *self.store.list(PERSISTENT_VOLUMES)]
        return {obj["metadata"]["name"]: obj["status"]["phase"] for obj in objects}

    def events(self) -> list[tuple[str, str]]:
        """Return reason and message of every event, oldest first."""
        events = sorted(self.store.list(EVENTS), key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in events]


@asynccontextmanager
async def running(cluster: Cluster | None = None) -> AsyncIterator[Cluster]:
    cluster = cluster or Cluster()
    register_default_class(cluster)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in cluster.parts]
        await settle()
        yield cluster
        await settle()
        for task in reversed(tasks):
            task.cancel()


def register_default_class(cluster: Cluster) -> None:
    for part in cluster.parts:
        if isinstance(part, VolumeProvisioner):
            part.register()


async def settle() -> None:
    await asyncio.sleep(5)


# --- static volumes ---------------------------------------------------------------------------------------------------


async def test_immediate_claim_is_bound_to_available_volume():
    async with running() as cluster:
        cluster.storage_class("manual")
        cluster.volume(size="2Gi")
        await settle()
        assert cluster.phases() == {"disk": "Available"}
        cluster.claim()
        await settle()
        claim, volume = cluster.get_claim(), cluster.get_volume()
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


async def test_pending_claim_is_bound_when_volume_is_created():
    async with running() as cluster:
        cluster.storage_class("manual")
        cluster.claim()
        await settle()
        assert cluster.phases() == {"data": "Pending"}
        assert cluster.events() == [
            ("ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner")
        ]
        cluster.volume()
        await settle()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}


@pytest.mark.parametrize(
    ("resource", "namespace", "name"),
    [(PERSISTENT_VOLUME_CLAIMS, "default", "data"), (PERSISTENT_VOLUMES, "", "disk")],
)
async def test_object_that_is_gone_before_it_is_written_is_no_error(resource: Any, namespace: str, name: str):
    async with running() as cluster:
        sent = []

        def delete_first(request: SentRequest) -> None:
            if request.method == "PATCH" and request.path.startswith(resource.path(namespace, name)):
                sent.append(request)
                cluster.store.delete(resource, namespace, name)

        cluster.transport.on_send = delete_first
        cluster.storage_class("manual")
        cluster.volume()
        await settle()
        cluster.claim()
        await settle()
        assert len(sent) == 1
        assert not any(cluster.metrics.values("kubeloop_reconcile_errors").values())


async def test_only_own_leaves_other_provisioners_to_stages():
    async with running(Cluster(only_own=True)) as cluster:
        cluster.storage_class("staged", provisioner="kwok.x-k8s.io/volume")
        cluster.storage_class("own", provisioner="kubeloop.dev/simulated")
        cluster.claim("staged", storage_class="staged")
        cluster.claim("own", storage_class="own")
        await settle()
        phases = cluster.phases()
        assert (phases["staged"], phases["own"]) == ("Pending", "Bound")
        assert "ExternalProvisioning" in dict(cluster.events())


async def test_objects_created_before_the_start_are_bound():
    cluster = Cluster()
    cluster.claim(storage_class="")
    cluster.volume(storage_class="")
    async with running(cluster):
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}


async def test_delayed_claim_is_bound_to_volume_with_its_claim_ref():
    async with running() as cluster:
        cluster.storage_class("local", volumeBindingMode="WaitForFirstConsumer")
        cluster.volume(storage_class="local")
        cluster.claim(storage_class="local")
        await settle()
        cluster.pod()
        await settle()
        assert cluster.phases() == {"data": "Pending", "disk": "Available"}
        assert cluster.events() == [
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            ("WaitForPodScheduled", "waiting for pod web to be scheduled"),
        ]
        cluster.pod("db")
        await settle()
        waits = [message for reason, message in cluster.events() if reason == "WaitForPodScheduled"]
        assert waits[-1] in {"waiting for pods web,db to be scheduled", "waiting for pods db,web to be scheduled"}
        volume, claim = cluster.get_volume(), cluster.get_claim()
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
        cluster.store.update(PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "claimRef": ref}})
        await settle()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}
        assert cluster.get_volume()["spec"]["claimRef"] == ref


async def test_claim_without_usable_storage_class_records_event():
    async with running() as cluster:
        cluster.claim("none", storage_class="")
        cluster.claim("unknown", storage_class="x")
        await settle()
        assert cluster.events() == [
            ("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "x" not found'),
        ]
        cluster.storage_class("x", "example.com/disks")
        await settle()
        assert cluster.phases()["unknown"] == "Bound"


@pytest.mark.parametrize(("storage_class", "assigned"), [(None, "gold"), ("", ""), ("other", "other")])
async def test_default_class_is_assigned_to_pending_claim_without_a_class(storage_class: str | None, assigned: str):
    async with running() as cluster:
        cluster.store.delete(STORAGE_CLASSES, "", "standard")
        cluster.claim(storage_class=storage_class)
        await settle()
        assert cluster.get_claim()["spec"]["storageClassName"] == storage_class
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        cluster.storage_class("gold", metadata=cluster.metadata("gold", annotations=default))
        await settle()
        assert cluster.get_claim()["spec"]["storageClassName"] == assigned


async def test_unsuitable_volume_name_of_claim_records_event():
    async with running() as cluster:
        cluster.volume(size="1Mi")
        cluster.claim(volumeName="disk")
        await settle()
        assert cluster.events() == [
            ("VolumeMismatch", 'Cannot bind to requested volume "disk": requested PV is too small')
        ]
        cluster.volume("other", claimRef={"namespace": "default", "name": "else", "uid": "x"})
        cluster.claim("second", volumeName="other")
        await settle()
        assert cluster.events()[1:] == [("FailedBinding", 'volume "other" already bound to a different claim.')]


@pytest.mark.parametrize("is_referenced", [False, True])
async def test_claim_is_bound_to_the_volume_that_it_names(is_referenced: bool):
    async with running() as cluster:
        cluster.claim(volumeName="disk")
        await settle()
        assert cluster.phases() == {"data": "Pending"}
        reference = {"namespace": "default", "name": "data", "uid": cluster.get_claim()["metadata"]["uid"]}
        cluster.volume(**({"claimRef": reference} if is_referenced else {}))
        cluster.volume("other")
        await settle()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound", "other": "Available"}
        assert cluster.get_volume()["spec"]["claimRef"]["uid"] == reference["uid"]


async def test_bound_claim_whose_volume_is_deleted_is_lost():
    async with running() as cluster:
        cluster.volume()
        cluster.claim()
        await settle()
        cluster.store.delete(PERSISTENT_VOLUMES, "", "disk")
        await settle()
        assert cluster.phases() == {"data": "Lost"}
        assert cluster.events()[-1] == (
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        )


async def test_bound_claim_has_the_volume_attributes_class_of_its_volume():
    def current() -> str | None:
        status = cluster.get_claim()["status"]
        return status.get("currentVolumeAttributesClassName")

    async with running() as cluster:
        cluster.storage_class("fast", provisioner="csi.example.com")
        cluster.claim(storage_class="fast", volumeAttributesClassName="gold")
        await settle()
        volume = cluster.get_claim()["spec"]["volumeName"]
        assert (cluster.phases()["data"], current()) == ("Bound", "gold")
        claim = cluster.get_claim()
        modified = {**claim["status"], "currentVolumeAttributesClassName": "silver"}  # as the driver's resizer does
        cluster.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": modified})
        await settle()
        assert current() == "silver"
        cluster.store.delete(PERSISTENT_VOLUMES, "", volume)
        await settle()
        assert (cluster.phases(), current()) == ({"data": "Lost"}, None)


async def test_bound_claim_that_names_no_volume_is_lost():
    async with running() as cluster:
        cluster.claim(metadata={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}})
        await settle()
        assert cluster.phases() == {"data": "Lost"}
        assert cluster.events() == [
            ("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
        ]


async def test_bound_claim_whose_volume_belongs_to_another_claim_is_lost():
    async with running() as cluster:
        cluster.volume(claimRef={"namespace": "default", "name": "other", "uid": "x"})
        cluster.claim(volumeName="disk", metadata={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}})
        await settle()
        assert cluster.phases()["data"] == "Lost"
        assert [reason for reason, _ in cluster.events()] == ["ClaimMisbound"]


@pytest.mark.parametrize(
    ("annotations", "policy", "claim_ref"),
    [
        pytest.param({"provisioned-by": "x"}, "Retain", {"namespace": "default", "name": "data"}, id="to retain"),
        pytest.param({}, "Delete", {"namespace": "default", "name": "data"}, id="reserved by the user"),
        pytest.param({"bound-by-controller": "yes"}, "Retain", None, id="bound by the controller"),
    ],
)
async def test_second_volume_of_a_bound_claim_becomes_available(annotations: JSON, policy: str, claim_ref: JSON | None):
    async with running() as cluster:
        await create_second_volume(cluster, policy, **annotations)
        assert cluster.phases() == {"data": "Bound", "disk": "Bound", "second": "Available"}
        assert cluster.get_volume("second")["spec"].get("claimRef") == claim_ref


async def test_second_volume_that_was_provisioned_for_a_claim_is_deleted():
    async with running() as cluster:
        await create_second_volume(cluster, "Delete", **{"provisioned-by": "x"})
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}


async def create_second_volume(cluster: Cluster, policy: str, **annotations: str) -> None:
    """Create a volume whose claimRef names a claim that is bound to another volume."""
    cluster.volume()
    uid = cluster.claim()["metadata"]["uid"]
    await settle()
    cluster.volume(
        "second",
        persistentVolumeReclaimPolicy=policy,
        claimRef={"namespace": "default", "name": "data", "uid": uid},
        metadata={"annotations": {f"pv.kubernetes.io/{name}": value for name, value in annotations.items()}},
    )
    await settle()


# --- provisioning -----------------------------------------------------------------------------------------------------


async def test_volume_is_provisioned_for_immediate_claim():
    async with running() as cluster:
        cluster.storage_class("fast", "example.com/disks")
        claim = cluster.claim(storage_class="fast", size="3Gi")
        await settle()
        name = f"pvc-{claim['metadata']['uid']}"
        assert cluster.phases() == {"data": "Bound", name: "Bound"}
        volume = cluster.get_volume(name)
        assert volume["spec"]["capacity"] == {"storage": "3Gi"}
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert "nodeAffinity" not in volume["spec"]
        assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "example.com/disks"}
        events = dict(cluster.events())
        assert events.keys() == {"ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"}
        assert events["ProvisioningSucceeded"] == f"Successfully provisioned volume {name}"


async def test_delayed_claim_is_provisioned_on_selected_node():
    async with running() as cluster:
        cluster.node("node-1")
        claim = cluster.claim(storage_class="standard")
        await settle()
        assert cluster.phases() == {"data": "Pending"}
        cluster.annotate("data", **{SELECTED_NODE: "node-1"})
        await settle()
        volume = cluster.get_volume(f"pvc-{claim['metadata']['uid']}")
        assert volume["status"]["phase"] == "Bound"
        assert volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1.host"]}]}
        ]


async def test_selected_node_annotation_of_missing_node_is_removed():
    async with running() as cluster:
        cluster.claim(storage_class="standard", metadata={"annotations": {SELECTED_NODE: "missing"}})
        await settle()
        assert SELECTED_NODE not in cluster.get_claim()["metadata"].get("annotations", {})
        assert ("ProvisioningFailed", 'failed to get target node: node "missing" not found') in cluster.events()


async def test_claim_of_ephemeral_volume_is_owned_by_the_pod():
    async with running() as cluster:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": persistent_volume_claim()["spec"]}
        source = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        pod = cluster.pod(volumes=[source])
        await settle()
        claim = cluster.get_claim("web-scratch")
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert claim["metadata"]["labels"] == {"a": "b"}
        assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert claim["spec"]["storageClassName"] == "standard"


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_provisioned_volume_is_deleted_with_its_claim():
    async with running() as cluster:
        cluster.storage_class("fast", "example.com/disks")
        cluster.claim(storage_class="fast")
        await settle()
        cluster.delete_claim()
        await settle()
        assert cluster.phases() == {}


async def test_retained_volume_is_released_and_can_be_deleted():
    async with running() as cluster:
        cluster.volume(persistentVolumeReclaimPolicy="Retain")
        cluster.claim()
        await settle()
        volume = cluster.get_volume()
        metadata = {**volume["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        cluster.store.update(PERSISTENT_VOLUMES, {**volume, "metadata": metadata})
        await settle()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}  # deletion waits while the volume is in use
        cluster.delete_claim()
        await settle()
        assert cluster.phases() == {}
        cluster.volume("retained", persistentVolumeReclaimPolicy="Retain")
        cluster.claim("again")
        await settle()
        cluster.delete_claim("again")
        await settle()
        assert cluster.phases() == {"retained": "Released"}


async def test_static_volume_without_deleter_fails():
    async with running() as cluster:
        cluster.volume(persistentVolumeReclaimPolicy="Delete")
        cluster.claim()
        await settle()
        cluster.delete_claim()
        await settle()
        assert cluster.phases() == {"disk": "Failed"}
        assert cluster.events()[-1][0] == "VolumeFailedDelete"


async def test_volume_to_recycle_fails_because_its_data_remains():
    async with running() as cluster:
        cluster.volume(persistentVolumeReclaimPolicy="Recycle")
        cluster.claim()
        await settle()
        cluster.delete_claim()
        await settle()
        assert cluster.phases() == {"disk": "Failed"}
        assert cluster.events()[-1] == ("VolumeFailedRecycle", "No recycler plugin found for the volume!")


async def test_volume_is_not_released_if_only_the_cache_lacks_its_claim():
    async with running() as cluster:
        cluster.transport.watch_faults.append(WatchFault("silence", resource="persistentvolumeclaims"))
        cluster.transport.break_watches("persistentvolumeclaims")
        await settle()
        claim = cluster.claim()["metadata"]
        reference = {name: claim[name] for name in ("namespace", "name", "uid")}
        cluster.volume(claimRef={"kind": "PersistentVolumeClaim", **reference})
        await settle()
        assert cluster.phases()["disk"] == "Pending"
        cluster.volume("former", claimRef={"kind": "PersistentVolumeClaim", **reference, "uid": "of a deleted claim"})
        await settle()
        assert cluster.phases()["former"] == "Released"


async def test_deleted_objects_leave_no_state():
    async with running() as cluster:
        cluster.claim()
        cluster.volume("static", "other", persistentVolumeReclaimPolicy="Delete")
        await settle()
        assert cluster.binder._writes._last_events
        cluster.delete_claim()
        await settle()
        cluster.store.delete(PERSISTENT_VOLUMES, "", "static")
        await settle()
        assert not cluster.binder._writes._last_events


async def test_deleted_claim_in_use_stays_until_pod_is_deleted():
    async with running() as cluster:
        cluster.volume()
        cluster.claim()
        cluster.pod(node="node-0")
        await settle()
        cluster.delete_claim()
        await settle()
        assert cluster.phases() == {"data": "Bound", "disk": "Bound"}
        cluster.store.delete(PODS, "default", "web")
        await settle()
        assert cluster.phases() == {"disk": "Released"}


async def test_foreign_finalizer_of_deleted_claim_remains():
    async with running() as cluster:
        cluster.claim(metadata={})
        claim = cluster.get_claim()
        metadata = {**claim["metadata"], "finalizers": ["kubernetes.io/pvc-protection", "example.com/hold"]}
        cluster.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})
        cluster.delete_claim()
        await settle()
        assert cluster.get_claim()["metadata"]["finalizers"] == ["example.com/hold"]


async def test_register_creates_default_storage_class_once():
    cluster = Cluster()
    for _ in range(2):
        register_default_class(cluster)
    (storage_class,) = cluster.store.list(STORAGE_CLASSES)
    assert storage_class["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer"


@pytest.mark.parametrize(("before", "capacity"), [("500Mi", "500Mi"), ("wrong", "1Gi")])
async def test_capacity_is_that_of_the_file_system_before_its_expansion(before: str, capacity: str):
    async with running() as cluster:
        cluster.volume(metadata={"annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": before}})
        cluster.claim()
        await settle()
        assert cluster.get_claim()["status"]["capacity"] == {"storage": capacity}


# --- events -----------------------------------------------------------------------------------------------------------

DATA, OTHER = "default/data", "default/other"


def claim_ref(name: str) -> JSON:
    return {"claimRef": {"namespace": "default", "name": name, "uid": name}}


def new_claim(name: str = "data", *, complete: bool = False, version: str = "1", **spec: Any) -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if complete else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    body = persistent_volume_claim({**metadata, "resourceVersion": version}, **{"storageClassName": "manual", **spec})
    return convert(PersistentVolumeClaim, body)


def new_volume(version: str = "1", **spec: Any) -> PersistentVolume:
    metadata = {"name": "disk", "uid": "disk", "resourceVersion": version}
    return convert(PersistentVolume, persistent_volume(metadata, **{"storageClassName": "manual", **spec}))


def new_class(name: str = "manual", *, default: bool = False) -> StorageClass:
    annotations = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return convert(StorageClass, {"metadata": {"name": name, "annotations": annotations}, "provisioner": "x"})


def new_pod(*claims: str) -> Pod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return convert(Pod, {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"volumes": volumes}})


NAMING = new_claim(volumeName="disk")


@pytest.mark.parametrize(
    ("before", "verb", "obj", "keys"),
    [
        pytest.param([], "ADDED", new_claim(), [DATA], id="claim"),
        pytest.param([], "ADDED", new_claim(volumeName="disk"), [DATA, "disk"], id="claim that names a volume"),
        pytest.param([new_volume(**claim_ref("data"))], "ADDED", new_claim(), [DATA, "disk"], id="claim of a volume"),
        pytest.param([new_volume(**claim_ref("other"))], "ADDED", new_claim(), [DATA], id="another claim of a volume"),
        pytest.param(
            [new_claim(volumeName="disk")], "DELETED", new_claim(volumeName="disk"), [DATA, "disk"], id="gone"
        ),
        pytest.param([], "ADDED", new_volume(), ["disk"], id="volume"),
        pytest.param([], "ADDED", new_volume(**claim_ref("data")), [DATA, "disk"], id="volume with a claim"),
        pytest.param([new_claim()], "ADDED", new_volume(), [DATA, "disk"], id="volume for a waiting claim"),
        pytest.param([new_claim()], "ADDED", new_volume(storageClassName="x"), ["disk"], id="volume of another class"),
        pytest.param([new_claim(complete=True)], "ADDED", new_volume(), ["disk"], id="the claim is bound"),
        pytest.param(
            [new_claim(volumeName="disk")], "ADDED", new_volume(storageClassName="x"), [DATA, "disk"], id="named volume"
        ),
        pytest.param([new_claim()], "ADDED", new_volume(**claim_ref("other")), [OTHER, "disk"], id="reserved volume"),
        pytest.param(
            [new_volume(**claim_ref("data"))],
            "MODIFIED",
            new_volume("2", **claim_ref("other")),
            [DATA, OTHER, "disk"],
            id="volume with another claim",
        ),
        pytest.param(
            [new_volume(**claim_ref("data"))],
            "MODIFIED",
            new_volume("2"),
            [DATA, "disk"],
            id="claimRef removed",
        ),
        pytest.param([new_volume()], "MODIFIED", new_volume("2"), ["disk"], id="volume without a claim"),
        pytest.param([new_volume()], "DELETED", new_volume(), ["disk"], id="volume is gone"),
        pytest.param([new_claim()], "ADDED", new_class(), [DATA], id="class"),
        pytest.param([new_claim()], "ADDED", new_class("x"), [], id="another class"),
        pytest.param([new_claim(storageClassName="")], "ADDED", new_class("x", default=True), [DATA], id="default"),
        pytest.param([new_claim(storageClassName="")], "ADDED", new_class("x"), [], id="no default"),
        pytest.param([], "ADDED", new_pod("data", "other"), [DATA, OTHER], id="pod"),
        pytest.param([], "ADDED", new_pod(), [], id="pod without claims"),
    ],
)
async def test_event_enqueues_claims_and_volumes(before, verb, obj, keys):
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    PersistentVolumeBinder(context)
    informers = {
        resource.type: context.informers.informer(resource)
        for resource in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, PODS)
    }
    for stored in before:
        informers[type(stored)].apply("ADDED", stored, 0)
    queue.calls.clear()
    informers[type(obj)].apply(verb, obj, 0)
    assert sorted({call["key"] for call in queue.calls}) == keys
