"""Deletion order of Pods: the optimized order against pairwise comparison, and age ratios."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.replicaset.pod_deletion_order import (
    DELETION_COST,
    UNKNOWN_AGE,
    AgeBuckets,
    InvalidDeletionCost,
    TiedPod,
    deletion_age_ratios,
    deletion_cost,
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
    metadata["annotations"] = more.pop("annotations", {})
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


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        (None, 0),
        ("0", 0),
        ("1", 1),
        ("9", 9),
        ("99", 99),
        ("-5", -5),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
    ],
)
def test_deletion_cost_is_an_int32(text, cost):
    assert deletion_cost({} if text is None else {DELETION_COST: text}) == cost


@pytest.mark.parametrize("text", ["", "+1", "01", "00", " 1", "1.0", "x", "-", "2147483648", "-2147483649"])
def test_deletion_cost_in_another_form_is_invalid(text):
    with pytest.raises(InvalidDeletionCost):
        deletion_cost({DELETION_COST: text})


def costing(name: str, cost: str, **more: Any) -> Pod:
    return pod(name, annotations={DELETION_COST: cost}, **more)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(costing("z", "9", node="", ready=9), costing("a", "0"), id="unassigned before assigned"),
        pytest.param(costing("z", "9", phase="Pending"), costing("a", "0", phase="Unknown"), id="Pending, Unknown"),
        pytest.param(costing("z", "9", phase="Unknown"), costing("a", "0"), id="Unknown before Running"),
        pytest.param(costing("z", "9"), costing("a", "0", ready=9), id="not ready before ready, whatever the cost"),
        pytest.param(costing("z", "-1", ready=900), costing("a", "0", ready=9), id="lower cost before ready time"),
        pytest.param(costing("z", "0", ready=900), costing("a", "1", ready=9), id="cost 0 before 1"),
        pytest.param(pod("z", ready=900), costing("a", "1", ready=9), id="no cost counts as 0"),
        pytest.param(costing("z", "x", ready=900), costing("a", "1", ready=9), id="an invalid cost counts as 0"),
        pytest.param(pod("z", ready=9, restarts=0), pod("a", ready=900, restarts=9), id="ready time before restarts"),
        pytest.param(pod("z", ready=-1), pod("a", ready=9), id="an unknown ready time counts as the shortest"),
        pytest.param(
            pod("z", ready=9, restarts=2, created=900), pod("a", ready=9, restarts=1, created=9), id="more restarts"
        ),
        pytest.param(pod("z", ready=9, created=9), pod("a", ready=9, created=900), id="newer before older"),
        pytest.param(pod("a", ready=9, created=9), pod("z", ready=9, created=9), id="equal: by UID"),
        pytest.param(pod("a", ready=512, created=9), pod("z", ready=400, created=9), id="about as long: by UID"),
    ],
)
def test_deletion_order_of_two_pods(first, second):
    counts = active_pods_per_node([first, second])
    for order in ([first, second], [second, first]):
        assert [ordered.metadata.name for ordered in deletion_order(order, counts, NOW)] == [
            first.metadata.name,
            second.metadata.name,
        ]


def test_deletion_order_prefers_nodes_with_many_related_pods():
    pods = [pod("a", ready=9, node="few"), pod("b", ready=900, node="many"), pod("c", ready=9, node="unrelated")]
    order = deletion_order(pods, {"few": 1, "many": 2}, NOW)
    assert [ordered.metadata.name for ordered in order] == ["b", "a", "c"]


def test_deletion_order_without_cost_ignores_the_annotation():
    pods = [costing("cheap", "-1", ready=900), costing("expensive", "1", ready=9)]
    assert [ordered.metadata.name for ordered in deletion_order(pods, {}, NOW)] == ["cheap", "expensive"]
    ignored = deletion_order(pods, {}, NOW, by_cost=False)
    assert [ordered.metadata.name for ordered in ignored] == ["expensive", "cheap"]
    assert [deleted.metadata.name for deleted in pods_to_delete(pods, dict, 1, NOW)] == ["cheap"]
    deleted_without_cost = pods_to_delete(pods, dict, 1, NOW, by_cost=False)
    assert [deleted.metadata.name for deleted in deleted_without_cost] == ["expensive"]


@pytest.mark.parametrize("count", [2, 3])
def test_deletion_of_all_pods_needs_no_order(count):
    def related() -> dict[str, int]:
        raise AssertionError("related Pods are not read")

    pods = [pod("ready", ready=900), pod("waiting")]
    assert pods_to_delete(pods, related, count, NOW) == pods


@pytest.mark.parametrize(
    ("age", "bucket"),
    [
        pytest.param(None, UNKNOWN_AGE, id="unknown"),
        pytest.param(timedelta(seconds=-5), -1, id="in the future"),
        pytest.param(timedelta(0), -1, id="now"),
        pytest.param(timedelta(microseconds=1), 9, id="1,000 ns: 2**9 to 2**10"),
        pytest.param(timedelta(seconds=1), 29, id="10**9 ns"),
        pytest.param(timedelta(seconds=2), 30, id="2 * 10**9 ns"),
        pytest.param(timedelta(hours=1), 41, id="3.6 * 10**12 ns"),
    ],
)
def test_age_buckets_are_logarithms_of_nanoseconds(age, bucket):
    ages = AgeBuckets(NOW)
    since = None if age is None else NOW - age
    assert ages[since] == bucket
    assert ages[since] == bucket, "the stored value is the same"


def test_deletion_age_ratio_is_truncated():
    pods = [pod("young", ready=1, created=10), pod("old", ready=1, created=29)]
    assert deletion_age_ratios(pods, pods, NOW) == [1, 2]


@pytest.mark.parametrize(
    ("now", "ratios"),
    [
        pytest.param(NOW, [], id="the youngest was created now"),
        pytest.param(NOW + timedelta(microseconds=999), [], id="below a millisecond"),
        pytest.param(NOW + timedelta(milliseconds=1), [1, 1001], id="a millisecond"),
        pytest.param(NOW + timedelta(milliseconds=3), [1, 334], id="three milliseconds"),
    ],
)
def test_deletion_age_ratio_counts_milliseconds(now, ratios):
    pods = [pod("young", ready=0, created=0), pod("old", ready=0, created=1)]
    assert deletion_age_ratios(pods, pods, now) == ratios


@pytest.mark.parametrize(
    ("first", "second", "before"),
    [
        pytest.param({"created": 9}, {"created": 9}, False, id="same creation time: neither is first"),
        pytest.param({"created": 512}, {"created": 400}, True, id="about the same age: by UID"),
        pytest.param({"created": 9}, {"created": 900}, True, id="younger first"),
        pytest.param({"created": 900}, {"created": 9}, False, id="older last"),
        pytest.param({"restarts": 2}, {"restarts": 1}, True, id="more restarts first"),
        pytest.param({"restarts": 1}, {"restarts": 2}, False, id="fewer restarts last"),
        pytest.param({"ready": 9}, {"ready": 10}, True, id="other ready time: by UID"),
    ],
)
def test_tied_pods_are_compared_in_pairs(first, second, before):
    ages = AgeBuckets(NOW)
    a, b = (
        TiedPod(pod(name, **{"ready": 9, "created": 9} | options), ages)
        for name, options in (("a", first), ("b", second))
    )
    assert (a < b) is before
