"""Counts and durations of authorization and impersonation; test_metrics_page.py has them in a server."""

from __future__ import annotations

from kubeloop.devcluster.authorization.access_metrics import ACCESS_SECONDS, AccessMetrics, Durations


def test_durations_are_counted_in_the_bucket_of_their_upper_limit():
    durations = Durations((0.1, 0.2))
    for seconds in (0.05, 0.1, 0.15, 9.0):
        durations.observe(("a",), seconds)
    assert durations.buckets == {("a",): [2, 1, 1]}
    assert (durations.count(("a",)), durations.count(("b",))) == (4, 0)
    assert durations.seconds["a",] == 9.3


def test_buckets_are_those_of_kube_apiserver():
    assert (ACCESS_SECONDS[0], ACCESS_SECONDS[-1], len(ACCESS_SECONDS)) == (0.001, 16.384, 15)


def test_decisions_are_counted_by_type_and_name():
    metrics = AccessMetrics()
    metrics.allowed_by("RBAC")
    metrics.allowed_by("RBAC")
    assert metrics.decisions == {("RBAC", "rbac"): 2}
    metrics.reset()
    assert not metrics.decisions
