"""Explanation of pods of a cluster with another scheduler: what is read, and which permissions are needed."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Resource,
)
from kubeloop.kube.objects.resources import PODS as PODS_RESOURCE
from kubeloop.kube.user_error import UserError
from kubeloop.process.cluster_explanation import ClusterExplanation, gates_for
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.scheduler.lister_resources import lister_resources
from support.apiserver.faulty_transport import SentRequest
from support.objects.devices import allocated, claim, device, device_class, device_slice, request
from support.scheduling.scheduler_cluster import SchedulerCluster

pytestmark = pytest.mark.virtual_time

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def cluster(clock: Clock) -> SchedulerCluster:
    """A cluster of two nodes."""
    cluster = SchedulerCluster(clock)
    cluster.node("node-0")
    cluster.node("node-1")
    return cluster


def explainer(
    cluster: SchedulerCluster, configuration: SchedulerConfiguration | None = None, progress: list[str] | None = None
) -> ClusterExplanation:
    return ClusterExplanation(
        cluster.server.client,
        configuration,
        gates=DEFAULT_FEATURE_GATES,
        clock=cluster.clock,
        rng=random.Random(1),
        report_progress=[].append if progress is None else progress.append,
    )


def forbid(cluster: SchedulerCluster, *paths: str) -> None:
    def reject(method: str, path: str) -> StatusError | None:
        return StatusError(403, "Forbidden", "the user may not") if path.partition("?")[0] in paths else None

    cluster.server.transport.reject = reject


def only_error(group: BaseExceptionGroup[Exception]) -> UserError:
    (error,) = group.exceptions
    assert isinstance(error, UserError)
    return error


GROUPS = Target("podgroup", "train", "default")
GROUP_GATES = gates_for(GROUPS, DEFAULT_FEATURE_GATES)


@pytest.fixture
async def cluster_with_groups(clock: Clock) -> SchedulerCluster:
    """A cluster of two racks, with 3 and 2 CPUs, that serves PodGroups."""
    cluster = SchedulerCluster(clock, GROUP_GATES)
    cluster.node("node-0", cpu="3", labels={"rack": "r1"})
    cluster.node("node-1", cpu="2", labels={"rack": "r2"})
    return cluster


async def explained_group(cluster: SchedulerCluster) -> dict[str, Any]:
    explanation = ClusterExplanation(
        cluster.server.client,
        None,
        gates=GROUP_GATES,
        clock=cluster.clock,
        rng=random.Random(1),
        report_progress=[].append,
    )
    return await explanation.explain(GROUPS)


async def test_pod_group_is_explained_by_an_attempt_without_effects(cluster_with_groups: SchedulerCluster) -> None:
    cluster = cluster_with_groups
    cluster.pod_group("train", min_count=4, topology_key="rack")
    for number in range(4):
        cluster.pod(f"w{number}", cpu="1", schedulingGroup={"podGroupName": "train"})
    explanation = await explained_group(cluster)
    placements = explanation["lastAttempt"]["placements"]
    assert [(placement["name"], placement["feasiblePods"]) for placement in placements] == [("r1", 3), ("r2", 2)]
    assert explanation["summary"].startswith("it cannot be scheduled: 0/2 placements are available")
    assert explanation["shortages"] == {"cpu": 1000}
    assert explanation["pod"]["pod"] == "default/w3"
    assert explanation["retrySeconds"] == 0
    assert (cluster.bindings, cluster.patches, cluster.events) == ([], [], [])


async def test_pod_group_that_fits_is_due(cluster_with_groups: SchedulerCluster) -> None:
    cluster_with_groups.pod_group("train", min_count=2)
    for number in range(2):
        cluster_with_groups.pod(f"w{number}", cpu="1", schedulingGroup={"podGroupName": "train"})
    explanation = await explained_group(cluster_with_groups)
    assert (explanation["summary"], explanation["pod"]) == ("it fits now; its next attempt is due", None)
    assert "does it run?" in explanation["notes"][0]


async def test_missing_pod_group_is_an_error(cluster_with_groups: SchedulerCluster) -> None:
    with pytest.raises(UserError, match="there is no pod group default/train"):
        await explained_group(cluster_with_groups)


def test_gates_of_pod_groups_are_enabled_for_a_group_only() -> None:
    assert gates_for(Target("pod", "p", "default"), DEFAULT_FEATURE_GATES) is DEFAULT_FEATURE_GATES
    assert GROUP_GATES.enabled("GangScheduling")
    disabled = FeatureGates({"GenericWorkload": False})
    assert gates_for(GROUPS, disabled) is disabled


async def test_room_taken_by_other_pods_counts(cluster: SchedulerCluster) -> None:
    cluster.pod("big", cpu="3", nodeName="node-0")
    cluster.pod("pending", cpu="2")
    explanation = await explainer(cluster).explain(Target("pod", "pending", "default"))
    assert explanation["summary"].startswith("the pod fits on 1 of 2 nodes now")
    assert {node["node"]: [obstacle["reasons"] for obstacle in node["obstacles"]] for node in explanation["nodes"]} == {
        "node-0": [("Insufficient cpu",)],
        "node-1": [],
    }
    assert explanation["notes"][0] == "Scheduler default-scheduler has not tried to schedule the pod yet: does it run?"


async def test_default_filters_apply_to_pods_of_any_scheduler(cluster: SchedulerCluster) -> None:
    cluster.pod("theirs", cpu="9", schedulerName="volcano")
    explanation = await explainer(cluster).explain(Target("pod", "theirs", "default"))
    assert explanation["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert (explanation["scheduler"], explanation["queue"]) == ("volcano", "")
    assert any("--config" in note for note in explanation["notes"])


async def test_configuration_without_the_pods_profile_is_reported(cluster: SchedulerCluster) -> None:
    cluster.pod("theirs", schedulerName="volcano")
    configuration = SchedulerConfiguration(profiles=(Profile(scheduler_name="mine"),))
    explanation = await explainer(cluster, configuration).explain(Target("pod", "theirs", "default"))
    assert explanation["summary"] == 'the pod waits for another scheduler, "volcano"'


H100 = 'device.attributes["gpu.example.com"].model == "H100"'
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


def publish(cluster: SchedulerCluster, *objects: JSON) -> None:
    for obj in objects:
        resource = {"DeviceClass": DEVICE_CLASSES, "ResourceSlice": RESOURCE_SLICES, "ResourceClaim": RESOURCE_CLAIMS}
        cluster.put(resource[obj["kind"]], {**obj, "metadata": {"name": obj["metadata"]["name"]}})


@pytest.fixture
async def cluster_with_devices(cluster: SchedulerCluster) -> SchedulerCluster:
    """A cluster with an A100 on node-0, which the claim "taken" has, and an H100 on node-1."""
    publish(
        cluster,
        device_class(extendedResourceName="example.com/gpu"),
        device_slice("node-0", device("a100", attributes={"model": "A100"})),
        device_slice("node-1", device("h100", attributes={"model": "H100"})),
        claim("taken", status=allocated(("node-0", "a100"), node="node-0")),
        claim("free"),
        claim("fast", request("r", "gpu", H100, count=2)),
    )
    return cluster


def pod_with_claim(cluster: SchedulerCluster, name: str) -> None:
    cluster.pod("gpu", resourceClaims=[{"name": "gpu", "resourceClaimName": name}])


async def test_devices_of_the_cluster_are_allocated_in_the_explanation(cluster_with_devices: SchedulerCluster) -> None:
    pod_with_claim(cluster_with_devices, "free")
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "gpu", "default"))
    assert explanation["summary"].startswith("the pod fits on 1 of 2 nodes now")
    assert {node["node"]: [obstacle["reasons"] for obstacle in node["obstacles"]] for node in explanation["nodes"]} == {
        "node-0": [("cannot allocate all claims",)],
        "node-1": [],
    }


async def test_claim_without_matching_devices_is_explained(cluster_with_devices: SchedulerCluster) -> None:
    pod_with_claim(cluster_with_devices, "fast")
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "gpu", "default"))
    assert explanation["message"] == "0/2 nodes are available: 2 cannot allocate all claims."
    assert explanation["details"] == [
        "default/fast, request r: needs 2 devices; at most 1 of one node can be used; other devices: 1 rejected by the "
        f"selector of claim default/fast: {H100}"
    ]


async def test_claim_that_does_not_exist_is_explained(cluster_with_devices: SchedulerCluster) -> None:
    pod_with_claim(cluster_with_devices, "missing")
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "gpu", "default"))
    assert explanation["summary"] == "the pod is gated by DynamicResources"
    assert explanation["message"] == 'could not find ResourceClaim "default/missing"'


async def test_devices_that_provide_an_extended_resource_are_explained(cluster_with_devices: SchedulerCluster) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}
    cluster_with_devices.pod("gpu", containers=[container])
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "gpu", "default"))
    assert explanation["summary"].startswith("the pod fits on 1 of 2 nodes now")


async def test_devices_are_not_checked_if_claims_cannot_be_listed(cluster_with_devices: SchedulerCluster) -> None:
    pod_with_claim(cluster_with_devices, "fast")
    forbid(cluster_with_devices, CLAIMS)
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "gpu", "default"))
    assert explanation["summary"].startswith("the pod fits on 2 of 2 nodes now")
    assert (
        "Claims and devices are not checked, because the user may not list resourceclaims.resource.k8s.io."
        in explanation["notes"]
    )


async def test_claims_are_not_listed_for_pods_without_devices(cluster_with_devices: SchedulerCluster) -> None:
    cluster_with_devices.pod("pending")
    forbid(cluster_with_devices, CLAIMS)
    explanation = await explainer(cluster_with_devices).explain(Target("pod", "pending", "default"))
    assert not any("devices" in note for note in explanation["notes"])


async def test_devices_of_a_pod_group_are_checked(cluster_with_groups: SchedulerCluster) -> None:
    publish(cluster_with_groups, device_class(), device_slice("node-0", device("gpu")), claim("a"), claim("b"))
    cluster_with_groups.pod_group("train", min_count=2)
    for name in ("a", "b"):
        claims = [{"name": "gpu", "resourceClaimName": name}]
        cluster_with_groups.pod(name, resourceClaims=claims, schedulingGroup={"podGroupName": "train"})
    explanation = await explained_group(cluster_with_groups)
    assert explanation["summary"] == (
        "it cannot be scheduled: 1 of 2 pods fit; b: 0/2 nodes are available: 2 cannot allocate all claims."
    )
    assert (explanation["pod"]["pod"], cluster_with_groups.patches) == ("default/b", [])


async def test_missing_permission_to_list_nodes_is_an_error(cluster: SchedulerCluster) -> None:
    cluster.pod("pending")
    forbid(cluster, "/api/v1/nodes")
    with pytest.raises(ExceptionGroup) as raised:
        await explainer(cluster).explain(Target("pod", "pending", "default"))
    error = only_error(raised.value)
    assert str(error) == "cannot list nodes: the user may not"
    assert error.hint == "the user needs this permission; see kubectl auth can-i list nodes"


async def test_missing_permission_to_get_the_pod_is_an_error(cluster: SchedulerCluster) -> None:
    forbid(cluster, f"{PODS}/pending")
    with pytest.raises(UserError, match="cannot get pods: the user may not"):
        await explainer(cluster).explain(Target("pod", "pending", "default"))


async def test_permissions_that_the_pod_does_not_need_are_not_noted(cluster: SchedulerCluster) -> None:
    cluster.pod("pending")
    forbid(cluster, "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/csinodes")
    explanation = await explainer(cluster).explain(Target("pod", "pending", "default"))
    assert explanation["summary"] == "the pod fits on 2 of 2 nodes now; its next attempt is due"
    assert not any("may not list" in note for note in explanation["notes"])


ABSENCE = re.compile(
    r"not exist|no such|there is no|not found|could not find|non-existent|any example\.com|Insufficient"
)
GATES = gates_for(GROUPS, DEFAULT_FEATURE_GATES)
READ = (*lister_resources(GATES).values(), DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, NODES, PODS_RESOURCE)


@pytest.fixture
async def demanding(clock: Clock) -> SchedulerCluster:
    """A cluster whose pod "demanding" needs an object of every kind that is read, and fits."""
    cluster = SchedulerCluster(clock, GATES)
    cluster.node("node-0", labels={"kubernetes.io/hostname": "node-0"})
    cluster.put(NAMESPACES, {"metadata": {"name": "labelled", "labels": {"team": "a"}}})
    cluster.put(STORAGE_CLASSES, {"metadata": {"name": "now"}, "provisioner": "p", "volumeBindingMode": "Immediate"})
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "now"}
    source = {"csi": {"driver": "d.example.com", "volumeHandle": "h"}}
    reference = {"namespace": "default", "name": "data", "uid": "u"}
    cluster.put(PERSISTENT_VOLUMES, {"metadata": {"name": "pv"}, "spec": {**volume, **source, "claimRef": reference}})
    cluster.put(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {
                "name": "data",
                "namespace": "default",
                "uid": "u",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "volumeName": "pv",
                "storageClassName": "now",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    publish(
        cluster,
        device_class(extendedResourceName="example.com/gpu"),
        device_slice("node-0", device("a"), device("b")),
        claim("free"),
    )
    cluster.pod("peer", nodeName="node-0", metadata={"namespace": "labelled", "labels": {"app": "peer"}})
    term = {
        "labelSelector": {"matchLabels": {"app": "peer"}},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    cluster.pod_group("train", min_count=1)
    cluster.pod(
        "demanding",
        schedulingGroup={"podGroupName": "train"},
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        resourceClaims=[{"name": "gpu", "resourceClaimName": "free"}],
        containers=[{"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}],
    )
    return cluster


async def statements(cluster: SchedulerCluster, target: Target) -> str:
    """Return all texts of an explanation, or of the error."""
    explanation = ClusterExplanation(
        cluster.server.client,
        None,
        gates=GATES,
        clock=cluster.clock,
        rng=random.Random(1),
        report_progress=[].append,
    )
    try:
        document = await explanation.explain(target)
    except* UserError as failed:
        text = f"{only_error(failed)} {only_error(failed).hint}"
    else:
        text = json.dumps(document)
    return text


@pytest.mark.parametrize("target", [Target("pod", "demanding", "default"), Target("pod", "demanding"), GROUPS], ids=str)
async def test_demanding_pod_fits_with_all_permissions(demanding: SchedulerCluster, target: Target) -> None:
    text = await statements(demanding, target)
    assert "fits" in text
    assert "may not" not in text


@pytest.mark.parametrize("scope", ["cluster", "cluster and namespace"])
@pytest.mark.parametrize("target", [Target("pod", "demanding", "default"), GROUPS], ids=str)
@pytest.mark.parametrize("resource", READ, ids=lambda resource: resource.plural)
async def test_what_may_not_be_listed_is_never_absent(
    demanding: SchedulerCluster, resource: Resource[Any], target: Target, scope: str
) -> None:
    namespaced = [resource.path(namespace="default")] if resource.namespaced and scope != "cluster" else []
    forbid(demanding, resource.path(), *namespaced)
    text = await statements(demanding, target)
    assert not ABSENCE.search(text), text
    assert "fits" in text or "cannot list" in text, text


@pytest.mark.parametrize(
    ("resource", "plugins"),
    [
        (PERSISTENT_VOLUMES, "NodeVolumeLimits, VolumeBinding, VolumeZone are"),
        (PERSISTENT_VOLUME_CLAIMS, "NodeVolumeLimits is"),  # those of the pod's namespace are read
        (NAMESPACES, "InterPodAffinity is"),
        (DEVICE_CLASSES, "Claims and devices are"),
    ],
    ids=str,
)
async def test_what_is_not_checked_is_noted(demanding: SchedulerCluster, resource: Resource[Any], plugins: str) -> None:
    forbid(demanding, resource.path())
    text = await statements(demanding, Target("pod", "demanding", "default"))
    assert f"{plugins} not checked, because the user may not list {resource.group_resource}." in text
    assert "the pod fits on 1 of 1 nodes now, as far as the user may read the cluster" in text


async def test_missing_claim_is_known_without_other_permissions(demanding: SchedulerCluster) -> None:
    demanding.pod("lost", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}])
    forbid(demanding, STORAGE_CLASSES.path(), PERSISTENT_VOLUMES.path(), PERSISTENT_VOLUME_CLAIMS.path())
    text = await statements(demanding, Target("pod", "lost", "default"))
    assert "the claim other does not exist" in text
    assert "the pod fits" not in text


async def test_unbound_claim_is_known_although_volumes_are_not(demanding: SchedulerCluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    demanding.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "other"}, "spec": spec})
    demanding.pod("lost", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}])
    forbid(demanding, PERSISTENT_VOLUMES.path())
    text = await statements(demanding, Target("pod", "lost", "default"))
    assert '"summary": "the claim other is not bound: it names no StorageClass, and there is no default' in text


async def test_resource_that_the_server_does_not_serve_is_unknown(demanding: SchedulerCluster) -> None:
    def reject(method: str, path: str) -> StatusError | None:
        return StatusError(404, "NotFound", "") if path.partition("?")[0] == DEVICE_CLASSES.path() else None

    demanding.server.transport.reject = reject
    text = await statements(demanding, Target("pod", "demanding", "default"))
    reason = "the server does not serve deviceclasses.resource.k8s.io"
    assert f"Claims and devices are not checked, because {reason}." in text


@pytest.mark.parametrize(
    ("forbidden", "summary"),
    [
        ([], "the pod's spec.nodeName is gone, and there is no such node: nothing starts the pod, and the pod garbage "
         "collector deletes it"),
        (["/api/v1/nodes/gone"], "the pod is bound to gone"),
    ],
)  # fmt: skip
async def test_pod_with_the_name_of_a_missing_node(
    cluster: SchedulerCluster, forbidden: list[str], summary: str
) -> None:
    cluster.pod("stray", nodeName="gone")
    cluster.pod("running", nodeName="node-0")
    forbid(cluster, *forbidden)
    assert (await explainer(cluster).explain(Target("pod", "stray", "default")))["summary"] == summary
    running = await explainer(cluster).explain(Target("pod", "running", "default"))
    assert running["summary"] == "the pod is bound to node-0"


async def test_only_namespace_of_a_pod_is_selected(cluster: SchedulerCluster) -> None:
    cluster.pod("web-1", metadata={"namespace": "shop", **owned_by("StatefulSet", "web")})
    for target in (Target("pod", "web-1"), Target("statefulset", "web")):
        assert (await explainer(cluster).explain(target))["pod"] == "shop/web-1"
    cluster.pod("web-1", metadata={"namespace": "other", **owned_by("StatefulSet", "web")})
    for target in (Target("pod", "web-1"), Target("statefulset", "web")):
        with pytest.raises(UserError, match="exists in several namespaces: other, shop"):
            await explainer(cluster).explain(target)


async def test_missing_owner_is_reported_with_similar_names(cluster: SchedulerCluster) -> None:
    cluster.pod("web-1", metadata={"namespace": "shop", **owned_by("StatefulSet", "web")})
    with pytest.raises(UserError, match="no statefulset wep in any namespace") as raised:
        await explainer(cluster).explain(Target("statefulset", "wep"))
    assert raised.value.hint == "did you mean web?"


async def test_pod_that_may_only_be_read_in_another_namespace(cluster: SchedulerCluster) -> None:
    forbid(cluster, "/api/v1/pods")
    with pytest.raises(UserError, match="no pod p in namespace default that the user may get") as raised:
        await explainer(cluster).explain(Target("pod", "p"))
    assert raised.value.hint == "choose a namespace with -n: the user may not"


async def test_progress_is_reported_while_lists_take_long(cluster: SchedulerCluster) -> None:
    cluster.pod("pending")
    progress: list[str] = []

    async def slow(request: SentRequest) -> None:
        if request.target.startswith("/api/v1/pods"):
            await asyncio.sleep(5.0)

    cluster.server.transport.before_request = slow
    await explainer(cluster, progress=progress).explain(Target("pod", "pending", "default"))
    assert [text.partition(": ")[2] for text in progress] == ["2 nodes, 0 pods"] * 2


def owned_by(kind: str, name: str) -> dict[str, object]:
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    return {"ownerReferences": [reference]}


async def test_first_pending_pod_of_an_owner_is_explained(cluster: SchedulerCluster) -> None:
    cluster.pod("db-0", nodeName="node-0", metadata=owned_by("StatefulSet", "db"))
    cluster.pod("db-1", cpu="9", metadata=owned_by("StatefulSet", "db"))
    cluster.pod("other-0", cpu="9", metadata=owned_by("StatefulSet", "other"))
    explanation = await explainer(cluster).explain(Target("statefulset", "db", "default"))
    assert explanation["owner"] == {"name": "statefulset default/db", "pods": 2, "pending": 1}
    assert (explanation["pod"], explanation["message"]) == (
        "default/db-1",
        "0/2 nodes are available: 2 Insufficient cpu.",
    )


async def test_owner_without_pending_pods_is_not_explained(cluster: SchedulerCluster) -> None:
    cluster.pod("db-0", nodeName="node-0", metadata=owned_by("StatefulSet", "db"))
    explanation = await explainer(cluster).explain(Target("statefulset", "db", "default"))
    assert explanation == {"owner": {"name": "statefulset default/db", "pods": 1, "pending": 0}}


async def test_jobs_of_a_cron_job_that_may_not_be_listed(cluster: SchedulerCluster) -> None:
    forbid(cluster, "/apis/batch/v1/namespaces/default/jobs")
    with pytest.raises(UserError, match="cannot list jobs: "):
        await explainer(cluster).explain(Target("cronjob", "nightly", "default"))


async def test_missing_pod_is_reported_with_similar_names(cluster: SchedulerCluster) -> None:
    cluster.pod("web-1")
    with pytest.raises(UserError, match="no pod web in namespace default") as raised:
        await explainer(cluster).explain(Target("pod", "web", "default"))
    assert raised.value.hint == "did you mean web-1?"
