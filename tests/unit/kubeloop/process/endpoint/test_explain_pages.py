"""The page of `kubeloop explain`."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.kube.clock import SystemClock
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.endpoint.explain_pages import add_cluster_explain_page, add_explain_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_targets import Target


@pytest.mark.parametrize(
    ("controllers", "problem"),
    [({"deployment"}, "this process runs no scheduler"), ({"scheduler"}, "the scheduler has not started yet")],
)
async def test_explain_page_fails_without_a_scheduler(controllers, problem):
    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    add_explain_pages(endpoint, SimpleNamespace(scheduler=None, settings=Settings(controllers=frozenset(controllers))))
    with pytest.raises(KeyError, match=problem):
        await endpoint._pages["/debug/explain"]({"pod": "p"})


async def test_pod_group_is_an_error_without_the_feature_gate():
    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    scheduler = SimpleNamespace(pod_group_cycle=None)
    add_explain_pages(endpoint, SimpleNamespace(scheduler=scheduler, settings=Settings()))
    with pytest.raises(KeyError, match="the feature gate GenericWorkload enables them"):
        await endpoint._pages["/debug/explain"]({"owner": "podgroup/train"})


async def test_observer_explains_in_a_thread():
    calls = []

    def explain(target, with_scores):
        calls.append((target, with_scores, threading.current_thread() is threading.main_thread()))
        return {"summary": "no room"}

    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    add_cluster_explain_page(endpoint, explain)
    page = endpoint._pages["/debug/explain"]
    assert await page({"namespace": "shop", "pod": "web-1", "scores": "true"}) == {"summary": "no room"}
    assert calls == [(Target("pod", "web-1", "shop"), True, False)]
    with pytest.raises(KeyError, match="no pod in the query"):
        await page({})
