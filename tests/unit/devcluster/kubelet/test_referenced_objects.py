"""Missing ConfigMaps, Secrets and ResourceClaims: errors, and pods on simulated nodes that wait for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.referenced_objects import (
    missing_for_environment,
    missing_for_volumes,
    unprepared_claim,
)
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES, PODS, RESOURCE_CLAIMS, SECRETS
from support.simulation.simulated_cluster import SimulatedCluster, container

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]

OBJECTS: dict[tuple[str, str], JSON] = {
    ("ConfigMap", "settings"): {"data": {"color": "blue"}, "binaryData": {"logo": "AA=="}},
    ("Secret", "login"): {"data": {"password": "cw=="}},
}


def read(kind: str, name: str) -> JSON | None:
    return OBJECTS.get((kind, name))


def pod_with(*volumes: JSON, mounted_by: str = "containers") -> JSON:
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    containers: JSON = {"containers": [container("web")]}
    containers[mounted_by] = [container("web", volumeMounts=mounts)]
    return {"spec": {**containers, "volumes": list(volumes)}}


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        pytest.param({"configMap": {"name": "settings"}}, [], id="ConfigMap exists"),
        pytest.param({"secret": {"secretName": "login", "items": [{"key": "password", "path": "p"}]}}, [], id="Secret"),
        pytest.param({"configMap": {"name": "absent"}}, ['configmap "absent" not found'], id="no ConfigMap"),
        pytest.param({"secret": {"secretName": "absent"}}, ['secret "absent" not found'], id="no Secret"),
        pytest.param({"secret": {"secretName": "absent", "optional": True}}, [], id="optional"),
        pytest.param({"configMap": {"name": "settings", "items": [{"key": "logo", "path": "l"}]}}, [], id="binary key"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "size", "path": "s"}]}},
            ["configmap references non-existent config key: size"],
            id="no key in ConfigMap",
        ),
        pytest.param(
            {"secret": {"secretName": "login", "items": [{"key": "user", "path": "u"}]}},
            ["references non-existent secret key: user"],
            id="no key in Secret",
        ),
        pytest.param(
            {"projected": {"sources": [{"secret": {"name": "absent"}}, {"configMap": {"name": "absent"}}]}},
            ['secret "absent" not found', 'configmap "absent" not found'],
            id="projected",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    ]
                }
            },
            [],
            id="service account token: certificate counts as present",
        ),
        pytest.param({"emptyDir": {}}, [], id="other volume"),
    ],
)
@pytest.mark.parametrize("mounted_by", ["initContainers", "containers"])
def test_missing_objects_of_mounted_volume(source: JSON, messages: list[str], mounted_by: str):
    pod = pod_with({"name": "files", **source}, mounted_by=mounted_by)
    missing = list(missing_for_volumes(pod, read))
    assert [(volume, entry.message) for volume, entry in missing] == [("files", message) for message in messages]


def test_volume_without_mount_is_ignored():
    pod = pod_with({"name": "files", "secret": {"secretName": "absent"}})
    pod["spec"]["containers"][0]["volumeMounts"] = []
    assert not list(missing_for_volumes(pod, read))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "login"}}]}, None, id="all"
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "absent"}}]},
            ("Secret", 'secret "absent" not found'),
            id="envFrom Secret",
        ),
        pytest.param(
            {"envFrom": [{"configMapRef": {"name": "absent"}}]},
            ("ConfigMap", 'configmap "absent" not found'),
            id="envFrom ConfigMap",
        ),
        pytest.param({"envFrom": [{"configMapRef": {"name": "absent", "optional": True}}]}, None, id="optional"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}]}, None, id="others"
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}]},
            None,
            id="key",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "logo"}}}]},
            ("ConfigMap", "couldn't find key logo in ConfigMap default/settings"),
            id="no key in ConfigMap: binary data does not count",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]},
            ("Secret", "couldn't find key user in Secret default/login"),
            id="no key in Secret",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user", "optional": True}}}]},
            None,
            id="optional key",
        ),
    ],
)
def test_missing_object_of_environment(fields: JSON, expected: tuple[str, str] | None):
    missing = missing_for_environment(container("web", **fields), "default", read)
    assert (missing and (missing.kind, missing.message)) == expected


def create(cluster: SimulatedCluster, resource: Any, name: str, namespace: str = "default", **data: str) -> None:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    cluster.store.create(resource, {"kind": resource.kind, "apiVersion": "v1", "metadata": metadata, "data": data})


FILES: JSON = {"name": "files", "configMap": {"name": "settings"}}
MOUNTS = [{"name": "files", "mountPath": "/files"}]
ENV = [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]
FAILED_MOUNT = ("FailedMount", 'MountVolume.SetUp failed for volume "files" : configmap "settings" not found')


def fail(cluster: SimulatedCluster, mode: str | None) -> None:
    cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: mode} if mode else {})


def waiting(cluster: SimulatedCluster, field: str = "containerStatuses") -> list[JSON]:
    """Return the waiting states of the pod's containers; {} for one in another state."""
    return [status["state"].get("waiting", {}) for status in cluster.status()[field]]


@pytest.mark.parametrize("events", [True, False], ids=["events", "no events"])
async def test_pod_is_created_when_the_config_map_of_its_volume_is(events: bool):
    async with SimulatedCluster(events=events).running() as cluster:
        cluster.bind(containers=[container("web", volumeMounts=MOUNTS)], volumes=[FILES])
        await asyncio.sleep(100)
        create(cluster, CONFIG_MAPS, "settings", namespace="other")
        create(cluster, SECRETS, "settings")
        await asyncio.sleep(100)
        assert cluster.phase() == "Pending"
        assert waiting(cluster) == [{"reason": "ContainerCreating"}]
        assert cluster.conditions()["PodReadyToStartContainers"] == ("False", "")
        assert "podIP" not in cluster.status()
        assert cluster.events() == ([FAILED_MOUNT] if events else [])
        create(cluster, CONFIG_MAPS, "settings")
        await asyncio.sleep(0.1)
        assert cluster.ready()


async def test_container_is_created_when_the_key_of_its_environment_is():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", env=ENV), container("log")])
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        reason = "CreateContainerConfigError"
        assert waiting(cluster) == [{"reason": reason, "message": 'secret "login" not found'}, {}]
        assert cluster.conditions()["PodReadyToStartContainers"] == ("True", "")
        create(cluster, SECRETS, "login")
        await asyncio.sleep(0.1)
        assert waiting(cluster)[0]["message"] == "couldn't find key password in Secret default/login"
        secret = cluster.store.get(SECRETS, "default", "login")
        assert secret is not None
        cluster.store.update(SECRETS, {**secret, "data": {"password": "cw=="}})
        await asyncio.sleep(0.1)
        assert cluster.ready()
        assert [status["restartCount"] for status in cluster.status()["containerStatuses"]] == [0, 0]
        assert [event for event in cluster.events() if event[0] == "Failed"] == [
            ("Failed", 'Error: secret "login" not found'),
            ("Failed", "Error: couldn't find key password in Secret default/login"),
        ]


async def test_init_container_waits_for_its_secret_before_the_others_start():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(initContainers=[container("migrate", env=ENV)])
        await asyncio.sleep(2)
        assert waiting(cluster, "initContainerStatuses")[0]["reason"] == "CreateContainerConfigError"
        assert waiting(cluster) == [{"reason": "PodInitializing"}]
        create(cluster, SECRETS, "login", password="cw==")
        await asyncio.sleep(0.1)
        assert cluster.ready()
        assert cluster.status()["initContainerStatuses"][0]["restartCount"] == 0


async def test_restarted_container_waits_for_a_deleted_secret():
    async with SimulatedCluster().running() as cluster:
        create(cluster, SECRETS, "login", password="cw==")
        cluster.bind(annotations={"crashes": "1", "run-seconds": "5"}, containers=[container("web", env=ENV)])
        await asyncio.sleep(2)
        assert cluster.ready()
        cluster.store.delete(SECRETS, "default", "login")
        await asyncio.sleep(60)
        (status,) = cluster.status()["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        assert status["lastState"]["terminated"]["exitCode"] == 1
        create(cluster, SECRETS, "login", password="cw==")
        await asyncio.sleep(0.1)
        assert cluster.ready()
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 1


async def test_waiting_pod_on_a_failed_node_starts_when_the_node_recovers():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", volumeMounts=MOUNTS)], volumes=[FILES])
        await asyncio.sleep(2)
        fail(cluster, "unreachable")
        await asyncio.sleep(2)
        create(cluster, CONFIG_MAPS, "settings")
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        fail(cluster, None)
        await asyncio.sleep(0.1)
        assert cluster.ready()


async def test_pod_that_waits_for_an_object_is_deleted_at_once():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", volumeMounts=MOUNTS)], volumes=[FILES])
        await asyncio.sleep(2)
        cluster.delete()
        await asyncio.sleep(0.1)
        assert cluster.pod() is None
        create(cluster, CONFIG_MAPS, "settings")
        await asyncio.sleep(0.1)
        assert cluster.pod() is None


CLAIM: JSON = {
    "kind": "ResourceClaim",
    "metadata": {"name": "gpu-x", "namespace": "default", "uid": "claim-uid"},
    "status": {"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "web", "uid": "uid-web"}]},
}
BY_NAME = {"name": "gpu", "resourceClaimName": "gpu-x"}
BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
GROUP_CONSUMER = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "uid-gang"}
EXTENDED = {"extendedResourceClaimStatus": {"resourceClaimName": "gpu-x", "requestMappings": []}}
NAMED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu-x"}]}


@pytest.mark.parametrize(
    ("entry", "status", "claim", "message"),
    [
        pytest.param(BY_NAME, {}, CLAIM, None, id="prepared"),
        pytest.param(BY_TEMPLATE, NAMED, CLAIM, None, id="prepared, from a template"),
        pytest.param(BY_TEMPLATE, {}, CLAIM, 'pod "default/web": ResourceClaim not created yet', id="not created"),
        pytest.param(BY_TEMPLATE, {"resourceClaimStatuses": [{"name": "gpu"}]}, None, None, id="not needed"),
        pytest.param(
            BY_NAME,
            {},
            None,
            'fetch ResourceClaim gpu-x: resourceclaims.resource.k8s.io "gpu-x" not found',
            id="missing",
        ),
        pytest.param(
            BY_NAME,
            {},
            {**CLAIM, "status": {"allocation": {"devices": {}}}},
            "pod web (uid-web) is not allowed to use ResourceClaim gpu-x (claim-uid)",
            id="not reserved",
        ),
        pytest.param(
            BY_NAME,
            {},
            {**CLAIM, "status": {"reservedFor": CLAIM["status"]["reservedFor"]}},
            "ResourceClaim gpu-x: not allocated",
            id="not allocated",
        ),
        pytest.param(None, EXTENDED, CLAIM, None, id="prepared, for extended resources"),
        pytest.param(
            None,
            EXTENDED,
            None,
            'fetch ResourceClaim gpu-x: resourceclaims.resource.k8s.io "gpu-x" not found',
            id="missing, for extended resources",
        ),
    ],
)
def test_claim_that_a_pod_must_not_use_yet(entry, status, claim, message):
    metadata = {"name": "web", "namespace": "default", "uid": "uid-web"}
    pod = {"metadata": metadata, "spec": {"resourceClaims": [entry]} if entry else {}, "status": status}
    claims = {"gpu-x": claim}
    missing = unprepared_claim(pod, lambda kind, name: claims[name])
    assert (None if missing is None else missing.message) == message


@pytest.mark.parametrize(("group", "is_allowed"), [("gang", True), ("other", False)])
def test_pod_uses_a_claim_that_is_reserved_for_its_group(group: str, is_allowed: bool):
    metadata = {"name": "web", "namespace": "default", "uid": "uid-web"}
    spec = {"resourceClaims": [BY_NAME], "schedulingGroup": {"podGroupName": group}}
    claim = {**CLAIM, "status": {"allocation": {"devices": {}}, "reservedFor": [GROUP_CONSUMER]}}
    missing = unprepared_claim({"metadata": metadata, "spec": spec}, lambda kind, name: claim)
    assert (missing is None) is is_allowed


async def test_pod_starts_when_its_claim_is_named_allocated_and_reserved():
    async with SimulatedCluster().running() as cluster:
        pod = cluster.bind(resourceClaims=[BY_TEMPLATE])
        await asyncio.sleep(2)
        cluster.store.create(RESOURCE_CLAIMS, {**CLAIM, "status": {}})
        await asyncio.sleep(2)
        current = cluster.pod()
        assert current is not None
        cluster.store.update(PODS, {**current, "status": {**current["status"], **NAMED}})
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        assert waiting(cluster) == [{"reason": "ContainerCreating"}]
        assert {reason for reason, _ in cluster.events()} == {"FailedPrepareDynamicResources"}
        prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
        assert [message.removeprefix(prefix) for _, message in cluster.events()] == [
            'pod "default/web": ResourceClaim not created yet',
            "pod web (uid-web) is not allowed to use ResourceClaim gpu-x (claim-uid)",
        ]
        claim = cluster.store.get(RESOURCE_CLAIMS, "default", "gpu-x")
        assert claim is not None
        assert pod["metadata"]["uid"] == CLAIM["status"]["reservedFor"][0]["uid"]
        cluster.store.update(RESOURCE_CLAIMS, {**claim, "status": CLAIM["status"]})
        await asyncio.sleep(0.1)
        assert cluster.ready()
