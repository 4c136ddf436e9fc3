"""RuntimeClass admission."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.runtime_class import apply_runtime_class
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import RUNTIME_CLASSES
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.api_requests import InProcessApi
from support.objects.validation_causes import pod

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


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        pytest.param({"runtimeClassName": ""}, 500, "resource name may not be empty", id="empty name"),
        pytest.param(
            {"runtimeClassName": "a/b"},
            500,
            "invalid resource name \"a/b\": [may not contain '/']",
            id="name that is no path segment",
        ),
        pytest.param(
            {"runtimeClassName": "small", "overhead": {"cpu": "1"}},
            403,
            "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            id="another overhead",
        ),
        pytest.param(
            {"runtimeClassName": "small", "nodeSelector": {"a": "x"}},
            403,
            'pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; '
            "pod.spec.nodeSelector[a] = x",
            id="another node selector",
        ),
    ],
)
def test_pod_that_contradicts_its_runtime_class_is_forbidden(spec: JSON, code: int, message: str):
    store = ObjectStore(seconds=lambda: 0.0)
    runtime = {"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"a": "b"}}}
    store.create(RUNTIME_CLASSES, {"metadata": {"name": "small"}, **runtime})
    with pytest.raises(StatusError) as raised:
        apply_runtime_class(store, named_pod(**spec))
    assert (raised.value.code, raised.value.message) == (code, message)


def test_toleration_covered_by_the_runtime_class_is_merged():
    store = ObjectStore(seconds=lambda: 0.0)
    scheduling = {"tolerations": [{"key": "k", "operator": "Exists"}]}
    store.create(RUNTIME_CLASSES, {"metadata": {"name": "small"}, "scheduling": scheduling})
    narrow = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    other = {"key": "other", "operator": "Exists"}
    tolerating = named_pod(runtimeClassName="small", tolerations=[narrow, other])
    apply_runtime_class(store, tolerating)
    assert tolerating["spec"]["tolerations"] == [other, {"key": "k", "operator": "Exists"}]
