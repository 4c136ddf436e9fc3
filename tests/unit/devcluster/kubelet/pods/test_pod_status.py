"""Pod status of the kubelet: phase, addresses, failures."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.pods.pod_status import PodIPs, pod_phase, pod_status, rejected_status

JSON = dict[str, Any]
NOW = "2026-01-01T00:00:10Z"


def pod(**spec: Any) -> JSON:
    metadata = {"name": "web", "namespace": "default", "uid": "uid-web", "generation": 3}
    return {"metadata": metadata, "spec": {"containers": [{"name": "web", "image": "nginx"}], **spec}}


def main_run(state: Any = "waiting", *, name: str = "web", **fields: Any) -> ContainerRun:
    return ContainerRun(name, "nginx", "main", state=state, **fields)


def status(obj: JSON, runs: list[ContainerRun], **arguments: Any) -> JSON:
    options: JSON = {"now": NOW, "ips": PodIPs("172.16.0.2", "10.128.0.2"), "start_time": NOW, **arguments}
    return pod_status(obj, runs, **options)


def conditions(obj: JSON) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition.get("reason", "")) for condition in obj["conditions"]}


@pytest.mark.parametrize(
    ("runs", "policy", "phase"),
    [
        pytest.param([main_run()], "Always", "Pending", id="waiting"),
        pytest.param([main_run(last_state={"terminated": {}})], "Always", "Running", id="waiting for a restart"),
        pytest.param([main_run("running"), main_run("terminated")], "Never", "Running", id="one running"),
        pytest.param([main_run("running"), main_run()], "Always", "Pending", id="one not created"),
        pytest.param([main_run("terminated")], "Always", "Running", id="exited, restart policy Always"),
        pytest.param([main_run("terminated")], "Never", "Succeeded", id="exited with 0"),
        pytest.param(
            [main_run("terminated"), main_run("terminated", exit_code=1)], "Never", "Failed", id="exit code 1"
        ),
    ],
)
def test_pod_phase(runs, policy, phase):
    assert pod_phase(pod(restartPolicy=policy), runs) == phase


def test_phase_of_stopped_pod_is_final():
    assert pod_phase(pod(), [main_run("terminated")], stopped=True) == "Succeeded"
    assert pod_phase(pod(), [main_run("terminated", exit_code=137)], stopped=True) == "Failed"
    assert pod_phase(pod(), [main_run()], stopped=True) == "Failed"


def test_status_of_running_pod_has_addresses_and_conditions():
    result = status(pod(), [main_run("running", started=True, ready=True, since=NOW)])
    assert (result["phase"], result["podIP"], result["hostIP"]) == ("Running", "10.128.0.2", "172.16.0.2")
    assert result["observedGeneration"] == 3
    assert {value for value, _ in conditions(result).values()} == {"True"}


def test_failure_sets_phase_reason_and_message():
    result = status(pod(), [main_run("terminated")], failure=("DeadlineExceeded", "too long"))
    assert (result["phase"], result["reason"], result["message"]) == ("Failed", "DeadlineExceeded", "too long")
    assert conditions(result)["Ready"] == ("False", "PodFailed")


def test_rejected_status_has_no_container_statuses():
    pending = {**pod(), "status": {"phase": "Pending", "qosClass": "Burstable", "containerStatuses": [{}]}}
    result = rejected_status(pending, "OutOfcpu", "no cpu", now=NOW)
    assert (result["phase"], result["reason"], result["message"]) == ("Failed", "OutOfcpu", "Pod was rejected: no cpu")
    assert result["qosClass"] == "Burstable"
    assert "containerStatuses" not in result
    assert conditions(result) == {"Ready": ("False", "PodFailed"), "ContainersReady": ("False", "PodFailed")}
