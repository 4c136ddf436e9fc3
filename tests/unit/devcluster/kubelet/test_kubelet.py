"""Kubelets in virtual time: lifecycle of pods on simulated nodes, with and without annotations."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.kubelet import Kubelets
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL, NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import EVENTS, NAMESPACES, NODES, PODS
from support.simulation.simulated_cluster import SimulatedCluster, container

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]


def with_requests(**requests: str) -> list[JSON]:
    return [container("web", resources={"requests": requests})]


async def test_bound_pod_starts_after_delay_and_becomes_ready():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(0.9)
        assert cluster.status()["phase"] == "Pending"
        assert cluster.status()["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert cluster.conditions()["PodReadyToStartContainers"] == ("False", "")
        await asyncio.sleep(0.2)
        status = cluster.status()
        assert status["phase"] == "Running"
        assert cluster.conditions() == {
            "PodReadyToStartContainers": ("True", ""),
            "Initialized": ("True", ""),
            "Ready": ("True", ""),
            "ContainersReady": ("True", ""),
            "PodScheduled": ("True", ""),
        }
        assert status["podIP"].startswith("10.128.0.")
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["hostIPs"] == [{"ip": status["hostIP"]}]
        assert status["startTime"] == "2026-01-01T00:00:00Z"
        assert status["qosClass"] == "BestEffort"
        assert status["observedGeneration"] == 1
        (web,) = status["containerStatuses"]
        assert web["ready"]
        assert web["started"]
        assert web["restartCount"] == 0
        assert web["image"] == "docker.io/library/nginx:1.27"
        assert web["imageID"].startswith("docker.io/library/nginx@sha256:")
        assert web["containerID"].startswith("containerd://")
        assert web["state"] == {"running": {"startedAt": "2026-01-01T00:00:01Z"}}


async def test_start_delays_are_spread_randomly():
    async with SimulatedCluster(start_delay_spread_seconds=0.5, events=False).running() as cluster:
        for number in range(20):
            cluster.bind(f"web-{number}")
        await asyncio.sleep(1.0)
        started = sum(cluster.status(f"web-{number}")["phase"] == "Running" for number in range(20))
        assert 0 < started < 20
        await asyncio.sleep(0.6)
        assert all(cluster.ready(f"web-{number}") for number in range(20))
        assert len({cluster.status(f"web-{number}")["podIP"] for number in range(20)}) == 20


async def test_unbound_pod_stays_pending():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(node="")
        await asyncio.sleep(100)
        assert cluster.status()["phase"] == "Pending"


async def test_pod_becomes_ready_after_probe_delays():
    probe = {"initialDelaySeconds": 5, "periodSeconds": 3, "successThreshold": 2}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", readinessProbe=probe), container("log")])
        await asyncio.sleep(1.5)
        assert cluster.status()["phase"] == "Running"
        assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
        assert [status["ready"] for status in cluster.status()["containerStatuses"]] == [False, True]
        await asyncio.sleep(7)
        assert not cluster.ready()
        await asyncio.sleep(1)
        assert cluster.ready()


async def test_failing_liveness_probe_restarts_container():
    probe = {"exec": {"command": ["/bin/false"]}, "initialDelaySeconds": 5, "periodSeconds": 2, "failureThreshold": 2}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", livenessProbe=probe), container("log")])
        await asyncio.sleep(7.5)
        assert cluster.ready()
        await asyncio.sleep(1)
        web, log = cluster.status()["containerStatuses"]
        assert (web["restartCount"], log["restartCount"]) == (1, 0)
        assert web["lastState"]["terminated"]["exitCode"] == 143
        assert ("Unhealthy", "Liveness probe failed: ") in cluster.events()
        assert ("Killing", "Container web failed liveness probe, will be restarted") in cluster.events()


async def test_failing_startup_probe_ends_pod_that_is_not_restarted():
    probe = {"exec": {"command": ["/bin/false"]}, "failureThreshold": 1}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", startupProbe=probe)], restartPolicy="Never")
        await asyncio.sleep(2)
        assert cluster.status()["phase"] == "Failed"
        assert ("Killing", "Container web failed startup probe") in cluster.events()


async def test_pod_with_failing_readiness_probe_is_never_ready():
    probe = {"exec": {"command": ["/bin/false"]}}
    async with SimulatedCluster(probe_delays=False).running() as cluster:
        cluster.bind(containers=[container("web", readinessProbe=probe)])
        await asyncio.sleep(100)
        assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
        assert cluster.status()["containerStatuses"][0]["started"]
        assert cluster.events().count(("Unhealthy", "Readiness probe failed: ")) == 1


async def test_pod_is_ready_only_when_readiness_gates_are_true():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(readinessGates=[{"conditionType": "example.com/lb"}])
        await asyncio.sleep(2)
        assert cluster.conditions()["ContainersReady"] == ("True", "")
        assert cluster.conditions()["Ready"] == ("False", "ReadinessGatesNotReady")
        status = cluster.status()
        cluster.change(
            status={**status, "conditions": [*status["conditions"], {"type": "example.com/lb", "status": "True"}]}
        )
        await asyncio.sleep(0.1)
        assert cluster.ready()
        assert cluster.conditions()["example.com/lb"] == ("True", "")


async def test_init_container_completes_and_sidecar_keeps_running():
    inits = [container("migrate"), container("proxy", restartPolicy="Always")]
    async with SimulatedCluster().running() as cluster:
        cluster.bind(initContainers=inits)
        await asyncio.sleep(0.5)
        assert cluster.conditions()["Initialized"] == ("False", "ContainersNotInitialized")
        await asyncio.sleep(1.5)
        migrate, proxy = cluster.status()["initContainerStatuses"]
        assert migrate["state"]["terminated"]["reason"] == "Completed"
        assert migrate["ready"]
        assert "running" in proxy["state"]
        assert proxy["started"]
        assert cluster.ready()


async def test_pod_with_run_seconds_succeeds_and_frees_resources():
    async with SimulatedCluster(capacity={"cpu": "1", "memory": "1Gi", "pods": "10"}).running() as cluster:
        annotations = {"run-seconds": "30"}
        cluster.bind("job", annotations=annotations, restartPolicy="Never", containers=with_requests(cpu="1"))
        await asyncio.sleep(20)
        assert cluster.ready("job")
        await asyncio.sleep(12)
        assert cluster.status("job")["phase"] == "Succeeded"
        assert cluster.conditions("job")["Ready"] == ("False", "PodCompleted")
        cluster.bind("next", containers=with_requests(cpu="1"))
        await asyncio.sleep(2)
        assert cluster.ready("next")


async def test_pod_with_exit_code_fails():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "5", "exit-code": "3"}, restartPolicy="Never")
        await asyncio.sleep(7)
        assert cluster.status()["phase"] == "Failed"
        terminated = cluster.status()["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")
        assert cluster.conditions()["Ready"] == ("False", "PodFailed")
        cluster.bind("huge", annotations={"run-seconds": "5", "exit-code": "9" * 5000}, restartPolicy="Never")
        await asyncio.sleep(7)
        terminated = cluster.status("huge")["containerStatuses"][0]["state"]["terminated"]
        assert terminated["exitCode"] == 1  # as for every invalid value


async def test_crashing_container_is_restarted_with_back_off():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "1", "exit-code": "1"}, restartPolicy="OnFailure")
        await asyncio.sleep(2.5)  # started at 1, crashed at 2, restarted at once
        (web,) = cluster.status()["containerStatuses"]
        assert web["restartCount"] == 1
        assert web["lastState"]["terminated"]["exitCode"] == 1
        assert "running" in web["state"]
        await asyncio.sleep(1)  # crashed again at 3: ten seconds of back-off
        (web,) = cluster.status()["containerStatuses"]
        assert web["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert web["state"]["waiting"]["message"].startswith(
            "back-off 10s restarting failed container=web pod=web_default"
        )
        assert cluster.status()["phase"] == "Running"
        assert not cluster.ready()
        await asyncio.sleep(10)
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 2


async def test_pod_is_pending_while_image_pull_fails():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"image-pull-error": "not found"})
        await asyncio.sleep(2)
        (web,) = cluster.status()["containerStatuses"]
        assert web["state"]["waiting"] == {"reason": "ErrImagePull", "message": "not found"}
        assert cluster.status()["phase"] == "Pending"
        await asyncio.sleep(5)
        (web,) = cluster.status()["containerStatuses"]
        assert web["state"]["waiting"]["reason"] == "ImagePullBackOff"
        cluster.change(annotations={})
        await asyncio.sleep(1)
        assert cluster.ready()
        assert ("Failed", "Error: ErrImagePull") in cluster.events()


async def test_not_ready_annotation_keeps_running_pod_unready():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"not-ready": "true"})
        await asyncio.sleep(60)
        assert cluster.status()["phase"] == "Running"
        assert not cluster.ready()
        cluster.change(annotations={})
        await asyncio.sleep(0.1)
        assert cluster.ready()


async def test_start_delay_annotation_overrides_settings():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"start-delay-seconds": "50"})
        await asyncio.sleep(49)
        assert cluster.status()["phase"] == "Pending"
        await asyncio.sleep(2)
        assert cluster.ready()


@pytest.mark.parametrize(
    ("capacity", "requests", "reason", "message"),
    [
        pytest.param(
            {"cpu": "1", "memory": "1Gi", "pods": "10"},
            {"cpu": "600m"},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 600, capacity: 1000",
            id="cpu",
        ),
        pytest.param(
            {"cpu": "4", "memory": "1Gi", "pods": "10"},
            {"memory": "600Mi"},
            "OutOfmemory",
            "Pod was rejected: Node didn't have enough resource: memory, requested: 629145600, used: 629145600, "
            "capacity: 1073741824",
            id="memory",
        ),
        pytest.param(
            {"cpu": "4", "memory": "1Gi", "pods": "1"},
            {},
            "OutOfpods",
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
            id="pods",
        ),
    ],
)
async def test_pod_that_exceeds_allocatable_is_rejected(capacity, requests, reason, message):
    async with SimulatedCluster(capacity=capacity).running() as cluster:
        cluster.bind("first", containers=with_requests(**requests))
        cluster.bind("second", containers=with_requests(**requests))
        await asyncio.sleep(3)
        assert cluster.ready("first")
        status = cluster.status("second")
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", reason, message)
        cluster.delete("first")
        await asyncio.sleep(1)
        cluster.bind("third", containers=with_requests(**requests))
        await asyncio.sleep(3)
        assert cluster.ready("third")
        cluster.delete("second")
        await asyncio.sleep(1)
        assert cluster.pod("second") is None


async def test_pod_with_port_conflict_or_wrong_node_is_rejected():
    ports = [container("web", ports=[{"containerPort": 80, "hostPort": 8080}])]
    async with SimulatedCluster().running() as cluster:
        cluster.bind("first", containers=ports)
        cluster.bind("second", containers=ports)
        cluster.bind("third", nodeSelector={"disk": "ssd"})
        required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        cluster.bind("fourth", affinity=affinity)
        await asyncio.sleep(3)
        assert cluster.ready("first")
        assert cluster.status("second")["reason"] == "NodePorts"
        assert cluster.status("third")["reason"] == "NodeAffinity"
        assert cluster.status("fourth")["reason"] == "NodeAffinity"


async def test_deleted_pod_stops_and_is_removed():
    async with SimulatedCluster(stop_delay_seconds=5.0).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        cluster.delete()
        await asyncio.sleep(4.5)
        assert cluster.pod() is not None
        await asyncio.sleep(1)
        assert cluster.pod() is None
        assert ("Killing", "Stopping container web") in cluster.events()


async def test_grace_period_limits_stop_delay_and_can_be_shortened():
    async with SimulatedCluster(stop_delay_seconds=100.0).running() as cluster:
        cluster.bind("bounded")
        cluster.bind("shortened")
        await asyncio.sleep(2)
        cluster.delete("bounded", grace=10)
        cluster.delete("shortened", grace=60)
        await asyncio.sleep(9)
        cluster.delete("shortened", grace=0)
        await asyncio.sleep(0.1)
        assert cluster.pod("shortened") is None
        assert cluster.pod("bounded") is not None
        await asyncio.sleep(1)
        assert cluster.pod("bounded") is None


async def test_pod_deleted_before_start_is_removed_at_once():
    async with SimulatedCluster(start_delay_seconds=50.0).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        cluster.delete()
        await asyncio.sleep(0.1)
        assert cluster.pod() is None


async def test_stopped_pod_with_finalizer_has_final_phase():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(finalizers=("example.com/keep",))
        await asyncio.sleep(2)
        cluster.delete()
        await asyncio.sleep(2)
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Succeeded"
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_changed_image_restarts_only_its_container():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web"), container("log")])
        await asyncio.sleep(2)
        pod = cluster.pod()
        assert pod is not None
        containers = [container("web", image="nginx:1.28"), container("log")]
        cluster.change(spec={**pod["spec"], "containers": containers})
        await asyncio.sleep(0.1)
        web, log = cluster.status()["containerStatuses"]
        assert (web["image"], web["restartCount"]) == ("docker.io/library/nginx:1.28", 1)
        assert log["restartCount"] == 0
        assert ("Killing", "Container web definition changed, will be restarted") in cluster.events()


async def test_deletion_in_same_loop_turn_as_start_stops_pod():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(0.999999)
        cluster.delete()  # the start is due in the same turn of the loop
        await asyncio.sleep(0.5)
        assert cluster.pod() is None


async def test_pod_fails_after_active_deadline():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(activeDeadlineSeconds=10)
        await asyncio.sleep(12)
        assert (cluster.status()["phase"], cluster.status()["reason"]) == ("Failed", "DeadlineExceeded")


async def test_container_events_are_recorded_unless_disabled():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        assert cluster.events() == [
            ("Pulled", 'Container image "nginx:1.27" already present on machine and can be accessed by the pod'),
            ("Created", "Container created"),
            ("Started", "Container started"),
        ]
        event = cluster.store.list(EVENTS)[0]
        assert event["involvedObject"]["fieldPath"] == "spec.containers{web}"
        assert event["source"] == {"component": "kubelet", "host": "node-0"}
    async with SimulatedCluster(events=False).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        assert cluster.ready()
        assert cluster.events() == []


async def test_running_pod_of_earlier_process_is_unchanged():
    async with SimulatedCluster().running() as first:
        first.bind()
        await asyncio.sleep(2)
        pod, node = first.pod(), first.node()
        assert pod is not None
    second = SimulatedCluster()
    second.store.create(NODES, node)
    second.store.create(PODS, pod)
    async with second.running():
        await asyncio.sleep(5)
        assert second.status() == pod["status"]
        second.bind("other")
        await asyncio.sleep(2)
        assert second.status("other")["podIP"] != pod["status"]["podIP"]


# --- annotations and labels


@pytest.mark.parametrize("address", ["fd00::7", "not an address"])
async def test_running_pod_with_foreign_address_keeps_it_and_stops(address):
    cluster = SimulatedCluster()
    pod = cluster.bind()
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    cluster.store.update(PODS, {**pod, "status": {**pod["status"], **status}})
    async with cluster.running():
        await asyncio.sleep(1)
        assert cluster.ready()
        assert cluster.status()["podIP"] == address
        cluster.delete()
        await asyncio.sleep(31)
        assert cluster.pod() is None


async def test_image_pull_seconds_delays_start():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"image-pull-seconds": "20"})
        await asyncio.sleep(19)
        assert cluster.status()["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
        assert ("Pulling", 'Pulling image "nginx:1.27"') in cluster.events()
        await asyncio.sleep(3)
        assert cluster.ready()
        assert ("Pulled", 'Successfully pulled image "nginx:1.27" in 20s (20s including waiting).') in cluster.events()


async def test_crashes_annotation_limits_number_of_crashes():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"crashes": "2"})
        await asyncio.sleep(5)
        status = cluster.status()["containerStatuses"][0]
        assert status["restartCount"] == 1
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["exitCode"] == 1
        await asyncio.sleep(60)
        status = cluster.status()["containerStatuses"][0]
        assert status["restartCount"] == 2
        assert cluster.ready()


async def test_back_off_is_reset_after_ten_minutes_without_crash():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "700", "exit-code": "1"})
        await asyncio.sleep(702)
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 1
        await asyncio.sleep(701)
        status = cluster.status()["containerStatuses"][0]
        assert status["restartCount"] == 2
        assert "running" in status["state"]


async def test_pods_of_jobs_complete_unless_annotated():
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]

    def owned(cluster: SimulatedCluster, name: str, **annotations: str) -> None:
        cluster.bind(name, restartPolicy="Never", annotations=annotations)
        pod = cluster.pod(name)
        assert pod is not None
        cluster.store.update(PODS, {**pod, "metadata": {**pod["metadata"], "ownerReferences": owner}})

    async with SimulatedCluster().running() as cluster:
        owned(cluster, "done")
        owned(cluster, "longer", **{"run-seconds": "50"})
        owned(cluster, "fails", **{"exit-code": "3"})
        await asyncio.sleep(3)
        assert cluster.status("done")["phase"] == "Succeeded"
        assert cluster.status("longer")["phase"] == "Running"
        assert cluster.status("fails")["phase"] == "Failed"
        assert cluster.status("fails")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_job_pod_status_when_it_completes():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "2"}, restartPolicy="OnFailure")
        await asyncio.sleep(2)
        assert cluster.ready()
        await asyncio.sleep(2)
        assert cluster.phase() == "Succeeded"
        assert cluster.conditions() == {
            "PodReadyToStartContainers": ("False", ""),
            "Initialized": ("True", "PodCompleted"),
            "Ready": ("False", "PodCompleted"),
            "ContainersReady": ("False", "PodCompleted"),
            "PodScheduled": ("True", ""),
        }
        (web,) = cluster.status()["containerStatuses"]
        terminated = web["state"]["terminated"]
        assert terminated == {
            "containerID": web["containerID"],
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "2026-01-01T00:00:01Z",
            "finishedAt": "2026-01-01T00:00:03Z",
        }
        assert (web["ready"], web["started"], web["restartCount"], web["lastState"]) == (False, False, 0, {})
        cluster.delete()
        await asyncio.sleep(0.1)
        assert cluster.pod() is None


async def test_containers_exit_on_their_own():
    annotations = {"run-seconds": "2", "run-seconds.log": "4", "exit-code.log": "7"}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations=annotations, restartPolicy="Never", containers=[container("web"), container("log")])
        await asyncio.sleep(4)
        assert cluster.phase() == "Running"
        assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
        await asyncio.sleep(2)
        assert cluster.phase() == "Failed"
        codes = [status["state"]["terminated"]["exitCode"] for status in cluster.status()["containerStatuses"]]
        assert codes == [0, 7]


async def test_only_failed_container_restarts_on_failure():
    annotations = {"run-seconds": "1", "crashes.log": "2", "run-seconds.log": "1"}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(
            annotations=annotations, restartPolicy="OnFailure", containers=[container("web"), container("log")]
        )
        await asyncio.sleep(4)
        web, log = cluster.status()["containerStatuses"]
        assert (web["restartCount"], web["state"]["terminated"]["exitCode"]) == (0, 0)
        assert log["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert cluster.phase() == "Running"
        await asyncio.sleep(15)
        web, log = cluster.status()["containerStatuses"]
        assert (web["restartCount"], log["restartCount"]) == (0, 2)
        assert log["lastState"]["terminated"]["exitCode"] == 1


async def test_init_container_that_fails_fails_pod():
    annotations = {"run-seconds.migrate": "2", "exit-code.migrate": "3"}
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations=annotations, restartPolicy="Never", initContainers=[container("migrate")])
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        assert cluster.status()["initContainerStatuses"][0]["state"] == {
            "running": {"startedAt": "2026-01-01T00:00:01Z"}
        }
        assert cluster.conditions()["Initialized"] == ("False", "ContainersNotInitialized")
        await asyncio.sleep(2)
        assert cluster.phase() == "Failed"
        assert cluster.status()["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        assert cluster.status()["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
        assert cluster.conditions()["Initialized"] == ("False", "ContainersNotInitialized")
        assert cluster.conditions()["Ready"] == ("False", "PodFailed")


async def test_init_container_is_restarted_until_it_succeeds():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"crashes.migrate": "2"}, initContainers=[container("migrate")])
        await asyncio.sleep(5)
        (migrate,) = cluster.status()["initContainerStatuses"]
        assert migrate["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert cluster.phase() == "Pending"
        await asyncio.sleep(10)
        (migrate,) = cluster.status()["initContainerStatuses"]
        assert (migrate["restartCount"], migrate["state"]["terminated"]["exitCode"]) == (2, 0)
        assert cluster.ready()


async def test_sidecar_ends_after_main_containers():
    inits = [container("proxy", restartPolicy="Always")]
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "5"}, restartPolicy="Never", initContainers=inits)
        await asyncio.sleep(4)
        assert "running" in cluster.status()["initContainerStatuses"][0]["state"]
        await asyncio.sleep(4)
        assert cluster.phase() == "Succeeded"
        terminated = cluster.status()["initContainerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["finishedAt"]) == (0, "2026-01-01T00:00:06Z")


async def test_stopped_pod_of_unfinished_work_fails():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "60"}, restartPolicy="Never", finalizers=("example.com/keep",))
        await asyncio.sleep(3)
        cluster.delete()
        await asyncio.sleep(2)
        terminated = cluster.status()["containerStatuses"][0]["state"]["terminated"]
        assert (cluster.phase(), terminated["exitCode"], terminated["reason"]) == ("Failed", 143, "Error")


async def test_deadline_applies_while_image_pull_fails_and_can_be_shortened():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"image-pull-error": "not found"}, activeDeadlineSeconds=1000)
        await asyncio.sleep(5)
        pod = cluster.pod()
        assert pod is not None
        cluster.change(spec={**pod["spec"], "activeDeadlineSeconds": 8})
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        await asyncio.sleep(2)
        assert (cluster.phase(), cluster.status()["reason"]) == ("Failed", "DeadlineExceeded")


async def test_labels_work_like_annotations_with_lower_precedence():
    labels = {"kubeloop.dev/start-delay-seconds": "30"}
    async with SimulatedCluster().running() as cluster:
        cluster.bind("labelled", labels=labels)
        cluster.bind("both", labels=labels, annotations={"start-delay-seconds": "5"})
        await asyncio.sleep(6)
        assert cluster.ready("both")
        assert not cluster.ready("labelled")
        await asyncio.sleep(25)
        assert cluster.ready("labelled")


async def test_jitter_annotation_varies_delays_reproducibly():
    async def ready_times() -> list[float]:
        async with SimulatedCluster().running() as cluster:
            for number in range(20):
                cluster.bind(f"web-{number}", annotations={"start-delay-seconds": "100", "jitter": "0.5"})
            begin, started = asyncio.get_running_loop().time(), {}
            while len(started) < 20:
                await asyncio.sleep(1)
                for number in range(20):
                    if cluster.ready(f"web-{number}"):
                        started.setdefault(number, asyncio.get_running_loop().time() - begin)
            return sorted(started.values())

    first = await ready_times()
    assert 49 <= first[0] < 80
    assert 120 < first[-1] <= 152
    assert first == await ready_times()


async def test_invalid_annotations_are_reported_in_events():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"run-seconds": "soon", "exit-code": "300"})
        await asyncio.sleep(2)
        messages = [message for reason, message in cluster.events() if reason == "InvalidAnnotation"]
        assert len(messages) == 2
        assert "kubeloop.dev/run-seconds: 'soon' is not a number of 0 or more; it is ignored" in messages


# --- kubelets without the other parts of the simulation


def kubelets_and_node(cluster: SimulatedCluster, **annotations: str) -> tuple[Kubelets, SimulatedNode]:
    simulation = Simulation(cluster.store, NodeSettings(), clock=cluster.clock, rng=random.Random(1))
    metadata = {"name": "node-0", "uid": "n", "annotations": annotations}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"metadata": metadata, "spec": {"podCIDR": "10.128.0.0/24"}, "status": {"allocatable": allocatable}}
    return Kubelets(simulation, lambda change: None, quiet=True), SimulatedNode(node, 0)


async def test_kubelet_admits_pod_and_counts_its_requests():
    cluster = SimulatedCluster()
    kubelets, node = kubelets_and_node(cluster)
    pod = cluster.bind(containers=with_requests(cpu="1"))
    kubelets.add_pod(pod, node, staged=False)
    assert node.used == {"cpu": 1000, "pods": 1}
    kubelets.forget("uid-web")
    assert node.used == {"cpu": 0, "pods": 0}
    assert kubelets.get("uid-web") is None


async def test_kubelet_of_unreachable_node_observes_pod_at_recovery():
    cluster = SimulatedCluster()
    kubelets, node = kubelets_and_node(cluster, **{ANNOTATION_FAIL: "unreachable"})
    kubelets.add_pod(cluster.bind(nodeSelector={"disk": "ssd"}), node, staged=False)
    assert cluster.phase() == "Pending"
    node.refresh({**node.object, "metadata": {**node.object["metadata"], "annotations": {}}})
    kubelets.resume(node)
    assert cluster.status()["reason"] == "NodeAffinity"


async def test_kubelet_does_not_control_staged_pod():
    cluster = SimulatedCluster()
    kubelets, node = kubelets_and_node(cluster)
    kubelets.add_pod(cluster.bind(nodeSelector={"disk": "ssd"}), node, staged=True)
    assert cluster.phase() == "Pending"
    pod = kubelets.get("uid-web")
    assert pod is not None
    assert pod.next_due() is None


def recorded_changes(cluster: SimulatedCluster) -> list[tuple[str, Any]]:
    """Return a list that receives (type of the change, Ready condition and its reason, container states)."""
    changes: list[tuple[str, Any]] = []

    def record(change: Change) -> None:
        status = change.now.object["status"]
        ready = [condition for condition in status["conditions"] if condition["type"] == "Ready"]
        state = "".join(next(iter(entry["state"])) for entry in status.get("containerStatuses", ()))
        changes.append((change.type, (ready[0]["status"], ready[0].get("reason", ""), state)))

    cluster.store.subscribe(PODS, record)
    return changes


async def test_deleted_pod_is_not_ready_then_terminated_then_removed():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        changes = recorded_changes(cluster)
        cluster.delete()
        await asyncio.sleep(1)
        assert changes == [
            ("MODIFIED", ("True", "", "running")),  # the deletion itself
            ("MODIFIED", ("False", "ContainersNotReady", "running")),
            ("MODIFIED", ("False", "PodCompleted", "terminated")),
            ("DELETED", ("False", "PodCompleted", "terminated")),
        ]


async def test_containers_stop_at_once_in_a_namespace_in_deletion():
    async with SimulatedCluster(stop_delay_seconds=5.0).running() as cluster:
        cluster.bind("default")
        cluster.bind("annotated", annotations={"stop-seconds": "3"})
        await asyncio.sleep(2)
        cluster.store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "uid-default"}})
        cluster.change_metadata(NAMESPACES, "default", deletionTimestamp="2026-01-01T00:00:02Z")
        changes = recorded_changes(cluster)
        cluster.delete("default")
        await asyncio.sleep(0.1)
        assert [change[1] for change in changes] == [
            ("True", "", "running"),
            ("False", "ContainersNotReady", "running"),
            ("False", "PodCompleted", "terminated"),
            ("False", "PodCompleted", "terminated"),
        ]
        assert cluster.pod("default") is None
        cluster.delete("annotated")
        await asyncio.sleep(2.5)
        assert cluster.pod("annotated") is not None
        await asyncio.sleep(1)
        assert cluster.pod("annotated") is None


@pytest.mark.parametrize(
    ("stop_seconds", "grace", "exit_code", "reason", "phase"),
    [("1", 30, 0, "Completed", "Succeeded"), ("60", 30, 137, "Error", "Failed"), ("1", 0, 0, "Completed", "Succeeded")],
    ids=["within the grace period", "killed", "minimum of two seconds"],
)
async def test_exit_code_of_stopped_container(stop_seconds: str, grace: int, exit_code: int, reason: str, phase: str):
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"stop-seconds": stop_seconds}, finalizers=("example.com/keep",))
        await asyncio.sleep(2)
        cluster.delete(grace=grace)
        await asyncio.sleep(40)
        terminated = cluster.status()["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"], cluster.phase()) == (exit_code, reason, phase)


async def test_container_that_never_ran_ends_with_unknown_status():
    async with SimulatedCluster(start_delay_seconds=100.0).running() as cluster:
        cluster.bind(finalizers=("example.com/keep",))
        await asyncio.sleep(2)
        cluster.delete()
        await asyncio.sleep(40)
        assert cluster.phase() == "Failed"
        assert cluster.status()["containerStatuses"][0]["state"] == {
            "terminated": {
                "exitCode": 137,
                "reason": "ContainerStatusUnknown",
                "message": "The container could not be located when the pod was terminated",
                "startedAt": None,
                "finishedAt": None,
            }
        }


# --- refusals, ends by command, ephemeral containers ------------------------------------------------------------------


def waiting(cluster: SimulatedCluster, index: int = 0, field: str = "containerStatuses") -> JSON:
    """Return the waiting state of a container, {} if it does not wait."""
    state: JSON = cluster.status()[field][index]["state"]
    return state.get("waiting") or {}


async def test_invalid_image_waits_until_the_image_changes():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[{"name": "web", "image": "${REGISTRY}/app"}, container("ok")])
        await asyncio.sleep(2)
        assert waiting(cluster)["reason"] == "InvalidImageName"
        assert cluster.phase() == "Pending"
        assert cluster.status()["containerStatuses"][1]["ready"]
        assert ("Failed", "Error: InvalidImageName") in cluster.events()
        spec = (cluster.pod() or {})["spec"]
        cluster.change(spec={**spec, "containers": [{"name": "web", "image": "App"}, container("ok")]})
        await asyncio.sleep(1)
        assert "repository name (library/App)" in waiting(cluster)["message"]
        cluster.change(spec={**spec, "containers": [container("web"), container("ok")]})
        await asyncio.sleep(1)
        assert cluster.ready()
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 0


async def test_running_container_with_new_invalid_image_stops():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        spec = (cluster.pod() or {})["spec"]
        cluster.change(spec={**spec, "containers": [{"name": "web", "image": "App"}]})
        await asyncio.sleep(1)
        assert waiting(cluster)["reason"] == "InvalidImageName"
        assert "terminated" in cluster.status()["containerStatuses"][0]["lastState"]
        assert not cluster.ready()


async def test_missing_image_backs_off_and_holds_its_container_only():
    async with SimulatedCluster(missing_images=("registry.example.com/*",)).running() as cluster:
        missing = {"name": "web", "image": "registry.example.com/app:1"}
        cluster.bind(containers=[missing, container("ok")], initContainers=[container("init")])
        await asyncio.sleep(1.5)
        assert waiting(cluster)["reason"] == "ErrImagePull"
        await asyncio.sleep(3)
        assert waiting(cluster)["reason"] == "ImagePullBackOff"
        assert "running" in cluster.status()["containerStatuses"][1]["state"]
        assert ("BackOff", 'Back-off pulling image "registry.example.com/app:1"') in cluster.events()


async def test_missing_image_of_init_container_holds_the_pod():
    async with SimulatedCluster(missing_images=("bad",)).running() as cluster:
        cluster.bind(initContainers=[{"name": "init", "image": "bad", "imagePullPolicy": "Never"}])
        await asyncio.sleep(3)
        assert waiting(cluster, field="initContainerStatuses")["reason"] == "ErrImageNeverPull"
        assert waiting(cluster)["reason"] == "PodInitializing"


async def test_container_as_root_is_not_created():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(securityContext={"runAsNonRoot": True, "runAsUser": 0})
        await asyncio.sleep(2)
        message = 'container\'s runAsUser breaks non-root policy (pod: "web_default(uid-web)", container: web)'
        assert waiting(cluster) == {"reason": "CreateContainerConfigError", "message": message}
        assert ("Failed", f"Error: {message}") in cluster.events()


async def test_sub_path_expression_is_evaluated_anew_when_annotations_change():
    field = {"fieldRef": {"fieldPath": "metadata.annotations['kubeloop.dev/folder']"}}
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(FOLDER)"}
    containers = [container("web", env=[{"name": "FOLDER", "valueFrom": field}], volumeMounts=[mount])]
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=containers, volumes=[{"name": "v", "emptyDir": {}}])
        await asyncio.sleep(2)
        assert waiting(cluster) == {"reason": "CreateContainerConfigError", "message": "missing value for FOLDER"}
        cluster.change(annotations={"folder": "logs"})
        await asyncio.sleep(1)
        assert cluster.ready()


@pytest.mark.parametrize(
    ("command", "policy", "phase"),
    [
        (["/bin/false"], "Never", "Failed"),
        (["/bin/true"], "OnFailure", "Succeeded"),
        (["sh", "-c", "sleep 3; exit 0"], "Never", "Succeeded"),
        (["sleep", "1000"], "Never", "Running"),
    ],
)
async def test_pod_ends_as_its_command_says(command: list[str], policy: str, phase: str):
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", command=command)], restartPolicy=policy)
        await asyncio.sleep(3.9)
        assert cluster.phase() == phase if "sleep" not in command[-1] else cluster.phase() == "Running"
        await asyncio.sleep(1)
        assert cluster.phase() == phase


async def test_failing_command_crashes_repeatedly():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=[container("web", command=["sh", "-c", "exit 7"])])
        await asyncio.sleep(5)
        (status,) = cluster.status()["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["exitCode"] == 7


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"command_exits": False}, id="disabled"),
        pytest.param({"annotations": {"run-seconds": "100"}}, id="annotation precedes"),
    ],
)
async def test_command_does_not_end_the_container(fields: JSON):
    annotations = fields.pop("annotations", None)
    async with SimulatedCluster(**fields).running() as cluster:
        failing = [container("web", command=["/bin/false"])]
        cluster.bind(containers=failing, restartPolicy="Never", annotations=annotations)
        await asyncio.sleep(5)
        assert cluster.phase() == "Running"


async def test_failing_init_container_fails_the_pod():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(initContainers=[container("init", command=["/bin/false"])], restartPolicy="Never")
        await asyncio.sleep(3)
        assert cluster.phase() == "Failed"


HOOK = {"helm.sh/hook": "test"}


@pytest.mark.parametrize(
    ("policy", "complete", "annotations", "stdin", "phase"),
    [
        ("Never", False, {}, False, "Running"),
        ("Never", True, {}, False, "Succeeded"),
        ("OnFailure", True, {}, False, "Succeeded"),
        ("Always", True, {}, False, "Running"),
        ("Never", False, HOOK, False, "Succeeded"),
        ("Always", False, HOOK, False, "Running"),
        ("Never", False, {}, True, "Succeeded"),
    ],
)
async def test_completion_of_pods_without_controller(
    policy: str, annotations: JSON, phase: str, *, complete: bool, stdin: bool
):
    async with SimulatedCluster(complete_bare_pods=complete, start_delay_seconds=2.0).running() as cluster:
        cluster.bind(containers=[container("web", stdin=stdin)], restartPolicy=policy)
        cluster.change_metadata(PODS, "web", annotations=annotations)
        await asyncio.sleep(2.5)
        assert cluster.phase() == "Running"
        await asyncio.sleep(1)
        assert cluster.phase() == phase


async def test_pod_of_controller_is_no_bare_pod():
    owners = [{"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]
    async with SimulatedCluster(complete_bare_pods=True).running() as cluster:
        cluster.bind(restartPolicy="Never")
        cluster.change_metadata(PODS, "web", ownerReferences=owners)
        await asyncio.sleep(5)
        assert cluster.phase() == "Running"


@pytest.mark.parametrize(("policy", "phase"), [("OnFailure", "Succeeded"), ("Always", "Running")])
async def test_run_seconds_apply_after_crashes_if_the_pod_completes(policy: str, phase: str):
    async with SimulatedCluster().running() as cluster:
        cluster.bind(annotations={"crashes": "2", "run-seconds": "20"}, restartPolicy=policy)
        await asyncio.sleep(1 + 20 + 20 + 10 + 15)  # two crashes; a back-off before the second restart
        assert cluster.phase() == "Running"
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 2
        await asyncio.sleep(10)
        assert cluster.phase() == phase
        await asyncio.sleep(100)
        assert cluster.status()["containerStatuses"][0]["restartCount"] == 2


async def add_ephemeral(cluster: SimulatedCluster, **fields: Any) -> None:
    spec = (cluster.pod() or {})["spec"]
    cluster.change(spec={**spec, "ephemeralContainers": [container("debug", **fields)]})
    await asyncio.sleep(0.1)


def ephemeral_state(cluster: SimulatedCluster) -> JSON:
    (status,) = cluster.status()["ephemeralContainerStatuses"]
    state: JSON = status["state"]
    return state


async def test_ephemeral_container_runs_and_ends_with_its_pod():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        await add_ephemeral(cluster)
        assert "running" in ephemeral_state(cluster)
        assert cluster.status()["ephemeralContainerStatuses"][0]["ready"] is False
        assert cluster.ready()
        paths = [event["involvedObject"].get("fieldPath") for event in cluster.store.list(EVENTS)]
        assert "spec.ephemeralContainers{debug}" in paths
        await asyncio.sleep(100)
        assert "running" in ephemeral_state(cluster)
        cluster.delete()
        await asyncio.sleep(1)
        assert cluster.pod() is None


@pytest.mark.parametrize(
    ("fields", "code"), [({"command": ["sh", "-c", "exit 4"]}, 4), ({"stdin": True, "tty": True}, 0)]
)
async def test_ephemeral_container_ends_and_is_not_restarted(fields: JSON, code: int):
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        await add_ephemeral(cluster, **fields)
        await asyncio.sleep(30)
        assert ephemeral_state(cluster)["terminated"]["exitCode"] == code
        assert cluster.status()["ephemeralContainerStatuses"][0]["restartCount"] == 0
        assert cluster.ready()


async def test_ephemeral_container_starts_beside_a_failing_init_container():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(initContainers=[{"name": "init", "image": "Bad"}])
        await asyncio.sleep(2)
        await add_ephemeral(cluster)
        assert "running" in ephemeral_state(cluster)
        assert cluster.phase() == "Pending"


async def test_ephemeral_container_with_invalid_image_waits():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        await add_ephemeral(cluster, image="Bad")
        assert ephemeral_state(cluster)["waiting"]["reason"] == "InvalidImageName"


async def test_ephemeral_container_of_completed_pod_has_ended():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(restartPolicy="Never", annotations={"run-seconds": "10"})
        await asyncio.sleep(2)
        await add_ephemeral(cluster)
        await asyncio.sleep(20)
        assert cluster.phase() == "Succeeded"
        assert "terminated" in ephemeral_state(cluster)


def with_hook(**hook: Any) -> list[JSON]:
    return [container("web", lifecycle={"preStop": hook})]


@pytest.mark.parametrize(
    ("hook", "grace", "stops_after", "code"),
    [
        ({"sleep": {"seconds": 10}}, 30, 15, 0),
        ({"exec": {"command": ["sh", "-c", "sleep 10"]}}, 30, 15, 0),
        ({"httpGet": {"port": 80}}, 30, 5, 0),
        ({"sleep": {"seconds": 28}}, 30, 30, 137),  # killed at the end of the grace period
        ({"sleep": {"seconds": 60}}, 20, 22, 137),  # at least two seconds after the hook
        ({"sleep": {"seconds": 10}}, 0, 0, None),
    ],
)
async def test_pre_stop_hook_counts_within_the_grace_period(
    hook: JSON, grace: int, stops_after: float, code: int | None
):
    async with SimulatedCluster(stop_delay_seconds=5.0).running() as cluster:
        cluster.bind(containers=with_hook(**hook), finalizers=("example.com/hold",))
        await asyncio.sleep(2)
        cluster.delete(grace=grace)
        if stops_after:
            await asyncio.sleep(1)
            cluster.change_metadata(PODS, "web", labels={"a": "b"})  # has no effect on the end
            await asyncio.sleep(stops_after - 1.1)
            assert "running" in cluster.status()["containerStatuses"][0]["state"]
        await asyncio.sleep(0.2)
        terminated = cluster.status()["containerStatuses"][0]["state"]["terminated"]
        assert code is None or terminated["exitCode"] == code


async def test_stop_seconds_replace_the_hook():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(containers=with_hook(sleep={"seconds": 10}), annotations={"stop-seconds": "2"})
        await asyncio.sleep(2)
        cluster.delete()
        await asyncio.sleep(2.1)
        assert cluster.pod() is None
