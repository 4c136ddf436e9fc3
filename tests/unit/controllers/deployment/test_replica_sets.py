"""Revisions, order and clean-up of a Deployment's ReplicaSets."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.deployment.replica_sets import (
    LAST_APPLIED,
    REVISION,
    ROLLBACK_TO,
    find_new_replica_set,
    find_old_replica_sets,
    last_revision,
    max_revision,
    old_pods_running,
    replica_sets_to_clean_up,
    revision_of,
    rolled_back_annotations,
    sort_by_creation,
    sort_by_revision,
    sort_by_size_newer,
    sort_by_size_older,
    with_revision,
)
from kubeloop.controllers.runtime.integers import InvalidInteger
from kubeloop.kube.objects.api_types import (
    Deployment,
    DeploymentSpec,
    ObjectMeta,
    Pod,
    ReplicaSet,
    ReplicaSetSpec,
    convert,
)


@pytest.mark.parametrize(
    ("revisions", "highest"),
    [([], 0), (["-3"], 0), (["-3", "-1"], 0), (["-3", "2"], 2), (["x", "3", "1"], 3)],
)
def test_max_revision_ignores_revisions_below_zero(revisions, highest):
    replica_sets = [ReplicaSet(metadata=ObjectMeta(annotations={REVISION: revision})) for revision in revisions]
    assert max_revision(replica_sets) == highest


def replica_set(name: str, revision: str | None, age: int, replicas: int = 1) -> ReplicaSet:
    """Return a ReplicaSet that is `age` seconds old. revision: None without annotation."""
    annotations = {} if revision is None else {REVISION: revision}
    created = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=age)
    metadata = ObjectMeta(name=name, annotations=annotations, creation_timestamp=created)
    return ReplicaSet(metadata=metadata, spec=ReplicaSetSpec(replicas=replicas))


REPLICA_SETS = st.lists(
    st.tuples(st.sampled_from(["1", "2", "3", "x", "", None]), st.integers(0, 3), st.integers(0, 2)), max_size=4
).map(lambda rows: [replica_set(f"rs-{number}", *row) for number, row in enumerate(rows)])


@given(REPLICA_SETS)
def test_orders_do_not_depend_on_the_cache(replica_sets):
    for sort in (sort_by_creation, sort_by_revision, sort_by_size_newer, sort_by_size_older):
        results = {tuple(rs.metadata.name for rs in sort(order)) for order in itertools.permutations(replica_sets)}
        assert len(results) == 1


def precedes(a: ReplicaSet, b: ReplicaSet) -> bool:
    """Return the comparison of kube-controller-manager: by revision, by age if they are equal or not numbers."""
    revisions = [rs.metadata.annotations.get(REVISION, "0") for rs in (a, b)]
    if all(map(str.isdecimal, revisions)) and int(revisions[0]) != int(revisions[1]):
        return int(revisions[0]) < int(revisions[1])
    return [rs.metadata.name for rs in sort_by_creation([a, b])] == [a.metadata.name, b.metadata.name]


@given(REPLICA_SETS)
def test_order_by_revision_is_that_of_upstream_where_it_has_one(replica_sets):
    orders = [
        [rs.metadata.name for rs in order]
        for order in itertools.permutations(replica_sets)
        if all(precedes(a, b) for a, b in itertools.combinations(order, 2))
    ]
    if orders:
        assert [[rs.metadata.name for rs in sort_by_revision(replica_sets)]] == orders


def test_order_by_revision_with_a_cycle_keeps_the_order_of_numbers():
    replica_sets = [replica_set("a", "1", 1), replica_set("b", "x", 2), replica_set("c", "2", 3)]
    for order in itertools.permutations(replica_sets):
        assert [rs.metadata.name for rs in sort_by_revision(order)] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("old_replicas", "pods", "running"),
    [
        pytest.param(0, [], False, id="no Pods"),
        pytest.param(1, [], True, id="status of an old ReplicaSet"),
        pytest.param(0, [("old", "Running")], True, id="Pod of an old ReplicaSet"),
        pytest.param(0, [("old", "Succeeded"), ("old", "Failed")], False, id="finished Pods"),
        pytest.param(0, [("rs-uid", "Running")], False, id="Pod of the new ReplicaSet"),
    ],
)
def test_old_pods_running(old_replicas, pods, running):
    new_rs = convert(ReplicaSet, {"metadata": {"uid": "rs-uid"}})
    old_rss = [convert(ReplicaSet, {"metadata": {"uid": "old"}, "status": {"replicas": old_replicas}})]
    pods_by_rs = [(uid, [convert(Pod, {"status": {"phase": phase}})]) for uid, phase in pods]
    assert old_pods_running(new_rs, old_rss, pods_by_rs) is running


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        pytest.param(None, [], id="no limit"),
        pytest.param(4, [], id="within the limit"),
        pytest.param(2, ["r1"], id="r2 of the two oldest has Pods"),
        pytest.param(0, ["r1", "r3"], id="no history: all without Pods"),
    ],
)
def test_clean_up_deletes_oldest_replica_sets_without_pods(limit, names):
    def old(number: int, replicas: int = 0, **metadata: Any) -> ReplicaSet:
        annotations = {REVISION: str(number)}
        return convert(
            ReplicaSet,
            {
                "metadata": {"name": f"r{number}", "annotations": annotations, **metadata},
                "spec": {"replicas": replicas},
                "status": {"replicas": replicas},
            },
        )

    deleted = old(5, deletionTimestamp="2026-01-01T00:00:00Z")
    not_observed = old(4, generation=2)
    deployment = Deployment(spec=DeploymentSpec(revision_history_limit=limit))
    cleaned = replica_sets_to_clean_up(deployment, [old(3), old(2, 1), deleted, old(1), not_observed])
    assert [rs.metadata.name for rs in cleaned] == names


@pytest.mark.parametrize(
    ("annotations", "revision", "changed"),
    [
        ({}, "1", True),
        ({REVISION: "1"}, "1", False),
        ({REVISION: "1"}, "2", True),
        ({REVISION: "1"}, "", True),
        ({}, "", False),
    ],
)
def test_with_revision_returns_itself_when_unchanged(annotations, revision, changed):
    deployment = Deployment(metadata=ObjectMeta(annotations=annotations))
    result = with_revision(deployment, revision)
    assert (result is not deployment) == changed
    assert result.metadata.annotations.get(REVISION, "") == revision


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        pytest.param(sort_by_creation, ["old", "middle-a", "middle-b", "young"], id="oldest first, then by name"),
        pytest.param(sort_by_size_older, ["young", "middle-b", "old", "middle-a"], id="largest, then oldest first"),
        pytest.param(sort_by_size_newer, ["young", "middle-b", "middle-a", "old"], id="largest, then newest first"),
    ],
)
def test_orders_by_age_and_size(sort, names):
    rows = [("young", 1, 3), ("middle-b", 5, 2), ("middle-a", 5, 1), ("old", 9, 1)]
    replica_sets = [replica_set(name, None, age, replicas) for name, age, replicas in rows]
    assert [rs.metadata.name for rs in sort(replica_sets)] == names


def test_replica_set_without_creation_time_is_the_oldest():
    unknown = ReplicaSet(metadata=ObjectMeta(name="z"))
    assert sort_by_creation([replica_set("a", None, 10_000), unknown])[0] is unknown


@pytest.mark.parametrize(("text", "revision"), [(None, 0), ("0", 0), ("7", 7), ("-7", -7), ("+7", 7)])
def test_revision_of_an_object(text, revision):
    assert revision_of(replica_set("a", text, 0)) == revision


@pytest.mark.parametrize("text", ["", "x", "1.0", "9223372036854775808"])
def test_revision_that_is_no_int64_is_an_error(text):
    with pytest.raises(InvalidInteger):
        revision_of(replica_set("a", text, 0))


@pytest.mark.parametrize(
    ("revisions", "second"),
    [
        pytest.param([], 0, id="no ReplicaSet"),
        pytest.param(["4"], 0, id="one"),
        pytest.param(["1", "2", "3"], 2, id="rising"),
        pytest.param(["3", "2", "1"], 2, id="falling"),
        pytest.param(["3", "1", "2"], 2, id="the second is last"),
        pytest.param(["1", "3", "2"], 2, id="the highest is in the middle"),
        pytest.param(["3", "3"], 3, id="the highest twice"),
        pytest.param(["x", "2", "1", None], 1, id="not a number, and none"),
    ],
)
def test_last_revision_is_the_second_highest(revisions, second):
    assert last_revision([replica_set(str(n), text, 0) for n, text in enumerate(revisions)]) == second


def with_template(name: str, image: str, *, age: int, template_hash: str) -> ReplicaSet:
    template = {
        "metadata": {"labels": {"app": "web", "pod-template-hash": template_hash}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }
    created = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=age)
    return ReplicaSet(
        metadata=ObjectMeta(name=name, uid=f"uid-of-{name}", creation_timestamp=created),
        spec=ReplicaSetSpec(template=template),
    )


@pytest.mark.parametrize(
    ("image", "new", "old"),
    [
        pytest.param("app:2", "b", ["a", "c"], id="the only one with the template"),
        pytest.param("app:1", "a", ["b", "c"], id="the oldest of two with the template"),
        pytest.param("app:3", None, ["a", "b", "c"], id="none has the template"),
    ],
)
def test_new_and_old_replica_sets_differ_by_template(image, new, old):
    rows = [("c", "app:1", 1), ("b", "app:2", 2), ("a", "app:1", 3)]
    replica_sets = [with_template(name, image, age=age, template_hash=name) for name, image, age in rows]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    new_rs = find_new_replica_set(Deployment(spec=DeploymentSpec(template=template)), replica_sets)
    assert (None if new_rs is None else new_rs.metadata.name) == new
    assert [rs.metadata.name for rs in find_old_replica_sets(new_rs, replica_sets)] == old


def test_rollback_restores_annotations_but_not_bookkeeping():
    own = {REVISION: "3", ROLLBACK_TO: "1", LAST_APPLIED: "{}", "team": "b", "added": "later"}
    former = {REVISION: "1", LAST_APPLIED: "{...}", "team": "a", "note": "n"}
    assert rolled_back_annotations(own, former) == {
        REVISION: "3",
        ROLLBACK_TO: "1",
        LAST_APPLIED: "{}",
        "team": "a",
        "note": "n",
    }
