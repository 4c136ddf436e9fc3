"""Status of a container in each of its states."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.containers.container_run import CONTAINER_STATUS_UNKNOWN, ContainerRun
from kubeloop.devcluster.kubelet.containers.container_status import container_status, terminated_state

NOW = "2026-01-01T00:00:10Z"


@pytest.mark.parametrize(
    ("image", "name", "repository"),
    [
        pytest.param("nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx", id="short name"),
        pytest.param("team/app:1", "docker.io/team/app:1", "docker.io/team/app", id="no registry"),
        pytest.param("localhost/app:1", "localhost/app:1", "localhost/app", id="localhost"),
        pytest.param(
            "r.example.com:5000/app", "r.example.com:5000/app:latest", "r.example.com:5000/app", id="registry"
        ),
    ],
)
def test_image_of_running_container_is_normalized(image, name, repository):
    run = ContainerRun("web", image, "main", state="running", since=NOW)
    web = container_status("uid-web", run)
    assert web["image"] == name
    assert web["imageID"].startswith(f"{repository}@sha256:")


def test_running_container_has_resources_and_id_of_its_restart():
    resources = {"requests": {"cpu": "1"}}
    run = ContainerRun("web", "nginx", "main", state="running", since=NOW, ready=True, started=True)
    run.resources = run.allocated = resources
    first = container_status("uid-web", run)
    assert (first["state"], first["ready"], first["started"]) == ({"running": {"startedAt": NOW}}, True, True)
    assert (first["resources"], first["allocatedResources"]) == (resources, resources["requests"])
    run.restarts = 1
    assert container_status("uid-web", run)["containerID"] != first["containerID"]


def test_waiting_container_has_reason_and_last_state():
    run = ContainerRun("web", "nginx", "main", reason="CrashLoopBackOff", message="back-off")
    assert container_status("uid-web", run)["image"] == "nginx"
    run.last_state = terminated_state("uid-web", run, ended=NOW, exit_code=1)
    status = container_status("uid-web", run)
    assert status["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert status["lastState"]["terminated"]["reason"] == "Error"
    assert status["containerID"] == status["lastState"]["terminated"]["containerID"]
    assert status["image"] == "docker.io/library/nginx:latest"


@pytest.mark.parametrize(("code", "reason", "ready"), [(0, "Completed", True), (3, "Error", False)])
def test_terminated_init_container_is_ready_after_success(code, reason, ready):
    run = ContainerRun("migrate", "app", "init", since=NOW)
    run.end(NOW, code)
    run.reason = ""
    status = container_status("uid-web", run)
    assert (status["state"]["terminated"]["reason"], status["ready"]) == (reason, ready)


def test_container_that_never_ran_has_unknown_status():
    run = ContainerRun("web", "nginx", "main", reason=CONTAINER_STATUS_UNKNOWN, message="not located")
    run.state, run.exit_code = "terminated", 137
    status = container_status("uid-web", run)
    assert status["state"]["terminated"]["startedAt"] is None
    assert status["state"]["terminated"]["message"] == "not located"
    assert "containerID" not in status


def test_ephemeral_container_has_no_started_field():
    assert "started" not in container_status("uid-web", ContainerRun("debug", "busybox", "ephemeral"))
