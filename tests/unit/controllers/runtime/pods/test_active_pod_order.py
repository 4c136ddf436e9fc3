"""Deletion order of active Pods."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kubeloop.controllers.runtime.pods.active_pod_order import active_pod_sort_key, max_restarts, phase_rank
from kubeloop.kube.objects.api_types import Pod, convert


def pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: str | None = None,
    restarts: int = 0,
    created: str | None = "2026-01-01T00:00:00Z",
) -> Pod:
    status: dict[str, Any] = {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": restarts}]}
    if ready is not None:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}]
    metadata = {"name": name, **({} if created is None else {"creationTimestamp": created})}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node}, "status": status})


def test_pods_are_deleted_in_the_order_of_upstream():
    order = [
        pod("unassigned", node=""),
        pod("pending", phase="Pending"),
        pod("unknown", phase="Unknown"),
        pod("not-ready"),
        pod("ready-last", ready="2026-01-03T00:00:00Z"),
        pod("restarted", ready="2026-01-02T00:00:00Z", restarts=2),
        pod("restarted-once", ready="2026-01-02T00:00:00Z", restarts=1),
        pod("without-time", ready="2026-01-02T00:00:00Z", created=None),
        pod("newest", ready="2026-01-02T00:00:00Z", created="2026-01-01T12:00:00Z"),
        pod("oldest", ready="2026-01-02T00:00:00Z"),
    ]
    shuffled = order[::-1]
    assert sorted(shuffled, key=active_pod_sort_key) == order


def test_order_of_equal_pods_does_not_depend_on_the_cache():
    pods = [convert(Pod, {"metadata": {"name": name, "uid": name}}) for name in "abc"]
    for order in itertools.permutations(pods):
        assert sorted(order, key=active_pod_sort_key) == pods


def test_restarts_of_sidecars_count_separately():
    both = convert(
        Pod,
        {
            "spec": {"initContainers": [{"name": "sidecar", "restartPolicy": "Always"}, {"name": "init"}]},
            "status": {
                "containerStatuses": [{"name": "a", "restartCount": 1}, {"name": "b", "restartCount": 3}],
                "initContainerStatuses": [
                    {"name": "sidecar", "restartCount": 2},
                    {"name": "init", "restartCount": 9},
                ],
            },
        },
    )
    assert max_restarts(both) == (3, 2)


@pytest.mark.parametrize(("phase", "rank"), [("", 0), ("Pending", 0), ("Unknown", 1), ("Running", 2)])
def test_rank_of_a_phase(phase: str, rank: int) -> None:
    assert phase_rank(pod("p", phase=phase)) == rank
