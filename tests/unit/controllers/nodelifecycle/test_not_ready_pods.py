"""The condition Ready of pods on nodes that are not ready."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.nodelifecycle.not_ready_pods import NotReadyPods
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import PODS
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


async def cached_pod(apiserver: Any, ready: str = "True") -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "ns", "uid": "1"},
        "spec": {"nodeName": "a"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    pod = convert(Pod, apiserver.store.create(PODS, body))
    await apiserver.informers.informer(PODS).replace({pod.key: pod})


def ready(apiserver: Any) -> str:
    (pod,) = apiserver.store.list(PODS)
    return pod["status"]["conditions"][0]["status"]


async def test_node_with_a_pod_that_cannot_be_marked_is_retried(fake_apiserver):
    pods = NotReadyPods(fake_apiserver.context, lambda _node: True)
    await cached_pod(fake_apiserver)
    fake_apiserver.transport.reject = lambda method, _path: injected_error(500) if method == "PATCH" else None
    await pods.mark_pods_of("a")
    assert (pods.failed, ready(fake_apiserver)) == ({"a"}, "True")
    fake_apiserver.transport.reject = lambda _method, _path: None
    await pods.mark_pods_of("a")
    assert (pods.failed, ready(fake_apiserver)) == (set(), "False")


@pytest.mark.parametrize(("is_not_ready", "expected"), [(True, "False"), (False, "True")])
async def test_pod_of_a_node_that_is_not_ready_is_marked(is_not_ready, expected, fake_apiserver):
    pods = NotReadyPods(fake_apiserver.context, lambda node: node == "a" and is_not_ready)
    await cached_pod(fake_apiserver)
    await pods.reconcile("ns/web")
    assert ready(fake_apiserver) == expected
