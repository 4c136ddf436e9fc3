"""RuntimeClass admission."""

from __future__ import annotations

from typing import Any

from support.api_requests import InProcessApi
from support.validation_causes import pod

JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


async def test_runtime_class_sets_overhead_and_scheduling():
    api, pods = InProcessApi(), "/api/v1/namespaces/default/pods"
    status, response = api("POST", pods, named_pod(runtimeClassName="none"))
    assert (status, response["message"]) == (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "none" not found')
    status, response = api("POST", pods, named_pod(overhead={"cpu": "1"}))
    message = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert (status, response["message"]) == (403, f'pods "p" is forbidden: {message}')
    runtime = {
        "metadata": {"name": "small"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    }
    status, response = api("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    assert status == 201, response
    _, response = api("POST", pods, named_pod(runtimeClassName="small", nodeSelector={"c": "d"}))
    assert response["spec"]["overhead"] == {"cpu": "250m"}
    assert response["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert response["spec"]["tolerations"][-1] == {"key": "k", "operator": "Exists"}
