"""SchedulingGates: gated pods are not queued."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.scheduling_gates import SchedulingGates


def test_gated_pod_is_rejected_with_its_gates(plugin_cluster: Any, pod: Any) -> None:
    plugin = SchedulingGates(plugin_args.NoArgs(), plugin_cluster())
    status = plugin.pre_enqueue(pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}]))
    assert status is not None
    assert status.reasons == ("waiting for scheduling gates: [a b]",)
    assert plugin.pre_enqueue(pod("q")) is None


def test_only_updates_of_the_pod_itself_queue_it(plugin_cluster: Any, pod: Any) -> None:
    plugin = SchedulingGates(plugin_args.NoArgs(), plugin_cluster())
    assert plugin._after_update(pod("p"), None, pod("p")) is Hint.QUEUE
    assert plugin._after_update(pod("p"), None, pod("q")) is Hint.SKIP
