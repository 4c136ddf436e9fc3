"""ComponentStatuses: computed on read, never stored."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from kubeloop.devcluster.api import component_statuses as module
from support.apiserver.api_requests import InProcessApi

PATH = "/api/v1/componentstatuses"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def api(monkeypatch) -> AsyncIterator[InProcessApi]:
    """A server with a scheduler that listens and no controller manager."""
    with socket.create_server(("127.0.0.1", 0)) as scheduler, socket.create_server(("127.0.0.1", 0)) as closed:
        free_port = closed.getsockname()[1]
        closed.close()
        ports = {"controller-manager": free_port, "scheduler": scheduler.getsockname()[1]}
        monkeypatch.setattr(module, "_PORTS", ports)
        yield InProcessApi()


async def test_list_has_the_health_of_components(api: InProcessApi):
    status, response = api("GET", PATH)
    assert (status, response["kind"], response["metadata"]) == (200, "ComponentStatusList", {})
    health = {item["metadata"]["name"]: item["conditions"][0]["status"] for item in response["items"]}
    assert health == {"controller-manager": "False", "etcd-0": "True", "scheduler": "True"}
    assert api.warnings == ['299 - "v1 ComponentStatus is deprecated in v1.19+"']


async def test_table_has_the_reason_of_unhealthy_components(api: InProcessApi):
    response = api("GET", PATH, accept=TABLE)[1]
    assert [column["name"] for column in response["columnDefinitions"]] == ["Name", "Status", "Message", "Error"]
    name, status, message, error = response["rows"][0]["cells"]
    assert (name, status, error) == ("controller-manager", "Unhealthy", "")
    assert message.endswith("connect: connection refused")
    assert response["rows"][1]["cells"] == ["etcd-0", "Healthy", "ok", ""]


async def test_read_by_name_and_no_writes(api: InProcessApi):
    assert api("GET", f"{PATH}/etcd-0")[1]["conditions"][0]["message"] == "ok"
    status, response = api("GET", f"{PATH}/x")
    assert (status, response["message"]) == (404, 'componentstatus "x" not found')
    assert [
        item["metadata"]["name"] for item in api("GET", f"{PATH}?fieldSelector=metadata.name=etcd-0")[1]["items"]
    ] == ["etcd-0"]
    assert api("POST", PATH, {})[0] == 405
    assert api("DELETE", f"{PATH}/etcd-0")[0] == 405
    assert api("GET", f"{PATH}?watch=1")[0] == 405
