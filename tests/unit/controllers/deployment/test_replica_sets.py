"""Revisions of a Deployment's ReplicaSets."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.deployment.replica_sets import (
    REVISION,
    max_revision,
    sort_by_creation,
    sort_by_revision,
    sort_by_size_newer,
    sort_by_size_older,
)
from kubeloop.kube.objects.api_types import ObjectMeta, ReplicaSet, ReplicaSetSpec


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
