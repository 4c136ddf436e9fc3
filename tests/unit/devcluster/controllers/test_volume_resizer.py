"""Expansion of provisioned volumes: conditions, sizes and events, with and without a pod."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.controllers.volume_provisioner import PROVISIONER, VolumeProvisioner
from kubeloop.devcluster.controllers.volume_resizer import claim_names, requested_expansion
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim

JSON = dict[str, Any]
PENDING_MESSAGE = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."


class Cluster:
    """A bound claim of 1Gi and its provisioned volume."""

    def __init__(self, provisioned_by: str = PROVISIONER, only_own: bool = False, **spec: Any) -> None:
        self.store = ObjectStore(seconds=asyncio.get_running_loop().time)
        self.store.create(PERSISTENT_VOLUME_CLAIMS, bound_claim(**spec))
        annotations = {"pv.kubernetes.io/provisioned-by": provisioned_by} if provisioned_by else {}
        volume = persistent_volume({"name": "disk", "uid": "v", "annotations": annotations}, claimRef={"uid": "c"})
        self.store.create(PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Bound"}})
        self.provisioner = VolumeProvisioner(self.store, clock=VirtualClock(), rng=random.Random(1), only_own=only_own)

    @property
    def claim(self) -> JSON:
        claim = self.store.get(PERSISTENT_VOLUME_CLAIMS, "default", "data")
        assert claim is not None
        return claim

    @property
    def state(self) -> JSON:
        """The status without phase and times."""
        status = {name: value for name, value in self.claim["status"].items() if name not in ("phase", "accessModes")}
        if "conditions" in status:
            status["conditions"] = [(it["type"], it["status"], it.get("message", "")) for it in status["conditions"]]
        return status

    @property
    def volume_size(self) -> str:
        return str(self.store.list(PERSISTENT_VOLUMES)[0]["spec"]["capacity"]["storage"])

    def request(self, size: str) -> None:
        claim = self.claim
        spec = {**claim["spec"], "resources": {"requests": {"storage": size}}}
        self.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "spec": spec})

    def create_pod(self, name: str = "web", phase: str = "Running", claim: str = "data") -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default", "uid": name}}
        self.store.create(PODS, {**pod, "spec": {"nodeName": "node-1", "volumes": volumes}, "status": {"phase": phase}})

    def events(self) -> list[tuple[str, str, str, str]]:
        return [
            (event["involvedObject"]["name"], event["reason"], event["message"], event["source"]["component"])
            for event in sorted(self.store.list(EVENTS), key=lambda event: int(event["metadata"]["resourceVersion"]))
        ]


def bound_claim(**spec: Any) -> JSON:
    claim = persistent_volume_claim(volumeName="disk", **spec)
    return {**claim, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}


RESIZER = f"external-resizer {PROVISIONER}"
RESIZING = ("data", "Resizing", "External resizer is resizing volume disk", RESIZER)
FILE_SYSTEM = ("data", "FileSystemResizeRequired", "Require file system resize of volume on node", RESIZER)


@pytest.mark.virtual_time
async def test_file_system_is_expanded_when_a_pod_runs(start):
    cluster = await start(Cluster())
    cluster.request("2Gi")
    await asyncio.sleep(1)
    assert cluster.volume_size == "2Gi"
    assert cluster.state == {
        "capacity": {"storage": "1Gi"},
        "conditions": [("Resizing", "True", ""), ("FileSystemResizePending", "True", PENDING_MESSAGE)],
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }
    assert cluster.events() == [RESIZING, FILE_SYSTEM]
    cluster.create_pod("other", claim="other")
    cluster.create_pod("pending", "Pending")
    await asyncio.sleep(1)
    assert cluster.state["capacity"] == {"storage": "1Gi"}
    cluster.create_pod()
    await asyncio.sleep(1)
    assert cluster.state == {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}
    message = 'MountVolume.NodeExpandVolume succeeded for volume "disk"  node-1'
    assert cluster.events()[2:] == [
        (name, "FileSystemResizeSuccessful", message, "kubelet") for name in ("web", "data")
    ]


@pytest.mark.virtual_time
async def test_volume_of_a_running_pod_is_expanded_at_once_and_again(start):
    cluster = await start(Cluster())
    cluster.create_pod()
    for size in ("2Gi", "5Gi"):
        cluster.request(size)
        await asyncio.sleep(1)
        assert cluster.volume_size == size
        assert cluster.state == {"capacity": {"storage": size}, "allocatedResources": {"storage": size}}


@pytest.mark.virtual_time
async def test_second_expansion_waits_for_the_first(start):
    cluster = await start(Cluster())
    for size in ("2Gi", "5Gi"):
        cluster.request(size)
        await asyncio.sleep(1)
    assert (cluster.volume_size, cluster.state["allocatedResources"]) == ("2Gi", {"storage": "2Gi"})
    cluster.create_pod()
    await asyncio.sleep(1)
    assert (cluster.volume_size, cluster.state["capacity"]) == ("5Gi", {"storage": "5Gi"})


@pytest.mark.virtual_time
async def test_block_volume_is_expanded_without_a_pod(start):
    cluster = await start(Cluster(volumeMode="Block"))
    cluster.request("2Gi")
    await asyncio.sleep(1)
    assert cluster.state == {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}
    assert cluster.claim["metadata"]["annotations"] == {"volume.kubernetes.io/node-expansion-not-required": "true"}
    assert cluster.events() == [RESIZING, ("data", "VolumeResizeSuccessful", "Resize volume succeeded", RESIZER)]


@pytest.mark.virtual_time
async def test_pending_expansion_ends_after_a_restart(start):
    cluster = await start(Cluster())
    cluster.request("2Gi")
    await asyncio.sleep(1)
    restarted = VolumeProvisioner(cluster.store, clock=VirtualClock(), rng=random.Random(2))
    cluster.create_pod("pending", "Pending")
    task = asyncio.ensure_future(restarted.run())
    await asyncio.sleep(1)
    cluster.create_pod()
    await asyncio.sleep(1)
    task.cancel()
    assert cluster.state == {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"provisioned_by": ""}, id="not provisioned"),
        pytest.param({"provisioned_by": "ebs.csi.aws.com", "only_own": True}, id="of another provisioner"),
    ],
)
async def test_volume_of_another_resizer_keeps_its_size(start, options):
    cluster = await start(Cluster(**options))
    cluster.request("2Gi")
    await asyncio.sleep(1)
    assert (cluster.volume_size, cluster.state, cluster.events()) == ("1Gi", {"capacity": {"storage": "1Gi"}}, [])


NODE = {"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}
CONTROLLER = {**NODE, "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}}


@pytest.mark.parametrize(
    ("requested", "volume_size", "status", "size"),
    [
        pytest.param("1Gi", "1Gi", {}, None, id="as large as requested"),
        pytest.param("1024Mi", "1Gi", {}, None, id="the same in another unit"),
        pytest.param("2Gi", "1Gi", {}, "2Gi", id="larger"),
        pytest.param("2Gi", "1Gi", {"phase": "Pending"}, None, id="not bound"),
        pytest.param("2Gi", "2Gi", NODE, None, id="on the node"),
        pytest.param("5Gi", "2Gi", NODE, None, id="on the node, and more is requested"),
        pytest.param("5Gi", "1Gi", NODE, "2Gi", id="the volume is not expanded yet"),
        pytest.param("5Gi", "2Gi", CONTROLLER, "2Gi", id="interrupted expansion ends first"),
    ],
)
def test_requested_expansion(requested: str, volume_size: str, status: JSON, size: str | None):
    claim = persistent_volume_claim(size=requested)
    claim["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}, **status}
    assert requested_expansion(claim, persistent_volume(size=volume_size)) == size


@pytest.mark.parametrize(
    ("volumes", "names"),
    [
        ([{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}], {"data"}),
        ([{"name": "data", "ephemeral": {}}], {"p-data"}),
        ([{"name": "a", "emptyDir": {}}], set()),
        (None, set()),
    ],
)
def test_claim_names_of_a_pod(volumes: Any, names: set[str]):
    assert claim_names({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}) == names
