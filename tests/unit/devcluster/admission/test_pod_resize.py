"""PodResizeValidator admission."""

from __future__ import annotations

from typing import Any

from support.api_requests import InProcessApi
from support.validation_causes import pod

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
