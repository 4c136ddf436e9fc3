"""Sizes of a Deployment's ReplicaSets, as the documentation of Deployments and the source of v1.36 define them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kubeloop.controllers.deployment import rolling_update
from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS, MAX_REPLICAS
from kubeloop.controllers.deployment.rolling_update import ReplicaSetResize
from kubeloop.controllers.runtime.integers import InvalidIntOrPercent
from kubeloop.kube.objects.api_types import DeploymentStatus
from support.objects.deployments import deployment_with_strategy, replica_set, rolling_update_deployment


def sizes(resizes: Iterable[ReplicaSetResize]) -> list[tuple[str, int]]:
    return [(resize.rs.metadata.name, resize.replicas) for resize in resizes]


@pytest.mark.parametrize(
    ("max_surge", "max_unavailable", "desired", "surge", "unavailable"),
    [
        pytest.param("25%", "25%", 10, 3, 2, id="surge is rounded up, unavailable down"),
        pytest.param("25%", "25%", 4, 1, 1, id="whole numbers are not rounded"),
        pytest.param("1%", "1%", 1, 1, 0, id="the least surge is 1"),
        pytest.param("34%", "66%", 3, 2, 1, id="shares of 1.02 and 1.98 Pods"),
        pytest.param("100%", "100%", 7, 7, 7, id="all Pods"),
        pytest.param("120%", 0, 5, 6, 0, id="more than all Pods"),
        pytest.param(2, 3, 1, 2, 3, id="integers are not limited by the size"),
        pytest.param(1, 0, 5, 1, 0, id="surge only"),
        pytest.param(0, 1, 5, 0, 1, id="unavailable only"),
        pytest.param(0, "10%", 9, 0, 1, id="both 0 after rounding: 1 unavailable"),
        pytest.param("0%", "0%", 3, 0, 1, id="0 percent of both: 1 unavailable"),
        pytest.param("25%", "25%", 0, 0, 1, id="percentages of no replicas: 1 unavailable"),
        pytest.param(None, None, 5, 0, 1, id="unset counts as 0"),
        pytest.param(None, 2, 5, 0, 2, id="unset surge"),
        pytest.param(2, None, 5, 2, 0, id="unset unavailable"),
    ],
)
def test_fenceposts_are_rounded_from_percentages(max_surge, max_unavailable, desired, surge, unavailable):
    assert rolling_update.resolve_fenceposts(max_surge, max_unavailable, desired) == (surge, unavailable)


@pytest.mark.parametrize(("max_surge", "max_unavailable"), [("3", 0), (0, "3"), ("x%", 0), (0, "%"), ("", 1)])
def test_fenceposts_refuse_text_that_is_no_percentage(max_surge, max_unavailable):
    with pytest.raises(InvalidIntOrPercent):
        rolling_update.resolve_fenceposts(max_surge, max_unavailable, 5)


@pytest.mark.parametrize(
    ("deployment", "surge", "unavailable"),
    [
        pytest.param(rolling_update_deployment(10, "25%", "25%"), 3, 2, id="percentages"),
        pytest.param(rolling_update_deployment(3, 5, 4), 5, 3, id="at most all replicas are unavailable"),
        pytest.param(rolling_update_deployment(3, 0, 3), 0, 3, id="exactly all replicas are unavailable"),
        pytest.param(rolling_update_deployment(0, 2, 2), 2, 0, id="no replica can be unavailable"),
        pytest.param(rolling_update_deployment(1, 0, 1), 0, 1, id="one replica"),
        pytest.param(rolling_update_deployment(5, "x", 1), 0, 0, id="invalid surge"),
        pytest.param(rolling_update_deployment(5, 1, "x"), 0, 0, id="invalid unavailable"),
        pytest.param(deployment_with_strategy(5, "RollingUpdate"), 0, 1, id="without rollingUpdate"),
        pytest.param(deployment_with_strategy(5, "Recreate"), 0, 0, id="Recreate"),
    ],
)
def test_limits_of_a_deployment(deployment, surge, unavailable):
    assert rolling_update.max_surge(deployment) == surge
    assert rolling_update.max_unavailable(deployment) == unavailable


@pytest.mark.parametrize(
    ("replicas", "surge", "old", "new", "size"),
    [
        pytest.param(10, "25%", [10], 0, 3, id="the first step is maxSurge, rounded up"),
        pytest.param(10, "25%", [10], 3, 3, id="the total is at its limit"),
        pytest.param(10, "25%", [12], 3, 3, id="the total is above its limit"),
        pytest.param(10, "25%", [8], 3, 5, id="room left by old Pods"),
        pytest.param(10, "25%", [5, 3], 3, 5, id="room left by several old ReplicaSets"),
        pytest.param(10, "25%", [], 0, 10, id="no old Pods: not above spec.replicas"),
        pytest.param(10, "25%", [1], 9, 10, id="the last step"),
        pytest.param(10, "25%", [1], 10, 10, id="complete"),
        pytest.param(5, 0, [4], 0, 1, id="without surge only what an old Pod left"),
        pytest.param(5, 0, [5], 0, 0, id="without surge no room"),
        pytest.param(5, 1, [], 8, 8, id="above the limit it is not scaled down here"),
        pytest.param(5, 10, [], 8, 5, id="below the limit it gets spec.replicas"),
    ],
)
def test_size_of_the_new_replica_set_within_surge(replicas, surge, old, new, size):
    deployment = rolling_update_deployment(replicas, surge)
    all_rss = [replica_set(f"rs-{number}", count) for number, count in enumerate([*old, new])]
    assert rolling_update.new_rs_new_replicas(deployment, all_rss, new) == size


def test_size_of_the_new_replica_set_by_recreate():
    all_rss = [replica_set("old", 4), replica_set("new", 2)]
    assert rolling_update.new_rs_new_replicas(deployment_with_strategy(5, "Recreate"), all_rss, 2) == 5


@pytest.mark.parametrize(
    ("deployment", "error", "message"),
    [
        pytest.param(
            deployment_with_strategy(5, "Canary"),
            rolling_update.UnsupportedStrategy,
            "deployment type Canary isn't supported",
            id="unknown strategy",
        ),
        pytest.param(deployment_with_strategy(5, "RollingUpdate"), InvalidIntOrPercent, "nil value", id="no maxSurge"),
        pytest.param(rolling_update_deployment(5, "x"), InvalidIntOrPercent, "not a percentage", id="invalid maxSurge"),
    ],
)
def test_size_of_the_new_replica_set_without_valid_strategy(deployment, error, message):
    with pytest.raises(error, match=message):
        rolling_update.new_rs_new_replicas(deployment, [], 0)


def test_active_replica_sets_have_replicas():
    assert [rs.metadata.name for rs in rolling_update.filter_active([replica_set("a", 0), replica_set("b", 1)])] == [
        "b"
    ]


@pytest.mark.parametrize(
    ("replicas", "unavailable", "old", "new", "budget"),
    [
        pytest.param(10, 2, [8], (5, 0), 0, id="unavailable new Pods use up the surplus"),
        pytest.param(10, 2, [8], (5, 5), 5, id="all new Pods are available"),
        pytest.param(10, 2, [8], (5, 2), 2, id="some new Pods are available"),
        pytest.param(10, 0, [10], (3, 3), 3, id="only the surge without maxUnavailable"),
        pytest.param(10, 2, [10], (0, 0), 2, id="maxUnavailable before the first new Pod"),
        pytest.param(10, 2, [4], (4, 0), -4, id="fewer than the minimum"),
        pytest.param(10, 2, [3, 5], (5, 5), 5, id="several old ReplicaSets"),
        pytest.param(10, 2, [0, 0], (10, 10), 0, id="no old Pods"),
        pytest.param(10, 2, [], (10, 10), 0, id="no old ReplicaSet"),
        pytest.param(10, 2, [1], (10, 10), 3, id="one old Pod: the budget may exceed what is left"),
    ],
)
def test_budget_of_the_scale_down(replicas, unavailable, old, new, budget):
    deployment = rolling_update_deployment(replicas, 3, unavailable)
    old_rss = [replica_set(f"old-{number}", size) for number, size in enumerate(old)]
    new_rs = replica_set("new", *new)
    assert rolling_update.plan_scale_down_budget(deployment, [*old_rss, new_rs], old_rss, new_rs) == budget


@pytest.mark.parametrize(
    ("old", "budget", "planned"),
    [
        pytest.param([("a", 3, 1)], 0, [], id="no budget"),
        pytest.param([("a", 3, 1)], -1, [], id="negative budget"),
        pytest.param([("a", 3, 3)], 2, [], id="all Pods are available"),
        pytest.param([("a", 0, 0)], 2, [], id="no Pods"),
        pytest.param([("a", 3, 1)], 5, [("a", 1)], id="all unavailable Pods"),
        pytest.param([("a", 3, 1)], 1, [("a", 2)], id="as many as the budget"),
        pytest.param([("a", 3, 1), ("b", 4, 0)], 4, [("a", 1), ("b", 2)], id="the next gets the rest of the budget"),
        pytest.param([("a", 3, 1), ("b", 4, 0)], 2, [("a", 1)], id="the first takes the whole budget"),
        pytest.param([("a", 0, 0), ("b", 2, 2), ("c", 2, 1)], 3, [("c", 1)], id="others are skipped"),
    ],
)
def test_unhealthy_pods_are_removed_first(old, budget, planned):
    old_rss = [replica_set(*row) for row in old]
    assert sizes(rolling_update.plan_unhealthy_cleanup(old_rss, budget)) == planned


def test_more_available_pods_than_replicas_are_an_error():
    with pytest.raises(ValueError, match="default/a has 2 replicas and reports 3 of them available: not scaled down"):
        list(rolling_update.plan_unhealthy_cleanup([replica_set("a", 2, 3)], 1))


@pytest.mark.parametrize(
    ("old", "new", "planned"),
    [
        pytest.param([("a", 10, 10)], (0, 0), [("a", 8)], id="maxUnavailable"),
        pytest.param([("a", 8, 8)], (0, 0), [], id="exactly the minimum"),
        pytest.param([("a", 7, 7)], (0, 0), [], id="fewer than the minimum"),
        pytest.param([("a", 8, 8)], (3, 0), [], id="unavailable new Pods do not count"),
        pytest.param([("a", 8, 8)], (3, 1), [("a", 7)], id="one new Pod is available"),
        pytest.param([("a", 3, 3), ("b", 6, 6)], (4, 4), [("a", 0), ("b", 4)], id="the next gets the rest"),
        pytest.param([("a", 5, 5), ("b", 6, 6)], (2, 2), [("a", 0)], id="the first takes all"),
        pytest.param([("a", 0, 0), ("b", 9, 9)], (1, 1), [("b", 7)], id="empty ones are skipped"),
    ],
)
def test_old_pods_are_removed_above_the_minimum(old, new, planned):
    deployment = rolling_update_deployment(10, 3, 2)
    old_rss = [replica_set(*row) for row in old]
    all_rss = [*old_rss, replica_set("new", *new)]
    assert sizes(rolling_update.plan_old_scale_down(deployment, all_rss, old_rss)) == planned


@pytest.mark.parametrize(
    ("size", "available", "annotation", "saturated"),
    [
        pytest.param(3, 3, 3, True, id="all equal"),
        pytest.param(2, 3, 3, False, id="another size"),
        pytest.param(3, 2, 3, False, id="a Pod is not available"),
        pytest.param(3, 3, 2, False, id="scaled for another size"),
        pytest.param(3, 3, None, False, id="no annotation"),
        pytest.param(2, 2, 2, False, id="the Deployment has another size"),
    ],
)
def test_saturation(size, available, annotation, saturated):
    rs = replica_set("new", size, available, desired=annotation)
    assert rolling_update.is_saturated(rolling_update_deployment(3), rs) is saturated


def test_no_replica_set_is_not_saturated():
    assert rolling_update.is_saturated(rolling_update_deployment(0), None) is False


@pytest.mark.parametrize(
    ("replicas", "surge", "size", "maximum_before", "to_add", "added", "share"),
    [
        pytest.param(20, 5, 10, 15, 10, 0, 7, id="up: 10 * 25 / 15 = 16.7"),
        pytest.param(20, 5, 10, 15, 10, 5, 5, id="up: at most what is left"),
        pytest.param(5, 0, 6, 10, -5, 0, -3, id="down: 6 * 5 / 10 = 3"),
        pytest.param(5, 0, 6, 10, -5, -3, -2, id="down: at most what is left"),
        pytest.param(5, 0, 5, 10, -5, 0, -2, id="a half is rounded up"),
        pytest.param(0, 3, 4, 10, -6, 0, -4, id="to 0: the whole size"),
        pytest.param(0, 3, 4, 10, -6, -3, -3, id="to 0: at most what is left"),
        pytest.param(20, 5, 0, 15, 10, 0, 0, id="an empty ReplicaSet has no share"),
        pytest.param(20, 5, 10, 15, 0, 0, 0, id="nothing to add"),
        pytest.param(20, 5, 10, 15, 1, 0, 1, id="one to add"),
        pytest.param(20, 5, 10, 15, 10, 10, 0, id="nothing left"),
        pytest.param(9, 3, 4, None, 9, 0, 2, id="no annotation: status.replicas, 4 * 12 / 8"),
        pytest.param(9, 3, 4, 0, 9, 0, 2, id="annotation 0: status.replicas"),
        pytest.param(9, 3, 4, "x", 9, 0, 2, id="invalid annotation: status.replicas"),
    ],
)
def test_share_of_a_scaling(replicas, surge, size, maximum_before, to_add, added, share):
    deployment = rolling_update_deployment(replicas, surge, status=DeploymentStatus(replicas=8))
    rs = replica_set("rs", size, maximum=maximum_before)
    assert rolling_update.replica_set_proportion(rs, deployment, to_add, added) == share


def test_share_without_any_former_size():
    """The annotation is lost and no Pod was ever created: there is no proportion."""
    assert rolling_update.replica_set_proportion(replica_set("rs", 4), rolling_update_deployment(9, 3), 5, 0) == 0


@pytest.mark.parametrize(
    ("new", "old", "name"),
    [
        pytest.param(None, [], None, id="no ReplicaSet"),
        pytest.param(("new", 3), [], "new", id="only the new one"),
        pytest.param(("new", 0), [], "new", id="only the new one, empty"),
        pytest.param(("new", 0), [("a", 0)], "new", id="none active: the new one"),
        pytest.param(None, [("a", 0), ("b", 0)], "b", id="none active, no new one: the newest"),
        pytest.param(("new", 0), [("a", 2), ("b", 0)], "a", id="an old one is the only active one"),
        pytest.param(("new", 1), [("a", 0), ("b", 0)], "new", id="the new one is the only active one"),
        pytest.param(("new", 1), [("a", 1)], None, id="two are active"),
        pytest.param(None, [("a", 1), ("b", 1)], None, id="two old ones are active"),
    ],
)
def test_only_active_or_else_latest_replica_set(new, old, name):
    old_rss = [replica_set(*row, age=90 - number) for number, row in enumerate(old)]
    rs = rolling_update.find_active_or_latest(None if new is None else replica_set(*new), old_rss)
    assert (None if rs is None else rs.metadata.name) == name


@pytest.mark.parametrize(
    ("replicas", "surge", "old", "new", "planned", "forced"),
    [
        pytest.param(5, 1, [], ("new", 3), [("new", 5)], False, id="one ReplicaSet gets the size"),
        pytest.param(5, 1, [], ("new", 5), [], False, id="one ReplicaSet has the size"),
        pytest.param(5, 1, [("a", 3, 13)], ("new", 0), [("a", 5)], False, id="the only active one is old"),
        pytest.param(5, 1, [("a", 0, 13)], ("new", 0), [("new", 5)], False, id="none is active"),
        # The example "Proportional scaling" of the documentation: 10 replicas, maxSurge 3; 8 old, 5 new Pods.
        pytest.param(15, 3, [("a", 8, 13)], ("new", 5, 13), [("a", 11), ("new", 7)], True, id="proportional up"),
        pytest.param(5, 3, [("a", 8, 13)], ("new", 5, 13), [("a", 5), ("new", 3)], True, id="proportional down"),
        pytest.param(10, 3, [("a", 8, 13)], ("new", 5, 13), [("a", 8), ("new", 5)], True, id="annotations only"),
        pytest.param(0, 3, [("a", 8, 13)], ("new", 5, 13), [("a", 0), ("new", 0)], True, id="to 0: no surge"),
        pytest.param(
            16,
            0,
            [("a", 5, 15), ("b", 5, 15)],
            ("new", 5, 15),
            [("new", 6), ("b", 5), ("a", 5)],
            True,
            id="up: the newest of equal size gets the remainder",
        ),
        pytest.param(
            14,
            0,
            [("a", 5, 15), ("b", 5, 15)],
            ("new", 5, 15),
            [("a", 4), ("b", 5), ("new", 5)],
            True,
            id="down: the oldest of equal size gives the remainder",
        ),
        pytest.param(
            1,
            0,
            [("a", 2, 1), ("b", 2, 1)],
            ("new", 2, 1),
            [("a", 0), ("b", 2), ("new", 2)],
            True,
            id="never below 0 with wrong annotations",
        ),
        pytest.param(
            20, 0, [("a", 5, 10)], ("new", 0, 10), [("a", 20)], False, id="an empty new one is not scaled from 0"
        ),
    ],
)
def test_scaling_is_distributed_over_replica_sets(replicas, surge, old, new, planned, forced):
    old_rss = [
        replica_set(name, size, maximum=maximum, age=90 - number) for number, (name, size, maximum) in enumerate(old)
    ]
    new_rs = replica_set(*new[:2], maximum=new[2] if len(new) > 2 else None)
    scaling = rolling_update.plan_scaling(rolling_update_deployment(replicas, surge), new_rs, old_rss)
    assert (sizes(scaling.resizes), scaling.forced) == (planned, forced)


def test_scaling_of_a_complete_rollout_removes_old_pods():
    """For example of a ReplicaSet that was adopted afterwards."""
    old_rss = [replica_set("a", 2), replica_set("b", 0), replica_set("c", 1)]
    new_rs = replica_set("new", 3, 3, desired=3)
    scaling = rolling_update.plan_scaling(rolling_update_deployment(3), new_rs, old_rss)
    assert (sorted(sizes(scaling.resizes)), scaling.forced) == ([("a", 0), ("c", 0)], False)


def test_scaling_by_recreate_leaves_several_active_ones():
    scaling = rolling_update.plan_scaling(
        deployment_with_strategy(5, "Recreate"), replica_set("new", 1), [replica_set("a", 2)]
    )
    assert scaling == rolling_update.Scaling()


def test_scaling_without_new_replica_set_is_distributed_over_old_ones():
    old_rss = [replica_set("a", 2, maximum=3, age=9), replica_set("b", 1, maximum=3, age=8)]
    scaling = rolling_update.plan_scaling(rolling_update_deployment(6), None, old_rss)
    assert (sizes(scaling.resizes), scaling.forced) == ([("a", 4), ("b", 2)], True)


@pytest.mark.parametrize(
    ("rows", "scaled"),
    [
        pytest.param([(3, 3)], False, id="the same size"),
        pytest.param([(3, 4)], True, id="another size"),
        pytest.param([(3, 3), (1, 2)], True, id="one of several has another size"),
        pytest.param([(0, 4)], False, id="not active"),
        pytest.param([(3, None)], False, id="no annotation"),
        pytest.param([], False, id="no ReplicaSet"),
    ],
)
def test_scaling_event_is_a_changed_size(rows, scaled):
    all_rss = [replica_set(f"rs-{number}", size, desired=desired) for number, (size, desired) in enumerate(rows)]
    assert rolling_update.is_scaling_event(rolling_update_deployment(3), all_rss) is scaled


@pytest.mark.parametrize(
    ("desired", "maximum", "changed"),
    [
        pytest.param(4, 5, {}, id="unchanged"),
        pytest.param(3, 5, {DESIRED_REPLICAS: "4"}, id="desired-replicas"),
        pytest.param(4, 4, {MAX_REPLICAS: "5"}, id="max-replicas"),
        pytest.param(None, None, {DESIRED_REPLICAS: "4", MAX_REPLICAS: "5"}, id="missing"),
    ],
)
def test_size_annotations_contain_the_surge(desired, maximum, changed):
    deployment = rolling_update_deployment(4, "25%")
    assert rolling_update.replicas_annotations(deployment) == {DESIRED_REPLICAS: "4", MAX_REPLICAS: "5"}
    rs = replica_set("rs", 4, desired=desired, maximum=maximum)
    assert rolling_update.changed_replicas_annotations(deployment, rs) == changed
