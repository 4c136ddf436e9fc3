"""Deletion order of Pods: the optimized order against pairwise comparison, and age ratios."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.replicaset.pod_deletion_order import (
    AgeBuckets,
    TiedPod,
    deletion_age_ratios,
    deletion_order,
    deletion_sort_key,
    pods_to_delete,
)
from kubeloop.controllers.replicaset.related_pods import active_pods_per_node
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Pod, convert

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(name: str, *, ready: int | None = None, created: int = 0, node: str = "n", **more: Any) -> Pod:
    """Return a Pod that has been ready for `ready` seconds. None: not ready. -1: ready without a transition time."""
    condition: dict[str, Any] = {"type": "Ready", "status": "False" if ready is None else "True"}
    if ready is not None and ready >= 0:
        condition["lastTransitionTime"] = rfc3339(NOW - timedelta(seconds=ready))
    metadata = {"name": name, "namespace": "ns", "uid": more.pop("uid", name), "labels": more.pop("labels", {})}
    status = {"phase": more.pop("phase", "Running"), "conditions": [condition]}
    restarts = more.pop("restarts", 0)
    status["containerStatuses"] = [{"name": "main", "restartCount": restarts}]
    created_at = rfc3339(NOW - timedelta(seconds=created))
    return convert(
        Pod, {"metadata": {**metadata, "creationTimestamp": created_at}, "spec": {"nodeName": node}, "status": status}
    )


pods = st.lists(
    st.builds(
        pod,
        st.just("p"),
        ready=st.sampled_from([None, -1, 10, 12, 14, 300]),
        created=st.sampled_from([20, 22, 900]),
        node=st.sampled_from(["", "n", "m"]),
        restarts=st.integers(0, 1),
        uid=st.text("abc", min_size=1, max_size=3),
    ),
    max_size=12,
    unique_by=lambda candidate: candidate.metadata.uid,
)


@given(pods=pods)
def test_deletion_order_matches_pairwise_comparison(pods):
    ages, counts = AgeBuckets(NOW), active_pods_per_node(pods)
    ranked = [
        (deletion_sort_key(candidate, counts[candidate.spec.node_name], ages), TiedPod(candidate, ages))
        for candidate in pods
    ]

    def compare(a: Any, b: Any) -> int:
        return (b < a) - (a < b)

    number_before = {id(a): sum(a < b for b in ranked if b is not a) for a in ranked}
    if sorted(number_before.values()) != list(range(len(ranked))):
        return  # a tie or a cycle: any order is correct
    by_rule = sorted(ranked, key=functools.cmp_to_key(compare))
    expected = [tied.pod.metadata.uid for _, tied in by_rule]
    assert [ordered.metadata.uid for ordered in deletion_order(pods, counts, NOW)] == expected
    first = pods_to_delete(pods, lambda: counts, len(pods) - 1, NOW) if pods else []
    assert [ordered.metadata.uid for ordered in first] == expected[:-1]


@given(pods=pods, rng=st.randoms(use_true_random=False))
def test_deletion_order_does_not_depend_on_the_cache(pods, rng):
    counts = active_pods_per_node(pods)
    shuffled = rng.sample(pods, len(pods))
    orders = [[*deletion_order(order, counts, NOW)] for order in (pods, shuffled)]
    assert [it.metadata.uid for it in orders[0]] == [it.metadata.uid for it in orders[1]]


def test_deletion_age_ratio_is_relative_to_youngest_ready_pod():
    young, old, not_ready = pod("y", ready=1, created=600), pod("o", ready=1, created=3900), pod("w", created=60)
    assert deletion_age_ratios([young, old, not_ready], [old, not_ready], NOW) == [6]
    assert deletion_age_ratios([not_ready], [not_ready], NOW) == []
    assert deletion_age_ratios([pod("new", ready=0)], [pod("new", ready=0)], NOW) == [], "nothing to divide by"
