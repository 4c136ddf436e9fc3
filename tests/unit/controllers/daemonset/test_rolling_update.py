"""Rolling update of a DaemonSet: limits, replacement and surge."""

from __future__ import annotations

import pytest

from kubeloop.controllers.daemonset.node_states import NodeStates, Revision
from kubeloop.controllers.daemonset.rolling_update import (
    InvalidLimits,
    RollingUpdateLimits,
    allows_surge,
    plan_rolling_update,
    rolling_update_limits,
)
from support.objects.daemon_sets import NEW, NOW, daemon_set, pod, rolling_update, state


def old(name: str, **options):
    return pod(name, "old", **options)


def plan(*states, surge=0, unavailable=1, complete=0, revision=NEW):
    limits = RollingUpdateLimits(surge, unavailable)
    result = plan_rolling_update(NodeStates(states, complete), revision, limits, NOW)
    return result.create, [each.metadata.name for each in result.delete]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param(rolling_update(maxSurge=0, maxUnavailable=3), (0, 3), id="numbers"),
        pytest.param(rolling_update(maxSurge="25%", maxUnavailable=0), (3, 0), id="percent, rounded up"),
        pytest.param(rolling_update(maxSurge=0, maxUnavailable="1%"), (0, 1), id="percent of few nodes"),
        pytest.param(rolling_update(maxSurge=0, maxUnavailable=0), (0, 1), id="both zero"),
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, (0, 1), id="OnDelete"),
    ],
)
def test_limits(strategy, expected):
    ds = daemon_set(**strategy)
    assert rolling_update_limits(ds, 10) == expected
    assert allows_surge(ds) == (expected[0] > 0)


def test_limits_without_desired_nodes_stay_zero():
    """Old pods on nodes that should run none, but may go on to run one, are not replaced."""
    assert rolling_update_limits(daemon_set(**rolling_update(maxSurge=0, maxUnavailable="50%")), 0) == (0, 0)


@pytest.mark.parametrize("limits", [{"maxUnavailable": "x"}, {"maxSurge": "x", "maxUnavailable": 1}, {"maxSurge": 1}])
def test_invalid_limits_are_an_error(limits):
    with pytest.raises(InvalidLimits, match="couldn't get unavailable numbers: invalid value for Max"):
        rolling_update_limits(daemon_set(**rolling_update(**limits)), 10)


@pytest.mark.parametrize(
    ("states", "unavailable", "expected"),
    [
        pytest.param([state("a", old("a")), state("b", old("b"))], 1, ["a"], id="as many as the limit"),
        pytest.param(
            [state("a", old("a")), state("b", pod("b", ready=False))], 1, [], id="an unavailable new pod counts"
        ),
        pytest.param([state("a", old("a")), state("b")], 1, [], id="a missing pod counts"),
        pytest.param([state("b", runs=False), state("a", old("a"))], 1, ["a"], id="none where none should run"),
        pytest.param([state("a", old("a")), state("b", old("b", deleted=True))], 1, [], id="a terminating pod counts"),
        pytest.param(
            [state("a", old("a")), state("b", old("b", ready=False))], 1, ["b"], id="unavailable old pods first"
        ),
        pytest.param(
            [state("a", old("a", ready=False)), state("b", old("b", ready=False))],
            1,
            ["a", "b"],
            id="all unavailable old pods",
        ),
        pytest.param([state("a", old("a"), pod("x")), state("b", old("b"))], 1, [], id="a node with two pods counts"),
        pytest.param(
            [state("a", old("a"), old("x")), state("b", old("b"))], 1, [], id="a node with two old pods counts"
        ),
        pytest.param([state("a", old("a")), state("b", runs=False)], 1, ["a"], id="ineligible nodes do not count"),
    ],
)
def test_replacement_respects_max_unavailable(states, unavailable, expected):
    assert plan(*states, unavailable=unavailable) == ([], expected)


@pytest.mark.parametrize(
    ("states", "surge", "complete", "expected"),
    [
        pytest.param([state("a", old("a")), state("b", old("b"))], 1, 0, (["a"], []), id="as many as the limit"),
        pytest.param(
            [state("a", old("a")), state("b", old("b"), pod("x", ready=False))],
            1,
            0,
            ([], []),
            id="a surging node counts",
        ),
        pytest.param(
            [state("a", old("a")), state("b", old("b"), pod("x"))], 1, 0, (["a"], ["b"]), id="available: delete the old"
        ),
        pytest.param(
            [state("a", old("a", ready=False)), state("b", old("b", ready=False))],
            1,
            0,
            (["a", "b"], []),
            id="unavailable old pods do not count",
        ),
        pytest.param(
            [state("a", old("a", ready=False), runs=False)], 1, 0, ([], ["a"]), id="unavailable on an ineligible node"
        ),
        pytest.param(
            [state("a", old("a"), runs=False), state("b", pod("b", ready=False))],
            1,
            0,
            ([], []),
            id="available pod stays until its successor is",
        ),
        pytest.param(
            [state("a", old("a"), runs=False), state("b", pod("b"))], 1, 0, ([], ["a"]), id="successor is available"
        ),
        pytest.param([state("a", old("a"), runs=False)], 1, 3, ([], ["a"]), id="complete nodes are available"),
        pytest.param([state("a", old("a"), old("x"))], 1, 0, ([], []), id="two old pods: left to the plan of pods"),
        pytest.param(
            [state("a", old("a"), old("x")), state("b", old("b")), state("c", old("c"))],
            2,
            0,
            (["b"], []),
            id="a node with two old pods counts once",
        ),
    ],
)
def test_surge_respects_max_surge(states, surge, complete, expected):
    assert plan(*states, surge=surge, complete=complete) == expected


def test_new_pods_count_as_available_after_min_ready_seconds():
    states = [state("a", old("a")), state("b", pod("b", ready_seconds=5))]
    assert plan(*states, revision=Revision("new", None, 10)) == ([], [])
    assert plan(*states, revision=Revision("new", None, 5)) == ([], ["a"])


@pytest.mark.parametrize(
    ("strategy", "surges"),
    [
        pytest.param(rolling_update(maxSurge=1, maxUnavailable=0), True, id="surge"),
        pytest.param({"updateStrategy": {"type": "RollingUpdate"}}, False, id="rolling update without limits"),
        pytest.param(
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxSurge": 1}}}, False, id="limits of OnDelete"
        ),
        pytest.param(rolling_update(maxSurge="1%", maxUnavailable=0), True, id="a percentage is rounded up"),
        pytest.param(rolling_update(maxSurge="x", maxUnavailable=0), False, id="neither an integer nor a percentage"),
    ],
)
def test_surge_needs_a_rolling_update(strategy, surges):
    assert allows_surge(daemon_set(**strategy)) is surges
