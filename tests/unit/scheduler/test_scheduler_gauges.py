"""Metrics that are computed on each scrape."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.scheduler.scheduler_gauges import SchedulerGauges
from support.scheduling.plugin_cluster import PluginCluster, make_pod


@pytest.fixture
def queue() -> SchedulingQueue:
    """A queue with the pods "a", "b" and "c", none of them popped."""
    pods: dict[str, Pod] = {pod.key: pod for pod in map(make_pod, "abc")}
    queue = SchedulingQueue(
        sort_key=lambda queued: queued.key,
        hint_maps={"default-scheduler": QueueingHintMap([Registration("NodeName", events.NODE_ADD, None)])},
        pre_enqueue={"default-scheduler": []},
        nominator=Nominator(pods.get),
        now_ns=lambda: 10**12,
    )
    for pod in pods.values():
        queue.add(pod)
    return queue


def gauges(queue: SchedulingQueue, frameworks: Any = None, binding: Any = ()) -> SchedulerGauges:
    return SchedulerGauges(queue, frameworks or {}, binding)


def test_in_flight_pods_and_events_are_counted(queue: SchedulingQueue) -> None:
    assert gauges(queue).in_flight_events() == {}
    queue.pop()
    queue.pop()
    queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert gauges(queue).in_flight_events() == {"PodPopped": 2, "NodeAdd": 1}


def test_unschedulable_pods_are_counted_in_every_queue(queue: SchedulingQueue) -> None:
    for unschedulable, pending in (({"NodeName"}, set()), ({"NodeName", "NodePorts"}, {"Mine"})):
        queued = queue.pop()
        assert queued is not None
        queued.unschedulable_plugins, queued.pending_plugins = unschedulable, pending
        queue.add_unschedulable_if_not_present(queued)
    expected = {(plugin, "default-scheduler"): 1 for plugin in ("NodePorts", "Mine")}
    expected["NodeName", "default-scheduler"] = 2
    assert gauges(queue).unschedulable_pods() == expected
    queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert [queued.key for queued in queue.pending_pods().backoff] == ["default/a", "default/b"]
    assert gauges(queue).unschedulable_pods() == expected


def test_skipped_plugins_are_not_evaluated(queue: SchedulingQueue) -> None:
    framework = PluginCluster().framework
    for skipped in (set(), {"NodePorts"}):
        state = CycleState()
        state.skip_filter = skipped
        framework.timing.ran("Filter", state)
    evaluations = gauges(queue, {"profile": framework}).plugin_evaluations()
    assert evaluations["NodeName", "Filter", "profile"] == 2
    assert evaluations["NodePorts", "Filter", "profile"] == 1
    assert {point for _, point, _ in evaluations} == {"Filter"}


def test_bindings_in_flight_are_counted_at_each_scrape(queue: SchedulingQueue) -> None:
    binding: set[str] = set()
    scraped = gauges(queue, binding=binding)
    assert scraped.bindings_in_flight() == 0
    binding.add("p")
    assert scraped.bindings_in_flight() == 1
