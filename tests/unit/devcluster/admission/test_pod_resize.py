"""PodResizeValidator admission."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.pod_resize import check_pod_resize
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import NODES
from support.apiserver.api_requests import InProcessApi
from support.objects.validation_causes import pod

JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


async def test_resize_beyond_the_node_capacity_is_forbidden():
    api, path = InProcessApi(), "/api/v1/namespaces/default/pods"
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}
    assert api("POST", "/api/v1/nodes", node)[0] == 201
    resources = {"requests": {"cpu": "1"}}
    body = named_pod(nodeName="n", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert api("POST", path, body)[0] == 201
    _, live = api("GET", f"{path}/p")
    live["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    status, response = api("PUT", f"{path}/p/resize", live)
    message = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"
    assert (status, response["message"]) == (403, f'pods "p" is forbidden: {message}')
    live["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    assert api("PUT", f"{path}/p/resize", live)[0] == 200


@pytest.mark.parametrize(
    ("node_name", "generation", "reason", "cause"),
    [
        pytest.param("missing", 2, 'node "missing" not found', None, id="missing node"),
        pytest.param(
            "win",
            2,
            'pod resize is only supported on linux nodes, node "win" is "windows"',
            "UnsupportedPlatform",
            id="other system",
        ),
        pytest.param(
            "small",
            2,
            "node didn't have enough allocatable resources: cpu, requested: 1000, allocatable: 500; "
            "memory, requested: 1024, allocatable: 0",
            "NodeCapacity",
            id="too small",
        ),
        pytest.param("small", 1, "", None, id="unchanged generation"),
        pytest.param("", 2, "", None, id="pod without a node"),
    ],
)
def test_pod_resize(node_name: str, generation: int, reason: str, cause: str | None):
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NODES, {"metadata": {"name": "win", "labels": {"kubernetes.io/os": "windows"}}})
    store.create(NODES, {"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "500m"}}})
    resources = {"requests": {"cpu": "1", "memory": "1Ki"}}
    new = named_pod(nodeName=node_name, containers=[{"name": "c", "resources": resources}])
    new["metadata"]["generation"] = generation
    message, details = "", {}
    try:
        check_pod_resize(store, new, {"metadata": {"generation": 1}})
    except StatusError as error:
        message, details = error.message, error.details or {}
    assert message == (reason and f'pods "p" is forbidden: {reason}')
    assert details.get("causes") == ([{"reason": cause}] if cause else None)
