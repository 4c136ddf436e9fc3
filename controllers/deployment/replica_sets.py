"""ReplicaSets of a Deployment: new and old ones, their order, revisions and annotations, Pods and clean-up.

Pure functions. Source: pkg/controller/deployment/util/deployment_util.go, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from kubeloop.controllers.runtime.integers import MAX_INT32, InvalidInteger, parse_int
from kubeloop.controllers.runtime.owners.owner_references import CONTROLLER_INDEX, controller_index_key
from kubeloop.controllers.runtime.revisions.pod_template_hash import equal_ignore_hash
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Deployment, Object, Pod, ReplicaSet
from kubeloop.kube.objects.object_fields import is_finished, replicas_of
from kubeloop.kube.selectors.selectors import Selector

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO = "deprecated.deployment.rollback.to"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

NOT_COPIED = frozenset({LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO})
"""Annotations that are never copied between a Deployment and its ReplicaSets."""

_ZERO_TIME = datetime.min.replace(tzinfo=UTC)


def _creation_key(rs: ReplicaSet) -> tuple[datetime, str]:
    return (rs.metadata.creation_timestamp or _ZERO_TIME, rs.metadata.name)


def sort_by_creation(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Sort by age, oldest first; the same age by name."""
    return sorted(replica_sets, key=_creation_key)


def sort_by_size_older(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Sort by size, largest first; the same size by age, oldest first."""
    return sorted(replica_sets, key=lambda rs: (-replicas_of(rs), *_creation_key(rs)))


def sort_by_size_newer(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Sort by size, largest first; the same size by age, newest first."""
    return sorted(sorted(replica_sets, key=_creation_key, reverse=True), key=lambda rs: -replicas_of(rs))


def sort_by_revision(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Sort by revision, lowest first; the same revision by age, oldest first.

    A ReplicaSet whose revision is not a number comes before the first one with a number that is newer. This is the
    order of kube-controller-manager, which compares such a ReplicaSet by age, wherever its comparisons have no cycle.
    """
    numbered: list[tuple[int, ReplicaSet]] = []
    others: list[ReplicaSet] = []
    for rs in replica_sets:
        revision = _revision_or_none(rs)
        if revision is None:
            others.append(rs)
        else:
            numbered.append((revision, rs))
    numbered.sort(key=lambda item: (item[0], _creation_key(item[1])))
    others.sort(key=_creation_key, reverse=True)
    result: list[ReplicaSet] = []
    for _, rs in numbered:
        while others and _creation_key(others[-1]) < _creation_key(rs):
            result.append(others.pop())
        result.append(rs)
    return result + others[::-1]


def revision_of(obj: Object) -> int:
    """Return the revision annotation; 0 without one. Raises InvalidInteger."""
    text = obj.metadata.annotations.get(REVISION)
    return 0 if text is None else parse_int(text)


def _revision_or_none(obj: Object) -> int | None:
    try:
        return revision_of(obj)
    except InvalidInteger:
        return None


def max_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the highest revision; 0 if none is positive."""
    return max([0, *(revision for rs in replica_sets if (revision := _revision_or_none(rs)) is not None)])


def last_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the second highest revision; 0 if there is none."""
    highest = second = 0
    for rs in replica_sets:
        revision = _revision_or_none(rs)
        if revision is None:
            continue
        if revision >= highest:
            highest, second = revision, highest
        elif revision > second:
            second = revision
    return second


def find_new_replica_set(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> ReplicaSet | None:
    """Return the ReplicaSet with the Deployment's Pod template; of several (there should be one), the oldest."""
    template = deployment.spec.template
    for rs in sort_by_creation(replica_sets):
        if equal_ignore_hash(rs.spec.template, template):
            return rs
    return None


def find_old_replica_sets(new_rs: ReplicaSet | None, replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return all ReplicaSets except the new one, oldest first."""
    new_uid = None if new_rs is None else new_rs.metadata.uid
    return [rs for rs in sort_by_creation(replica_sets) if rs.metadata.uid != new_uid]


def all_replica_sets(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the ReplicaSets of the Deployment, the new one last."""
    return [*old_rss] if new_rs is None else [*old_rss, new_rs]


def with_revision(deployment: Deployment, revision: str) -> Deployment:
    """Return the Deployment with its revision annotation; itself if it has it, or if `revision` is empty."""
    metadata = deployment.metadata
    if metadata.annotations.get(REVISION, "") == revision:
        return deployment
    return replace(deployment, metadata=replace(metadata, annotations={**metadata.annotations, REVISION: revision}))


def rolled_back_annotations(deployment: Mapping[str, str], rs: Mapping[str, str]) -> dict[str, str]:
    """Return the Deployment's annotations after a rollback: its own that are never copied, else the ReplicaSet's."""
    annotations = {name: value for name, value in deployment.items() if name in NOT_COPIED}
    return annotations | {name: value for name, value in rs.items() if name not in NOT_COPIED}


def pods_by_replica_set(
    pods: Store[Pod], selector: Selector, replica_sets: Iterable[ReplicaSet]
) -> list[tuple[str, list[Pod]]]:
    """Return the Pods per ReplicaSet UID: those that the Deployment selects, finished ones included."""
    return [
        (
            rs.metadata.uid,
            [
                pod
                for pod in pods.by_index(CONTROLLER_INDEX, controller_index_key(rs))
                if selector.matches(pod.metadata.labels)
            ],
        )
        for rs in replica_sets
    ]


def old_pods_running(
    new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet], pods_by_rs: Iterable[tuple[str, Sequence[Pod]]]
) -> bool:
    """Return True if a Pod of an old template may still run; a Recreate then creates no new Pods yet."""
    if any(rs.status.replicas > 0 for rs in old_rss):
        return True
    new_uid = None if new_rs is None else new_rs.metadata.uid
    return any(not is_finished(pod) for uid, pods in pods_by_rs if uid != new_uid for pod in pods)


def replica_sets_to_clean_up(deployment: Deployment, old_rss: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the old ReplicaSets beyond revisionHistoryLimit that have no Pods, lowest revision first."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == MAX_INT32:
        return []
    candidates = [rs for rs in old_rss if rs.metadata.deletion_timestamp is None]
    surplus = len(candidates) - limit
    if surplus <= 0:
        return []
    return [
        rs
        for rs in sort_by_revision(candidates)[:surplus]
        if rs.status.replicas == 0 and replicas_of(rs) == 0 and rs.metadata.generation <= rs.status.observed_generation
    ]
