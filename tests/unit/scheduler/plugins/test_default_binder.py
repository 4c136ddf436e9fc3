"""DefaultBinder: the binding request and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.errors import Conflict, ServerUnreachable
from kubeloop.kube.objects.api_types import ApiStatus
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.default_binder import DefaultBinder


async def test_bind_posts_a_binding(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    binder = DefaultBinder(plugin_args.NoArgs(), cluster)
    assert await binder.bind(CycleState(), PodInfo(pod("new", uid="u1")), "a") is None
    verb, plural, namespace, name, subresource, body = cluster.client.requests[0]
    assert (verb, plural, namespace, name, subresource) == ("create", "pods", "default", "new", "binding")
    assert body["target"] == {"kind": "Node", "name": "a"}
    assert body["metadata"] == {"name": "new", "namespace": "default", "uid": "u1"}


@pytest.mark.parametrize(
    "error", [Conflict(ApiStatus(code=409, message="bound")), ServerUnreachable("no connection", maybe_applied=True)]
)
async def test_bind_returns_error_of_request(error: Exception, plugin_cluster: Any, pod: Any) -> None:
    cluster = plugin_cluster()
    cluster.client.failures = [error]
    status = await DefaultBinder(plugin_args.NoArgs(), cluster).bind(CycleState(), PodInfo(pod("new")), "a")
    assert status is not None
    assert (status.code, status.plugin, status.error) == (Code.ERROR, "DefaultBinder", error)


async def test_bind_uses_the_dispatcher_of_api_calls(plugin_cluster: Any, node: Any, pod: Any) -> None:
    bindings: list[Any] = []

    class Cacher:
        async def bind_pod(self, binding: Any) -> None:
            bindings.append(binding)

    cluster = plugin_cluster([node("a")])
    cluster.api_cacher = Cacher()
    assert await DefaultBinder(plugin_args.NoArgs(), cluster).bind(CycleState(), PodInfo(pod("new")), "a") is None
    assert [binding["target"]["name"] for binding in bindings] == ["a"]
    assert cluster.client.requests == []
