"""The ReplicaSets of a Deployment: which is the new one, in which order, of which revision, with which annotations.

Pure functions. Source: pkg/controller/deployment/util/deployment_util.go, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kubeloop.controllers.deployment.pod_template import equal_ignore_hash
from kubeloop.controllers.runtime.integers import InvalidInteger, int_or_none, non_negative_int32, parse_int
from kubeloop.kube.objects.api_types import Deployment, Object, ReplicaSet
from kubeloop.tracing.recording.traceparent import TRACEPARENT_ANNOTATION

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO = "deprecated.deployment.rollback.to"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

NOT_COPIED = frozenset({LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO})
"""Annotations that are never copied between a Deployment and its ReplicaSets."""

MAX_REVISION_HISTORY_CHARS = 2000

_ZERO_TIME = datetime.min.replace(tzinfo=UTC)


def replicas_of(obj: Deployment | ReplicaSet) -> int:
    """spec.replicas; 1 where it is not set, as the API defaults it."""
    replicas = obj.spec.replicas
    return 1 if replicas is None else replicas


def _creation(rs: ReplicaSet) -> tuple[datetime, str]:
    return (rs.metadata.creation_timestamp or _ZERO_TIME, rs.metadata.name)


def sort_by_creation(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Oldest first; of one age, by name."""
    return sorted(replica_sets, key=_creation)


def sort_by_size_older(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Largest first; of one size, the oldest first."""
    return sorted(replica_sets, key=lambda rs: (-replicas_of(rs), *_creation(rs)))


def sort_by_size_newer(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Largest first; of one size, the newest first."""
    return sorted(sorted(replica_sets, key=_creation, reverse=True), key=lambda rs: -replicas_of(rs))


def sort_by_revision(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Lowest revision first; where a revision is no number, or both are the same, the oldest first."""

    def compare(a: ReplicaSet, b: ReplicaSet) -> int:
        revision_a, revision_b = _revision_or_none(a), _revision_or_none(b)
        if revision_a is None or revision_b is None or revision_a == revision_b:
            return -1 if _creation(a) < _creation(b) else 1
        return revision_a - revision_b

    return sorted(replica_sets, key=functools.cmp_to_key(compare))


def revision_of(obj: Object) -> int:
    """The revision annotation; 0 without one. Raises NotANumber."""
    text = obj.metadata.annotations.get(REVISION)
    return 0 if text is None else parse_int(text)


def _revision_or_none(obj: Object) -> int | None:
    try:
        return revision_of(obj)
    except InvalidInteger:
        return None


def max_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """The highest revision; 0 if there is none."""
    return max((revision for rs in replica_sets if (revision := _revision_or_none(rs)) is not None), default=0)


def last_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """The second highest revision; 0 if there is none."""
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
    """The ReplicaSet with the Deployment's Pod template; of several (there should be one), the oldest."""
    template = deployment.spec.template
    for rs in sort_by_creation(replica_sets):
        if equal_ignore_hash(rs.spec.template, template):
            return rs
    return None


def find_old_replica_sets(new_rs: ReplicaSet | None, replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """All others, oldest first."""
    new_uid = None if new_rs is None else new_rs.metadata.uid
    return [rs for rs in sort_by_creation(replica_sets) if rs.metadata.uid != new_uid]


def filter_active(replica_sets: Iterable[ReplicaSet | None]) -> list[ReplicaSet]:
    """Those that want Pods."""
    return [rs for rs in replica_sets if rs is not None and replicas_of(rs) > 0]


def find_active_or_latest(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The only active one; with none active the new, else the newest one. None if several are active, or none exist."""
    if new_rs is None and not old_rss:
        return None
    newest_first = sort_by_creation(old_rss)[::-1]
    candidates = filter_active([*newest_first, new_rs])
    if not candidates:
        return new_rs if new_rs is not None else newest_first[0]
    return candidates[0] if len(candidates) == 1 else None


def spec_replicas_sum(replica_sets: Iterable[ReplicaSet | None]) -> int:
    return sum(replicas_of(rs) for rs in replica_sets if rs is not None)


def actual_replicas_sum(replica_sets: Iterable[ReplicaSet | None]) -> int:
    return sum(rs.status.replicas for rs in replica_sets if rs is not None)


def ready_replicas_sum(replica_sets: Iterable[ReplicaSet | None]) -> int:
    return sum(rs.status.ready_replicas for rs in replica_sets if rs is not None)


def available_replicas_sum(replica_sets: Iterable[ReplicaSet | None]) -> int:
    return sum(rs.status.available_replicas for rs in replica_sets if rs is not None)


def terminating_replicas_sum(replica_sets: Iterable[ReplicaSet | None]) -> int | None:
    """None if a ReplicaSet was synced by a controller that does not count them."""
    total = 0
    for rs in replica_sets:
        if rs is None:
            continue
        if rs.status.terminating_replicas is not None:
            total += rs.status.terminating_replicas
        elif rs.status.observed_generation != 0:
            return None
    return total


# --- annotations ---------------------------------------------------------------------------------------------------


def desired_replicas_annotation(rs: ReplicaSet) -> int | None:
    return non_negative_int32(rs.metadata.annotations.get(DESIRED_REPLICAS))


def max_replicas_annotation(rs: ReplicaSet) -> int | None:
    return non_negative_int32(rs.metadata.annotations.get(MAX_REPLICAS))


def replicas_annotations(desired: int, maximum: int) -> dict[str, str]:
    """How a ReplicaSet remembers the size of its Deployment when it was scaled last."""
    return {DESIRED_REPLICAS: str(desired), MAX_REPLICAS: str(maximum)}


def new_replica_set_annotations(
    deployment_annotations: Mapping[str, str],
    annotations: Mapping[str, str],
    new_revision: str,
    *,
    replicas: tuple[int, int] | None,
    max_history_chars: int = MAX_REVISION_HISTORY_CHARS,
) -> tuple[dict[str, str], bool]:
    """The annotations of the new ReplicaSet, and whether that asks for a write.

    Copies the Deployment's, and raises the revision (a ReplicaSet that is rolled back to remembers its former
    revisions). `replicas`, (desired, maximum), is given for one that is about to be created.
    """
    result = dict(annotations)
    changed = False
    for name, value in deployment_annotations.items():
        if name not in NOT_COPIED and result.get(name) != value:
            result[name] = value
            changed = True
    old_text = result.get(REVISION)
    old_number = int_or_none(old_text) if old_text else 0
    new_number = int_or_none(new_revision)
    if old_number is None or new_number is None:
        return result, False  # somebody wrote what is no number there: leave it alone
    if old_number < new_number:
        result[REVISION] = new_revision
        changed = True
        if old_text is not None:
            _remember_revision(result, old_text, max_history_chars)
    if replicas is not None:
        for name, value in replicas_annotations(*replicas).items():
            if result.get(name) != value:
                result[name] = value
                changed = True
    return result, changed


def _remember_revision(annotations: dict[str, str], revision: str, max_chars: int) -> None:
    """Append to the revision history; the oldest ones go where it would grow too long."""
    history = annotations.get(REVISION_HISTORY, "")
    revisions = history.split(",")
    if not revisions[0]:
        annotations[REVISION_HISTORY] = revision
        return
    length = len(history) + len(revision) + 1
    start = 0
    while length > max_chars and start < len(revisions):
        length -= len(revisions[start]) + 1
        start += 1
    if length <= max_chars:
        annotations[REVISION_HISTORY] = ",".join([*revisions[start:], revision])


def rolled_back_annotations(deployment: Mapping[str, str], rs: Mapping[str, str]) -> dict[str, str]:
    """The Deployment's annotations after a rollback: its own that are never copied, else the ReplicaSet's.

    What the ReplicaSet says of the trace in which it was created is of the past.
    """
    not_copied = {*NOT_COPIED, TRACEPARENT_ANNOTATION}
    kept = {name: value for name, value in deployment.items() if name in not_copied}
    return kept | {name: value for name, value in rs.items() if name not in not_copied}
