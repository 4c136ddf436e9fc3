"""Pods to create and delete so that every node has the pod it should have."""

from __future__ import annotations

import pytest

from kubeloop.controllers.daemonset.node_states import Revision
from kubeloop.controllers.daemonset.pod_plan import plan_pods
from support.objects.daemon_sets import NEW, NOW, pod, state


def plan(*states, surges=False, backoff=0.0, revision=NEW):
    result = plan_pods(states, revision, NOW, surges=surges, backoff_seconds=lambda _node: backoff)
    return result.create, [each.metadata.name for each in result.delete]


FAILED, SUCCEEDED = pod("failed", phase="Failed"), pod("succeeded", phase="Succeeded")
GONE = pod("gone", deleted=True)


@pytest.mark.parametrize(
    ("states", "surges", "expected"),
    [
        pytest.param([state("n")], False, (["n"], []), id="no pod: create"),
        pytest.param([state("n", runs=False)], False, ([], []), id="ineligible, no pod: nothing"),
        pytest.param([state("n", pod("a"))], False, ([], []), id="one pod: nothing"),
        pytest.param([state("n", pod("a"), runs=False)], False, ([], []), id="NoSchedule: the pod stays"),
        pytest.param(
            [state("n", pod("a"), GONE, runs=False, continues=False)], False, ([], ["a"]), id="NoExecute: delete"
        ),
        pytest.param(
            [state("n", pod("a", age_seconds=1), pod("b"))], False, ([], ["a"]), id="two pods: delete the newer"
        ),
        pytest.param([state("n", GONE)], False, ([], []), id="terminating: wait"),
        pytest.param([state("n", GONE)], True, (["n"], []), id="terminating with surge: create"),
        pytest.param([state("n", GONE, FAILED)], False, ([], ["failed"]), id="terminating, then failed: delete"),
        pytest.param([state("n", GONE, pod("a"))], False, ([], []), id="terminating, then one pod: nothing"),
        pytest.param([state("n", GONE, runs=False)], True, ([], []), id="terminating with surge, ineligible: wait"),
        pytest.param([state("n", FAILED)], False, ([], ["failed"]), id="failed: delete"),
        pytest.param([state("n", SUCCEEDED)], False, ([], ["succeeded"]), id="succeeded: delete"),
        pytest.param([state("n", FAILED)], True, (["n"], ["failed"]), id="failed with surge: replace"),
        pytest.param([state("n", pod("a", "old"), pod("b", ready=False))], True, ([], []), id="surging: both stay"),
        pytest.param([state("n", pod("a", "old"), pod("b"))], True, ([], ["a"]), id="surged: delete the old one"),
        pytest.param(
            [state("n", pod("a", "old", ready=False), pod("b", ready=False))],
            True,
            ([], ["a"]),
            id="old one not ready: delete it",
        ),
        pytest.param(
            [state("n", pod("a", "old"), pod("b", "older", age_seconds=1))],
            True,
            ([], ["b"]),
            id="two old ones: delete the newer",
        ),
        pytest.param(
            [state("n", pod("a", node=""), pod("b"), exists=False)],
            False,
            ([], ["a"]),
            id="no node: delete the unbound",
        ),
    ],
)
def test_plan_of_a_node(states, surges, expected):
    assert plan(*states, surges=surges) == expected


def test_surge_waits_for_min_ready_seconds():
    node = state("n", pod("a", "old"), pod("b", ready_seconds=5))
    assert plan(node, surges=True, revision=Revision("new", None, 10)) == ([], [])
    assert plan(node, surges=True, revision=Revision("new", None, 4)) == ([], ["a"])


def test_failed_pods_stay_during_backoff():
    waits = {"a": 5.0, "b": 3.0, "c": 0.0}
    states = [state(name, pod(name, phase="Failed")) for name in waits]
    result = plan_pods(states, NEW, NOW, surges=False, backoff_seconds=waits.__getitem__)
    assert [each.metadata.name for each in result.finished] == ["c"]
    assert result.delete == result.finished
    assert result.retry_seconds == 3.0
