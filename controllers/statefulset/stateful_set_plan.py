"""Plan of a StatefulSet's reconcile: which Pods and claims to create, update or delete, and in which order.

Pure functions. Source: updateStatefulSet, processReplica and processCondemned in
pkg/controller/statefulset/stateful_set_control.go.

With podManagementPolicy OrderedReady, the plan ends at the first Pod that is not available yet: one Pod is created or
deleted at a time. With Parallel, the Pods of a phase are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from kubeloop.controllers.runtime.integers import scaled_value
from kubeloop.controllers.runtime.pods.pod_availability import is_available
from kubeloop.controllers.statefulset.claim_owners import awaits_former_pod, owners_match_policy
from kubeloop.controllers.statefulset.stateful_pods import (
    claim_names,
    identity_matches,
    is_in_range,
    ordinal_of,
    pod_name,
    revision_of,
    storage_matches,
)
from kubeloop.kube.objects.api_types import ControllerRevision, Pod, StatefulSet
from kubeloop.kube.objects.object_fields import is_finished, replicas_of
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim

ClaimLookup = Callable[[str], PersistentVolumeClaim | None]
"""Returns the cached claim with this name in the namespace of the StatefulSet."""


class StatefulSetRevisions(msgspec.Struct, frozen=True):
    """current: of the Pods before a rolling update. update: of the present template. Equal outside of an update."""

    current: ControllerRevision
    update: ControllerRevision


class CreatePod(msgspec.Struct, frozen=True):
    ordinal: int
    revision: ControllerRevision


class ChangePod(msgspec.Struct, frozen=True):
    """A change of an existing Pod.

    "create claims": create missing claims of a pending Pod. "update": restore its labels, volumes and the owners of its
    claims. "update claims": set the owners of its claims only.
    """

    verb: Literal["create claims", "update", "update claims", "delete"]
    pod: Pod


PodAction = CreatePod | ChangePod
PodActions = tuple[PodAction, ...]
"""Actions for one Pod, in order."""


class StatefulSetPlan(msgspec.Struct, frozen=True):
    """Phases in order, each with the actions for some Pods; then deletions of a rolling update, one after the other.

    A failure ends the plan. unavailable: number of desired Pods that are missing or unavailable; None unless
    maxUnavailable limits a rolling update.
    """

    phases: tuple[tuple[PodActions, ...], ...] = ()
    update_deletions: tuple[Pod, ...] = ()
    unavailable: int | None = None

    @property
    def has_changes(self) -> bool:
        return any(self.phases) or bool(self.update_deletions)


class Ordinals(msgspec.Struct, frozen=True):
    """Pods of a StatefulSet by ordinal.

    replicas: one entry per desired ordinal, None without a Pod. condemned: Pods beyond them, highest ordinal first.
    """

    replicas: tuple[Pod | None, ...]
    condemned: tuple[Pod, ...]


def by_ordinal(sts: StatefulSet, pods: Iterable[Pod]) -> Ordinals:
    """Return the Pods by ordinal. A Pod with an ordinal beyond 32 bits is ignored."""
    start = sts.spec.ordinals.start
    replicas: list[Pod | None] = [None] * replicas_of(sts)
    condemned: list[tuple[int, Pod]] = []
    for pod in pods:
        ordinal = ordinal_of(pod)
        if is_in_range(sts, ordinal):
            replicas[ordinal - start] = pod
        elif ordinal >= 0:
            condemned.append((ordinal, pod))
    condemned.sort(key=lambda entry: -entry[0])
    return Ordinals(tuple(replicas), tuple(pod for _, pod in condemned))


def revision_of_new_pod(sts: StatefulSet, revisions: StatefulSetRevisions, ordinal: int) -> ControllerRevision:
    """Return the revision of the Pod to create: the current one below the partition of a rolling update."""
    strategy, start = sts.spec.update_strategy, sts.spec.ordinals.start
    if strategy.rolling_update is not None:
        is_current = ordinal < start + (strategy.rolling_update.partition or 0)
    else:
        is_current = strategy.type == "RollingUpdate" and ordinal < start + sts.status.current_replicas
    return revisions.current if is_current else revisions.update


def max_unavailable(sts: StatefulSet) -> int:
    """Return the Pods that a rolling update may make unavailable at once: at least 1."""
    rolling_update = sts.spec.update_strategy.rolling_update
    if rolling_update is None or rolling_update.max_unavailable is None:
        return 1
    return max(1, scaled_value(rolling_update.max_unavailable, replicas_of(sts), round_up=False))


def plan_pods(
    sts: StatefulSet,
    ordinals: Ordinals,
    revisions: StatefulSetRevisions,
    claim: ClaimLookup,
    now: datetime,
    *,
    limits_unavailable: bool,
) -> StatefulSetPlan:
    """Return the plan. limits_unavailable: obey maxUnavailable (feature gate MaxUnavailableStatefulSet)."""
    if sts.metadata.deletion_timestamp is not None:
        return StatefulSetPlan()
    planner = _Planner(sts, ordinals, revisions, claim, now)
    phases: list[tuple[PodActions, ...]] = []
    for phase in (planner.replicas, planner.condemned_claims, planner.condemned):
        actions, complete = phase()
        phases.append(actions)
        if not complete:
            return StatefulSetPlan(tuple(phases))
    if sts.spec.update_strategy.type == "OnDelete":
        return StatefulSetPlan(tuple(phases))
    if not limits_unavailable:
        return StatefulSetPlan(tuple(phases), tuple(planner.update_one()))
    unavailable = planner.count_unavailable()
    return StatefulSetPlan(tuple(phases), tuple(planner.update_with_limit(unavailable)), unavailable)


class _Planner:
    """One call of `plan_pods`. A phase returns its actions, and False if no later phase may start yet."""

    def __init__(
        self, sts: StatefulSet, ordinals: Ordinals, revisions: StatefulSetRevisions, claim: ClaimLookup, now: datetime
    ) -> None:
        self._sts = sts
        self._ordinals = ordinals
        self._revisions = revisions
        self._claim = claim
        self._now = now
        self._ordered = sts.spec.pod_management_policy != "Parallel"
        self._updated = revisions.update.metadata.name
        self._has_claims = bool(sts.spec.volume_claim_templates)

    def replicas(self) -> tuple[tuple[PodActions, ...], bool]:
        """Create missing Pods, delete finished ones, and restore the others."""
        all_actions: list[PodActions] = []
        for ordinal, pod in enumerate(self._ordinals.replicas, self._sts.spec.ordinals.start):
            actions, waits = self._create(ordinal) if pod is None else self._keep(pod)
            if actions:
                all_actions.append(actions)
            if waits and self._ordered:
                return tuple(all_actions), False
        return tuple(all_actions), True

    def _create(self, ordinal: int) -> tuple[PodActions, bool]:
        name = pod_name(self._sts, ordinal)
        claims = (self._claim(claim_name) for claim_name in claim_names(self._sts, ordinal).values())
        if any(claim is not None and awaits_former_pod(claim, self._sts, name) for claim in claims):
            return (), True
        return (CreatePod(ordinal, revision_of_new_pod(self._sts, self._revisions, ordinal)),), True

    def _keep(self, pod: Pod) -> tuple[PodActions, bool]:
        """Return the actions for an existing Pod, and whether the next ordinal has to wait for it."""
        terminating = pod.metadata.deletion_timestamp is not None
        if is_finished(pod):
            return (() if terminating else (ChangePod("delete", pod),)), True
        pending = pod.status.phase == "Pending"
        if pending and self._needs_claims(pod):
            actions: PodActions = (ChangePod("create claims", pod),)
        else:
            actions = ()
        if self._ordered and (terminating or pod.status.phase != "Running" or not self._is_available(pod)):
            return actions, True
        if (
            not identity_matches(self._sts, pod)
            or not storage_matches(self._sts, pod)
            or (not actions and not self._claims_match(pod))
        ):
            actions = (*actions, ChangePod("update", pod))
        return actions, False

    def _needs_claims(self, pod: Pod) -> bool:
        if not self._has_claims:
            return False
        claims = [self._claim(name) for name in claim_names(self._sts, ordinal_of(pod)).values()]
        missing = any(claim is None or claim.metadata.deletion_timestamp is not None for claim in claims)
        return missing or not self._claims_match(pod)

    def _claims_match(self, pod: Pod) -> bool:
        """Return True if the claims of a Pod, as far as they exist, have the owners of the retention policy."""
        if not self._has_claims:
            return True
        claims = (self._claim(name) for name in claim_names(self._sts, ordinal_of(pod)).values())
        return all(claim is None or owners_match_policy(claim, self._sts, pod) for claim in claims)

    def condemned_claims(self) -> tuple[tuple[PodActions, ...], bool]:
        """Set the owners of the claims of Pods that will be deleted."""
        outdated = (pod for pod in self._ordinals.condemned if not self._claims_match(pod))
        return tuple((ChangePod("update claims", pod),) for pod in outdated), True

    def condemned(self) -> tuple[tuple[PodActions, ...], bool]:
        """Scale down: delete the Pod with the highest ordinal once all others are available, or all Pods at once."""
        condemned = self._ordinals.condemned
        if not self._ordered:
            present = (pod for pod in condemned if pod.metadata.deletion_timestamp is None)
            return tuple((ChangePod("delete", pod),) for pod in present), True
        if not condemned:
            return (), True
        highest = condemned[0]
        if highest.metadata.deletion_timestamp is not None:
            return (), False
        ready = highest.status.phase == "Running" and self._is_available(highest)
        if not ready and highest is not self._first_unavailable():
            return (), False
        return ((ChangePod("delete", highest),),), False

    def _first_unavailable(self) -> Pod | None:
        """Return the first unavailable Pod: the lowest desired ordinal, then the lowest one beyond them."""
        for pod in (*self._ordinals.replicas, *reversed(self._ordinals.condemned)):
            if pod is not None and self._is_unavailable(pod):
                return pod
        return None

    def update_one(self) -> Sequence[Pod]:
        """Rolling update of one Pod at a time: the highest ordinal that has another revision."""
        for pod in reversed(self._ordinals.replicas[self._partition() :]):
            if pod is not None and self._is_outdated(pod):
                return (pod,)
            if pod is None or self._is_unavailable(pod):
                return ()
        return ()

    def count_unavailable(self) -> int:
        return sum(pod is None or self._is_unavailable(pod) for pod in self._ordinals.replicas)

    def update_with_limit(self, unavailable: int) -> Sequence[Pod]:
        """Rolling update of as many Pods as may be unavailable at once, from the highest ordinal."""
        count = max(0, max_unavailable(self._sts) - unavailable)
        candidates = reversed(self._ordinals.replicas[self._partition() :])
        return [pod for pod in candidates if pod is not None and self._is_outdated(pod)][:count]

    def _partition(self) -> int:
        """Return the number of Pods, from the lowest ordinal, that keep their revision."""
        rolling_update = self._sts.spec.update_strategy.rolling_update
        return (rolling_update.partition or 0) if rolling_update is not None else 0

    def _is_outdated(self, pod: Pod) -> bool:
        return revision_of(pod) != self._updated and pod.metadata.deletion_timestamp is None

    def _is_available(self, pod: Pod) -> bool:
        return is_available(pod, self._sts.spec.min_ready_seconds, self._now)

    def _is_unavailable(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or not self._is_available(pod)
