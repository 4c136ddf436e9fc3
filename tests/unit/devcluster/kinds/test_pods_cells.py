"""Cells of pods and pod templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from support.objects.kinds import cells_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-05-01T11:56:00Z"}}
SPEC = {"containers": [{"name": "web"}]}


def pod_cells(spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> list[Any]:
    complete = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z", **metadata}
    return cells_of("pods", {"metadata": complete, "spec": spec, "status": status}, NOW)


def container_status(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "ready": False, **fields}


def test_running_pod_shows_addresses_and_last_restart():
    terminated = {"terminated": {"exitCode": 1, "finishedAt": "2026-05-01T11:56:00Z"}}
    web = container_status("web", ready=True, state=RUNNING, restartCount=2, lastState=terminated)
    status = {"phase": "Running", "podIPs": [{"ip": "10.128.0.2"}], "containerStatuses": [web]}
    assert pod_cells({**SPEC, "nodeName": "node-1"}, status) == [
        "x",
        "1/1",
        "Running",
        "2 (4m ago)",
        "5m",
        "10.128.0.2",
        "node-1",
        "<none>",
        "<none>",
    ]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "CrashLoopBackOff"),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "OOMKilled"),
        ({"terminated": {"exitCode": 0, "signal": 9}}, "Signal:9"),
        ({"terminated": {"exitCode": 3}}, "ExitCode:3"),
    ],
)
def test_status_is_the_reason_of_the_container(state, text):
    status = {"phase": "Running", "containerStatuses": [container_status("web", state=state)]}
    assert pod_cells(SPEC, status)[1:3] == ["0/1", text]


def test_status_counts_completed_init_containers():
    spec = {**SPEC, "initContainers": [{"name": "copy"}, {"name": "migrate"}]}
    copy = container_status("copy", state={"terminated": {"exitCode": 0}})
    migrate = container_status("migrate", state={"waiting": {"reason": "PodInitializing"}})
    assert pod_cells(spec, {"phase": "Pending", "initContainerStatuses": [copy, migrate]})[2] == "Init:1/2"


def test_ready_sidecar_counts_as_a_container():
    spec = {**SPEC, "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    proxy = container_status("proxy", ready=True, started=True, state=RUNNING)
    web = container_status("web", ready=True, state=RUNNING)
    status = {"phase": "Running", "initContainerStatuses": [proxy], "containerStatuses": [web]}
    assert pod_cells(spec, status)[1:3] == ["2/2", "Running"]


def test_pod_in_deletion_shows_terminating_unless_ended():
    deleted = "2026-05-01T11:59:00Z"
    assert pod_cells(SPEC, {"phase": "Running"}, deletionTimestamp=deleted)[2] == "Terminating"
    assert pod_cells(SPEC, {"phase": "Succeeded"}, deletionTimestamp=deleted)[2] == "Succeeded"
    assert pod_cells(SPEC, {"phase": "Running", "reason": "NodeLost"}, deletionTimestamp=deleted)[2] == "Unknown"


def test_readiness_gates_show_how_many_are_true():
    spec = {**SPEC, "readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]}
    assert pod_cells(spec, {"conditions": [{"type": "example.com/b", "status": "True"}]})[8] == "1/2"


def test_pod_template_shows_containers_and_labels():
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
    }
    cells = cells_of("podtemplates", {"metadata": {"name": "x"}, "template": template}, NOW)
    assert cells == ["x", "web", "nginx:1.27", "app=web"]
