"""State of simulated nodes and pods: resources, pod addresses, annotations, exits and restarts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedNode, SimulatedPod, marker
from kubeloop.devcluster.simulation.node_objects import NodeSettings

JSON = dict[str, Any]
WALL = "2026-01-01T00:00:00Z"


def simulated_node(cidr: str = "10.128.3.0/24", **status: Any) -> SimulatedNode:
    obj: JSON = {"metadata": {"name": "node-0", "uid": "n"}, "spec": {"podCIDR": cidr}, "status": status}
    return SimulatedNode(obj, 0)


def simulated_pod(
    node: SimulatedNode | None = None,
    *,
    name: str = "web",
    annotations: JSON | None = None,
    settings: NodeSettings | None = None,
    **spec: Any,
) -> SimulatedPod:
    """Return a pod; annotations without the prefix kubeloop.dev/."""
    prefixed = {f"kubeloop.dev/{key}": value for key, value in (annotations or {}).items()}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": prefixed}
    container = {"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}}
    obj: JSON = {"metadata": metadata, "spec": {"nodeName": "node-0", "containers": [container], **spec}}
    return SimulatedPod(obj, node or simulated_node(), settings=settings or NodeSettings(), rng=random.Random(1))


def running_pod(**fields: Any) -> SimulatedPod:
    pod = simulated_pod(**fields)
    pod.seen = True
    for run in pod.runs:
        pod.start(run, 0.0, WALL)
    return pod


def test_marker_prefers_annotation_to_label():
    labelled: JSON = {"metadata": {"labels": {"kubeloop.dev/stages": "false"}}}
    assert marker(labelled, "stages") == "false"
    assert (
        marker({"metadata": {**labelled["metadata"], "annotations": {"kubeloop.dev/stages": "true"}}}, "stages")
        == "true"
    )
    assert marker({"metadata": {}}, "stages") is None


def test_node_counts_requests_until_pod_ends():
    node = simulated_node(allocatable={"cpu": "4"})
    pods = [simulated_pod(node, name=name) for name in ("a", "b")]
    for pod in pods:
        node.add(pod)
    node.add(simulated_pod(node, name="ended"), counts=False)
    assert node.used == {"cpu": 1000, "pods": 2}
    node.release(pods[0])
    node.release(pods[0])
    assert node.used == {"cpu": 500, "pods": 1}
    node.remove(pods[1])
    assert node.used == {"cpu": 0, "pods": 0}
    assert sorted(node.pods) == ["uid-a", "uid-ended"]


def test_recount_applies_allocated_requests():
    node = simulated_node()
    pod = simulated_pod(node)
    node.add(pod)
    containers = [{"name": "web", "resources": {"requests": {"cpu": "2"}}}]
    pod.object = {**pod.object, "spec": {**pod.object["spec"], "containers": containers}}
    node.recount(pod)
    assert node.used == {"cpu": 500, "pods": 1}
    pod.allocate()
    node.recount(pod)
    assert node.used == {"cpu": 2000, "pods": 1}


def test_pod_addresses_are_unique_and_reused_after_removal():
    node = simulated_node("10.128.3.0/29")  # addresses 2 to 6 are for pods
    pods = [simulated_pod(node, name=f"web-{number}") for number in range(5)]
    for pod in pods:
        node.add(pod)
        pod.assign_address()
    assert [pod.address for pod in pods] == [f"10.128.3.{number}" for number in (2, 3, 4, 5, 6)]
    node.remove(pods[1])
    assert node.next_address() == "10.128.3.3"


def test_address_of_adopted_pod_is_not_assigned_again():
    node = simulated_node()
    node.add(simulated_pod(node), address="10.128.3.2")
    node.add(simulated_pod(node, name="foreign"), address="fd00::7")
    assert node.next_address() == "10.128.3.3"


@pytest.mark.parametrize("cidr", ["fd00::/64", "10.0.0.0/31"])
def test_unusable_pod_cidr_is_replaced_by_default(cidr):
    assert simulated_node(cidr).next_address() == "10.128.0.2"


def test_pod_in_host_network_has_address_of_node():
    node = simulated_node(addresses=[{"type": "InternalIP", "address": "192.168.0.9"}])
    pod = simulated_pod(node, hostNetwork=True)
    pod.assign_address()
    assert pod.address == "192.168.0.9"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"run-seconds": "1.5"}, 1.5, id="number"),
        pytest.param({"run-seconds": "-1"}, None, id="negative"),
        pytest.param({"run-seconds": "inf"}, None, id="infinite"),
        pytest.param({"run-seconds": "soon"}, None, id="not a number"),
        pytest.param({}, None, id="absent"),
    ],
)
def test_seconds_of_annotation(annotations, expected):
    pod = simulated_pod(annotations=annotations)
    assert pod.seconds("run-seconds") == expected
    assert len(pod.problems()) == (1 if annotations and expected is None else 0)


def test_jitter_annotation_overrides_settings():
    settings = NodeSettings(jitter=0.5)
    assert (
        simulated_pod(annotations={"run-seconds": "10", "jitter": "0"}, settings=settings).seconds("run-seconds") == 10
    )
    jittered = simulated_pod(annotations={"run-seconds": "10"}, settings=settings).seconds("run-seconds")
    assert jittered is not None
    assert 5 <= jittered <= 15
    assert jittered != 10


@pytest.mark.parametrize(
    ("annotations", "code"),
    [
        pytest.param({}, 0, id="default"),
        pytest.param({"exit-code": "3"}, 3, id="exit-code"),
        pytest.param({"exit-code": "256"}, 1, id="invalid exit-code"),
        pytest.param({"crashes": "2"}, 1, id="crashes"),
        pytest.param({"crashes": "0"}, 0, id="all crashes have happened"),
    ],
)
def test_exit_code(annotations, code):
    pod = simulated_pod(annotations=annotations)
    assert pod.exit_code(pod.runs[0]) == code


def test_exited_container_restarts_by_restart_policy():
    pod = running_pod(restartPolicy="OnFailure", annotations={"run-seconds": "5", "exit-code": "1"})
    (web,) = pod.runs
    assert pod.next_due() == 5.0
    pod.exit(web, 5.0, WALL)
    assert web.restart_at == 5.0  # the first restart has no delay
    assert not pod.has_finished
    pod.restart(web, "nginx", 5.0, WALL)
    assert (web.restarts, web.exit_at, web.restart_at) == (1, 10.0, None)
    pod.exit(web, 10.0, WALL)
    assert pod.next_due() == 20.0
    assert web.reason == "CrashLoopBackOff"
    never = running_pod(restartPolicy="Never", annotations={"run-seconds": "5"})
    never.exit(never.runs[0], 5.0, WALL)
    assert never.next_due() is None
    assert never.has_finished


def test_annotation_of_container_overrides_that_of_pod():
    annotations = {"run-seconds": "5", "exit-code": "1", "run-seconds.log": "7", "exit-code.log": "3"}
    inits = [{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}]
    pod = running_pod(annotations=annotations, initContainers=inits, containers=[{"name": "web"}, {"name": "log"}])
    codes_and_times = {run.name: (pod.exit_code(run), run.exit_at) for run in pod.runs}
    assert codes_and_times == {"migrate": (0, 0.0), "proxy": (0, None), "web": (1, 5.0), "log": (3, 7.0)}
    assert pod.problems() == []


def test_annotation_of_unknown_container_is_a_problem():
    pod = simulated_pod(annotations={"exit-code.worker": "1", "stop-seconds.web": "1", "exit-code.web": "-1"})
    assert [problem.split(":")[0] for problem in pod.problems()] == [
        "kubeloop.dev/exit-code.worker",
        "kubeloop.dev/stop-seconds.web",
        "kubeloop.dev/exit-code.web",
    ]


def test_containers_start_after_those_before_them():
    inits = [{"name": "a"}, {"name": "proxy", "restartPolicy": "Always"}, {"name": "b"}]
    pod = simulated_pod(initContainers=inits, containers=[{"name": "web"}, {"name": "log"}])
    started = []
    while runs := pod.startable():
        started.append([run.name for run in runs])
        for run in runs:
            pod.start(run, 0.0, WALL)
            if run.role == "init":
                assert pod.startable() == []
                pod.exit(run, 0.0, WALL)
    assert started == [["a"], ["proxy"], ["b"], ["web", "log"]]


def test_failed_init_container_finishes_pod_that_is_not_restarted():
    spec = {"initContainers": [{"name": "migrate"}], "annotations": {"exit-code.migrate": "2"}}
    pod = simulated_pod(restartPolicy="Never", **spec)
    (migrate,) = pod.startable()
    pod.start(migrate, 0.0, WALL)
    pod.exit(migrate, 0.0, WALL)
    assert pod.has_finished
    assert pod.startable() == []
    restarted = simulated_pod(**spec)
    (migrate,) = restarted.startable()
    restarted.start(migrate, 0.0, WALL)
    restarted.exit(migrate, 0.0, WALL)
    assert migrate.restart_at == 0.0
    assert not restarted.has_finished


def test_container_of_job_exits_after_job_run_seconds():
    pod = simulated_pod(settings=NodeSettings(job_run_seconds=3.0))
    pod.object["metadata"]["ownerReferences"] = [{"kind": "Job", "controller": True}]
    pod.start(pod.runs[0], 10.0, WALL)
    assert pod.runs[0].exit_at == 13.0


@pytest.mark.parametrize(
    ("annotations", "is_killed", "code"),
    [({}, False, 0), ({"run-seconds": "60"}, False, 143), ({"run-seconds": "60"}, True, 137)],
    ids=["server", "stopped before its end", "killed"],
)
def test_exit_code_of_stopped_container(annotations, is_killed, code):
    pod = running_pod(annotations=annotations)
    pod.is_killed = is_killed
    pod.end_stop(WALL)
    assert pod.runs[0].exit_code == code
    assert pod.next_due() is None


def test_active_deadline_counts_from_start_time():
    pod = running_pod(activeDeadlineSeconds=60)
    pod.start_time = "2025-12-31T23:59:40Z"
    pod.plan_deadline(30.0, WALL)
    assert pod.deadline_at == pod.next_due() == 70.0
    pod.object["spec"]["activeDeadlineSeconds"] = None
    pod.plan_deadline(30.0, WALL)
    assert pod.next_due() is None


def test_probes_delay_readiness():
    container = {"name": "web", "readinessProbe": {"initialDelaySeconds": 4}}
    pod = running_pod(containers=[container])
    assert pod.next_due() == 4.0
    assert not pod.refresh_readiness(3.9)
    assert pod.refresh_readiness(4.0)
    assert pod.runs[0].ready
    immediate = running_pod(containers=[container], settings=NodeSettings(probe_delays=False))
    assert immediate.runs[0].ready


def test_not_ready_annotation_holds_pod_unready():
    pod = running_pod(annotations={"not-ready": "true"})
    assert not pod.runs[0].ready
    assert pod.next_due() is None
    pod.object["metadata"]["annotations"] = {}
    assert pod.refresh_readiness(0.0)
    assert pod.runs[0].ready


def test_changed_images_are_those_that_differ_from_the_spec():
    pod = running_pod()
    assert pod.changed_images() == []
    pod.object = {**pod.object, "spec": {**pod.object["spec"], "containers": [{"name": "web", "image": "nginx:2"}]}}
    assert pod.changed_images() == [(pod.runs[0], "nginx:2")]


def test_adopted_pod_keeps_restart_count_and_start_times():
    pod = simulated_pod()
    running = {"running": {"startedAt": "2025-12-31T00:00:00Z"}}
    entry = {"name": "web", "restartCount": 4, "ready": True, "state": running}
    pod.object["status"] = {"startTime": "2025-12-30T00:00:00Z", "containerStatuses": [entry]}
    pod.adopt_running(100.0, WALL)
    (web,) = pod.runs
    assert (pod.start_time, web.since, web.restarts) == ("2025-12-30T00:00:00Z", "2025-12-31T00:00:00Z", 4)
    assert web.ready
    assert web.backoff_restarts == 4


def test_adopted_pod_keeps_ended_containers():
    pod = simulated_pod(restartPolicy="OnFailure", containers=[{"name": "done"}, {"name": "crashed"}])
    terminated = {"startedAt": WALL, "finishedAt": WALL, "exitCode": 0, "reason": "Completed"}
    entries = [
        {"name": "done", "state": {"terminated": terminated}},
        {
            "name": "crashed",
            "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {**terminated, "exitCode": 1}},
        },
    ]
    pod.object["status"] = {"startTime": WALL, "containerStatuses": entries}
    pod.adopt_running(100.0, WALL)
    done, crashed = pod.runs
    assert (done.state, done.exit_code, done.ended) == ("terminated", 0, WALL)
    assert (crashed.state, crashed.reason, crashed.restart_at) == ("waiting", "CrashLoopBackOff", 110.0)
