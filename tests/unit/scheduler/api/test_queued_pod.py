"""QueuedPodInfo: derived properties, and updates of the pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from support.scheduling.plugin_cluster import make_pod


@pytest.mark.parametrize(
    ("changes", "spec_class"),
    [
        pytest.param({}, 7, id="nothing"),
        pytest.param({"status": {"nominatedNodeName": "n"}}, 7, id="status"),
        pytest.param({"labels": {"a": "b"}}, -1, id="labels"),
        pytest.param({"cpu": "2"}, -1, id="spec"),
        pytest.param({"owner": [{"kind": "ReplicaSet", "name": "rs", "uid": "u"}]}, -1, id="owner"),
    ],
)
def test_update_resets_spec_class_if_it_may_differ(changes: dict[str, Any], spec_class: int) -> None:
    queued = QueuedPodInfo(PodInfo(make_pod("p")), 5)
    queued.spec_class, queued.attempts = 7, 3
    updated = make_pod("p", **changes)
    queued.update(updated)
    assert queued.pod is updated
    assert (queued.spec_class, queued.attempts, queued.timestamp_ns) == (spec_class, 3, 5)


def test_rejectors_and_gate_of_last_attempt() -> None:
    queued = QueuedPodInfo(PodInfo(make_pod("p")), 0)
    assert (queued.gated, queued.rejectors) == (False, set())
    queued.unschedulable_plugins, queued.pending_plugins = {"A"}, {"B"}
    queued.gating_plugin = "SchedulingGates"
    assert (queued.gated, queued.rejectors) == (True, {"A", "B"})
    assert repr(queued) == "QueuedPodInfo(default/p, attempts=0)"
