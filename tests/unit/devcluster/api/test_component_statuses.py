"""componentstatuses: nobody keeps them, and everybody may read them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from kubeloop.devcluster.api import component_statuses as module
from support.api_requests import InProcessApi

PATH = "/api/v1/componentstatuses"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def api(monkeypatch) -> AsyncIterator[InProcessApi]:
    """A scheduler listens; no controller manager does."""
    with socket.create_server(("127.0.0.1", 0)) as scheduler, socket.create_server(("127.0.0.1", 0)) as gone:
        nobodys = gone.getsockname()[1]
        gone.close()
        ports = {"controller-manager": nobodys, "scheduler": scheduler.getsockname()[1]}
        monkeypatch.setattr(module, "_PORTS", ports)
        yield InProcessApi()


async def test_components_are_listed_with_their_health(api: InProcessApi):
    status, answer = api("GET", PATH)
    assert (status, answer["kind"], answer["metadata"]) == (200, "ComponentStatusList", {})
    health = {each["metadata"]["name"]: each["conditions"][0]["status"] for each in answer["items"]}
    assert health == {"controller-manager": "False", "etcd-0": "True", "scheduler": "True"}
    assert api.warnings == ['299 - "v1 ComponentStatus is deprecated in v1.19+"']


async def test_their_table_says_why_they_are_unhealthy(api: InProcessApi):
    answer = api("GET", PATH, accept=TABLE)[1]
    assert [each["name"] for each in answer["columnDefinitions"]] == ["Name", "Status", "Message", "Error"]
    name, status, message, error = answer["rows"][0]["cells"]
    assert (name, status, error) == ("controller-manager", "Unhealthy", "")
    assert message.endswith("connect: connection refused")
    assert answer["rows"][1]["cells"] == ["etcd-0", "Healthy", "ok", ""]


async def test_one_is_read_by_its_name_and_none_is_written(api: InProcessApi):
    assert api("GET", f"{PATH}/etcd-0")[1]["conditions"][0]["message"] == "ok"
    status, answer = api("GET", f"{PATH}/x")
    assert (status, answer["message"]) == (404, 'componentstatus "x" not found')
    assert [
        each["metadata"]["name"] for each in api("GET", f"{PATH}?fieldSelector=metadata.name=etcd-0")[1]["items"]
    ] == ["etcd-0"]
    assert api("POST", PATH, {})[0] == 405
    assert api("DELETE", f"{PATH}/etcd-0")[0] == 405
    assert api("GET", f"{PATH}?watch=1")[0] == 405
